"""Published MCP servers as upstreams: results through the gateway equal those of the server.

Each server runs in a sandbox without a network and with an empty `/tmp`, so that every tool can be called, and every
process starts from the same state. The server is queried twice without the gateway. Members that differ between these
two results, such as times, are compared only by type.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import aiohttp
from jsonschema import Draft202012Validator

from gateway.json_types import Json, JsonObject
from gateway.wire import downgrade, meta
from tests.behaviour.cells import HTTP, LATEST, LATEST_LEGACY, STDIO, Cell
from tests.behaviour.client import Client, initialize_params, listed
from tests.behaviour.conftest import client_factory
from tests.behaviour.wires import StdioWire
from tests.corpus.corpora import Corpus, Verdict, reason_of, sampled
from tests.corpus.packages import directory, node, servers
from tests.e2e.daemon import Daemon, serving
from tests.openapi.real_documents import arguments_for
from tests.protocol.peers import accept_all

SECONDS: Final = 120.0
PATIENCE: Final = 8.0
"""The timeout of a response in seconds. Tools that wait for the network are not compared."""
MAX_CALLS: Final = 10
NAME: Final = "up"
LISTS: Final = {
    "tools": ("tools/list", downgrade.tool),
    "resources": ("resources/list", downgrade.resource),
    "resourceTemplates": ("resources/templates/list", downgrade.resource),
    "prompts": ("prompts/list", downgrade.prompt),
}
CELLS: Final = {"legacy": Cell(binding=HTTP, revision=LATEST_LEGACY), "modern": Cell(binding=HTTP, revision=LATEST)}
_DIFFERENT: Final = {
    "brave-search tools/call": "time",
    "cyanheads-git-mcp-server resourceTemplates git://working-directory": "twice",
    "everything tools/call get-env": "environment",
    "jpisnice-shadcn-ui-mcp-server resources/read": "member",
    "mapbox-mcp-server tools/call": "member",
    "everything tools/call simulate-research-query": "task",
    "everything tools simulate-research-query": "task",
    "smartbear-mcp tools contract-testing_get_bdct_": "long",
    "wonderwhy-er-desktop-commander tools/call get_config": "environment",
}
_EVERYTHING: Final[JsonObject] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
_ADDED: Final = frozenset({"execution", "resultType", "ttlMs", "cacheScope", meta.META_SERVER_INFO})
"""Members that belong to the connection."""


@dataclass(frozen=True, kw_only=True)
class Step:
    method: str
    params: JsonObject

    @property
    def renamed(self) -> "Step":
        """Return the step for the gateway."""
        if "name" not in self.params:
            return self
        return replace(self, params={**self.params, "name": f"{NAME}_{self.params['name']}"})

    def __str__(self) -> str:
        return f"{self.method} {self.params.get('name') or self.params.get('uri')}"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Everything that one client received from a server."""

    instructions: str
    lists: Mapping[str, list[Json]]
    steps: Sequence[Step]
    answers: Sequence[Json]


def command_of(name: str) -> tuple[list[str], dict[str, str]]:
    """Return the sandboxed command of a server, and its environment."""
    entry = servers()[name]
    if "npm" in entry:
        package = directory() / "node_modules" / entry["npm"].rpartition("@")[0]
        program = [str(node()), str(package / entry["program"])]
    else:
        program = [str(directory() / "python" / name / "bin" / entry["program"])]
    before = entry.get("before", "true")
    shell = ["sh", "-c", f'{before} >/dev/null 2>&1; exec "$@"', "sh"]
    sandbox = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    for needed in (directory().resolve(), node().resolve().parents[1]):  # can be below /tmp
        sandbox += ["--ro-bind", str(needed), str(needed)]
    sandbox += ["--chdir", "/tmp", "--die-with-parent"]
    return [*sandbox, *shell, *program, *entry.get("arguments", ())], {
        "HOME": "/tmp",
        "PATH": f"{node().parent}:/usr/bin:/bin",
        **entry.get("env", {}),
    }


async def verdicts(name: str) -> AsyncIterator[Verdict]:
    """Judge one server."""
    command, environment = command_of(name)
    own = await _without(command, environment, None)
    again = await _without(command, environment, own.steps)
    yield Verdict(check="servers", case=name)
    async for era, seen in _through(command, environment, own):
        for verdict in _compared(name, CELLS[era].revision, own, again, seen):
            yield replace(verdict, check=f"{verdict.check} {era}")


def _steps(lists: Mapping[str, list[Json]]) -> list[Step]:
    """Return calls of tools with sample arguments, and reads of listed resources and prompts."""
    asked: list[tuple[str, dict[str, Json]]] = []
    for tool in sampled(lists["tools"], MAX_CALLS):
        arguments = arguments_for(tool["inputSchema"], is_full=False)
        if arguments is not None and Draft202012Validator(tool["inputSchema"]).is_valid(arguments):
            asked.append(("tools/call", {"name": tool["name"], "arguments": arguments}))
    asked += [("resources/read", {"uri": each["uri"]}) for each in sampled(lists["resources"], MAX_CALLS // 2)]
    for prompt in sampled(lists["prompts"], MAX_CALLS // 2):
        given = {each["name"]: "1" for each in prompt.get("arguments", ()) if each.get("required")}
        asked.append(("prompts/get", {"name": prompt["name"], "arguments": given}))
    return [Step(method=method, params=params) for method, params in asked]


async def _without(command: Sequence[str], environment: Mapping[str, str], steps: Sequence[Step] | None) -> Seen:
    """Query the server directly."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=16 * 2**20,
        env=dict(environment),
    )
    client = Client(Cell(binding=STDIO, revision=LATEST_LEGACY), None)
    wire = StdioWire(Daemon(process=process))
    wire.client = client
    client.wire, client.respond = wire, _respond
    try:
        wire.open()
        hello = (await client.ask("initialize", initialize_params(LATEST_LEGACY, _EVERYTHING))).message
        await client.notify("notifications/initialized")
        return await _seen(client, hello["result"], steps)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await wire.close()


async def _through(
    command: Sequence[str], environment: Mapping[str, str], own: Seen
) -> AsyncIterator[tuple[str, Seen]]:
    """Query the gateway as a client of each era."""
    entry = {"command": [*command], "env": dict(environment), "connect_timeout": "60s", "uri_prefix": ""}
    async with AsyncExitStack() as stack:
        config = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "config.yaml"
        config.write_text(json.dumps({"upstreams": {NAME: entry}}), encoding="utf-8")
        flags = ("--http", "127.0.0.1:0", "--state-dir", "none")
        daemon = await stack.enter_async_context(serving(config, *flags, is_forked=False))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        new_client = await stack.enter_async_context(client_factory("", http, None))
        first = await new_client(CELLS["modern"], daemon=daemon)
        async with asyncio.timeout(SECONDS):
            while own.lists["tools"] and not await listed(first, "tools/list", "tools"):
                await asyncio.sleep(0.1)
        for era, cell in CELLS.items():
            client = await new_client(cell, daemon=daemon, capabilities=_EVERYTHING)
            client.respond = _respond
            hello = client.initialized or (await client.ask("server/discover")).result
            yield era, await _seen(client, hello, [each.renamed for each in own.steps])


def _respond(method: str, params: JsonObject) -> Json:
    return {"action": "decline"} if method == "elicitation/create" else accept_all(method, params)


async def _seen(client: Client, hello: JsonObject, steps: Sequence[Step] | None) -> Seen:
    """Run the steps as a client. Without steps, choose steps and keep the successful ones."""
    offered = hello.get("capabilities", {})
    lists: dict[str, list[Json]] = {}
    for member, (method, _) in LISTS.items():
        try:
            has = method.partition("/")[0] in offered
            lists[member] = await listed(client, method, member) if has else []
        except AssertionError:  # some servers declare resources, and return an error for one of their lists
            lists[member] = []
    asked, patience = (_steps(lists), PATIENCE) if steps is None else (steps, SECONDS)
    answers = [(step, await _answer(client, step, patience=patience)) for step in asked]
    if steps is None:
        answers = [(step, answer) for step, answer in answers if answer]
    return Seen(
        instructions=hello.get("instructions", ""),
        lists=lists,
        steps=[step for step, _ in answers],
        answers=[answer for _, answer in answers],
    )


async def _answer(client: Client, step: Step, *, patience: float) -> Json:
    """Remove connection-specific members from a response. Return an empty one if there is no response."""
    try:
        async with asyncio.timeout(patience):
            answer = await client.converse(step.method, step.params)
    except TimeoutError:
        return {}
    return {key: value for key, value in answer.message.items() if key in {"result", "error"}}


def _compared(name: str, revision: str, own: Seen, again: Seen, seen: Seen) -> Iterator[Verdict]:
    if own.instructions:
        wrong = "" if own.instructions.strip() in seen.instructions else f"{own.instructions[:80]!r} is missing"
        yield Verdict(check="lists", case=f"{name} instructions", wrong=wrong)
    for member, (_, without) in LISTS.items():
        expected, second = (
            {_key(each): plain(without(each, revision)) for each in run.lists[member]} for run in (own, again)
        )
        ours = {_key(each): plain(each) for each in map(_own_name, seen.lists[member])}
        for key in expected.keys() | ours.keys():
            yield _same("lists", f"{name} {member} {key}", expected.get(key), second.get(key), ours.get(key))
    for step, *answers in zip(own.steps, own.answers, again.answers, seen.answers, strict=True):
        one, two, ours = (
            {**each, "result": _cut(step, each["result"], revision)} if "result" in each else each for each in answers
        )
        yield _same("calls", f"{name} {step}", one, two, ours)


def _own_name(entry: JsonObject) -> JsonObject:
    return {**entry, "name": entry["name"].removeprefix(f"{NAME}_")} if "name" in entry else entry


def _key(entry: Json) -> str:
    return str(entry.get("uri") or entry.get("uriTemplate") or entry["name"])


def _cut(step: Step, result: JsonObject, revision: str) -> Json:
    """Remove members that a revision does not define from a result."""
    match step.method:
        case "tools/call" if "content" in result:
            result = {**result, "content": downgrade.content(result["content"], revision)}
        case "resources/read" if "contents" in result:
            result = {**result, "contents": downgrade.resource_contents(result["contents"], revision)}
        case "prompts/get" if "messages" in result:
            result = {**result, "messages": downgrade.prompt_messages(result["messages"], revision)}
    return plain(result)


def _same(check: str, case: str, own: Json, again: Json, ours: Json) -> Verdict:
    found = next(_differences(own, again, ours, ""), "")
    reason = reason_of(case, _DIFFERENT) if found else None
    return Verdict(check=check, case=case, reason=reason or "", wrong="" if reason else found)


def _differences(own: Json, again: Json, ours: Json, path: str) -> Iterator[str]:
    match own, ours:
        case dict(), dict():
            second = again if isinstance(again, dict) else {}
            for key in own.keys() | ours.keys():
                missing = "(none)"
                yield from _differences(
                    own.get(key, missing), second.get(key, missing), ours.get(key, missing), f"{path}/{key}"
                )
        case list(), list() if len(own) == len(ours):
            others = again if isinstance(again, list) and len(again) == len(own) else [None] * len(own)
            for index, (left, middle, right) in enumerate(zip(own, others, ours, strict=True)):
                yield from _differences(left, middle, right, f"{path}/{index}")
        case _:
            if own != ours and (own == again or type(own) is not type(ours)):
                yield f"{path}: {json.dumps(own)[:200]} became {json.dumps(ours)[:200]}"


def plain(value: Json) -> Json:
    """Remove connection-specific and empty members from a result or a part of it."""
    match value:
        case dict():
            kept = {key: plain(each) for key, each in value.items() if key not in _ADDED}
            return {key: each for key, each in kept.items() if (key, each) not in (("isError", False), ("_meta", {}))}
        case list():
            return [plain(each) for each in value]
    return value


def parts(*, is_whole: bool) -> list[str]:
    return [*servers(is_whole=is_whole)]


CORPUS: Final = Corpus(
    title="Published MCP servers",
    about="""
Servers from npm and PyPI that start without a network and without credentials. Each server is queried directly and
through the gateway. Instructions, lists and results of calls with sample arguments are compared field by field, for up
to ten tools, five resources and five prompts per server. Many results are errors, because servers have no network.
Errors must be equal too. Times and random values are compared by type.
""",
    checks={
        "servers": "Servers",
        "lists legacy": "Entries of lists, client of 2025-11-25",
        "calls legacy": "Results, client of 2025-11-25",
        "lists modern": "Entries of lists, client of 2026-07-28",
        "calls modern": "Results, client of 2026-07-28",
    },
    reasons={
        "time": "The server has a rate limit, so its results depend on the time between calls.",
        "member": "The result contains a member that MCP does not define. It is not relayed.",
        "environment": "The result contains the environment or the client of the server, which is the gateway.",
        "long": "The name with its prefix is longer than 64 characters. `override` can shorten it.",
        "twice": "The server lists a URI as a resource and as a template. The gateway lists it only as a resource.",
        "task": "The tool can only be called as a task of the upstream, so it is not offered.",
    },
    parts=parts,
    verdicts=verdicts,
)
