"""Requests to each real server, and the comparison of their results."""

import json
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from gateway.json_types import Json, JsonObject
from gateway.wire import downgrade, meta
from tests.behaviour.cells import LATEST_LEGACY, Cell
from tests.behaviour.client import Client, initialize_params, listed
from tests.behaviour.wires import HttpWire, SseWire, StdioWire
from tests.e2e.daemon import Daemon
from tests.upstreams.real_servers import Running, process

LISTS: Final = {
    "tools": ("tools/list", downgrade.tool),
    "resources": ("resources/list", downgrade.resource),
    "resourceTemplates": ("resources/templates/list", downgrade.resource),
    "prompts": ("prompts/list", downgrade.prompt),
}
"""The member of each list → its method, and the conversion to older revisions."""
USES_OF: Final = {
    "tools/list": {"tools/call"},
    "resources/list": {"resources/read"},
    "resources/templates/list": {"resources/read"},
    "prompts/list": {"prompts/get"},
    "completion/complete": {"completion/complete"},
}
"""The methods that use the entries of a list."""
ADDED_PREFIX: Final = "more_"
"""The prefix of tools that were added during the tests."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A request whose result is compared. `name` or `uri` is that of the server."""

    method: str
    params: JsonObject
    varies: bool = False
    """Whether the result contains numbers that change."""


def call(tool: str, *, varies: bool = False, **arguments: Json) -> Step:
    return Step(method="tools/call", params={"name": tool, "arguments": arguments}, varies=varies)


def read(uri: str, *, varies: bool = False) -> Step:
    return Step(method="resources/read", params={"uri": uri}, varies=varies)


def prompt(name: str, **arguments: str) -> Step:
    return Step(method="prompts/get", params={"name": name, "arguments": arguments})


def complete(reference: str, argument: str, value: str) -> Step:
    kind = {"type": "ref/resource", "uri": reference} if "{" in reference else {"type": "ref/prompt", "name": reference}
    return Step(method="completion/complete", params={"ref": kind, "argument": {"name": argument, "value": value}})


ON_SDKS: Final = ("sdk1", "sdk1sse", "sdk2", "typescript", "fast")
"""Our own servers, which offer the same with each SDK."""
_SDK: Final = (
    call("add", a=2, b=3),
    call("picture"),
    call("fail"),
    read("note://one"),
    read("greeting://ada"),
    prompt("review", text="x"),
    complete("greeting://{name}", "name", "al"),
)
STEPS: Final[Mapping[str, tuple[Step, ...]]] = {
    "every": (
        call("echo", message="hi"),
        call("get-sum", a=2, b=3),
        call("get-structured-content", location="Chicago"),
        call("get-tiny-image"),
        call("get-resource-links", count=2),
        call("get-resource-reference", varies=True, resourceType="Text", resourceId=1),
        call("get-annotated-message", messageType="success", includeImage=True),
        read("demo://resource/static/document/features.md"),
        read("demo://resource/dynamic/text/1", varies=True),
        prompt("simple-prompt"),
        prompt("args-prompt", city="Oslo"),
        complete("completable-prompt", "department", "E"),
        complete("demo://resource/dynamic/text/{resourceId}", "resourceId", "1"),
    ),
    "files": (call("list_directory", path="{data}/files"), call("read_text_file", path="{data}/files/note.txt")),
    "memory": (call("search_nodes", query="nobody"), call("read_graph"), read("memory://knowledge-graph")),
    "clock": (
        call("get_current_time", varies=True, timezone="UTC"),
        call("convert_time", varies=True, source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"),
        call("get_current_time", timezone="Nowhere"),
    ),
    "git": (call("git_log", repo_path="{data}/repository"), call("git_status", repo_path="{data}/repository")),
    **dict.fromkeys(ON_SDKS, _SDK),
}
PROGRESS: Final[Mapping[str, Step]] = {
    "every": call("trigger-long-running-operation", duration=0.1, steps=3),
    **dict.fromkeys(ON_SDKS, call("count", to=3)),
}
UPDATES: Final[Mapping[str, tuple[str, Step]]] = {
    "every": ("demo://resource/static/document/features.md", call("toggle-subscriber-updates")),
    "memory": ("memory://knowledge-graph", call("delete_entities", entityNames=["nobody"])),
    **dict.fromkeys(("sdk2", "typescript"), ("note://one", call("touch", uri="note://one"))),
}
"""The server → one of its resources, and a call that updates it."""
_CONNECTION: Final = frozenset({"execution", "resultType", "ttlMs", "cacheScope", meta.META_SERVER_INFO})
"""Members that are not about the content."""
_DEFAULT_MEMBERS: Final[tuple[tuple[str, Json], ...]] = (("isError", False), ("_meta", {}))


@dataclass(frozen=True, kw_only=True)
class DirectResults:
    """The results of a server without the gateway."""

    capabilities: JsonObject
    lists: Mapping[str, list[JsonObject]]
    answers: list[Json]


async def ask_directly(server: Running, data: Path) -> DirectResults:
    """Send all requests directly to a server."""
    client = Client(Cell(binding=server.server.transport, revision=LATEST_LEGACY), None)
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        wire: HttpWire | SseWire | StdioWire
        match server.server.transport:
            case "stdio":
                wire = StdioWire(Daemon(process=await stack.enter_async_context(process(server))))
                wire.client = client
                wire.open()
                stack.push_async_callback(wire.close)
            case "sse":
                wire = SseWire(server.url, http, client)
                await wire.open()
                stack.push_async_callback(wire.close)
            case _:
                wire = HttpWire(server.url, http, client)
        client.wire = wire
        everything: JsonObject = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
        client.initialized = (await client.ask("initialize", initialize_params(LATEST_LEGACY, everything))).result
        await client.notify("notifications/initialized")
        offered = client.initialized["capabilities"]
        lists = {
            member: await listed(client, method, member) if method.partition("/")[0] in offered else []
            for member, (method, _) in LISTS.items()
        }
        answers = [(await client.ask(step.method, located(step.params, data))).message for step in STEPS[server.name]]
        return DirectResults(capabilities=offered, lists=lists, answers=answers)


def located(params: JsonObject, data: Path) -> Any:
    """Return the parameters with the data directory filled in."""
    return json.loads(json.dumps(params).replace("{data}", str(data)))


def renamed(params: JsonObject, name: str) -> dict[str, Json]:
    """Return the parameters of a server as those of the gateway."""
    given = {**params, **({"ref": renamed(params["ref"], name)} if "ref" in params else {})}
    if "name" in given:
        given["name"] = f"{name}_{given['name']}"
    if "uri" in given:
        given["uri"] = f"{name}+{given['uri']}"
    return given


def belongs(entry: JsonObject, name: str) -> bool:
    uri = entry.get("uri") or entry.get("uriTemplate")
    return bool(uri.startswith(f"{name}+") if uri else entry["name"].startswith(f"{name}_"))


def cut(step: Step, result: JsonObject, revision: str) -> JsonObject:
    """Return a result without members that a revision lacks."""
    match step.method:
        case "tools/call":
            kept = {key: value for key, value in result.items() if key != "structuredContent" or revision >= "2025-06"}
            return {**kept, "content": downgrade.content(result["content"], revision)}
        case "resources/read":
            return {"contents": downgrade.resource_contents(result["contents"], revision)}
        case "prompts/get":
            return {"messages": downgrade.prompt_messages(result["messages"], revision)}
    return result


def plain(value: Json, name: str) -> Json:
    """Return a result with the server's own URIs and without members about the connection."""
    match value:
        case {"completion": completion}:
            return completion["values"]
        case {"messages": messages}:
            return plain(messages, name)  # the description is also in the list
        case dict():
            kept = {key: plain(each, name) for key, each in value.items() if key not in _CONNECTION}
            return {key: each for key, each in kept.items() if (key, each) not in _DEFAULT_MEMBERS}
        case list():
            return [plain(each, name) for each in value]
        case str():
            return value.replace(f"{name}+", "")
    return value


def without_numbers(value: Json) -> Json:
    return json.loads(re.sub(r"\d+", "0", json.dumps(value)))
