"""Sends or explains the requests of the commands `list`, `call`, `read` and `prompt`.

The argument `photo=@path` sends the content of a file if the tool's schema defines `photo` as a file. For other inputs,
text that starts with `@` is sent unchanged, as in `handle=@ada`.
"""

import base64
import json
import shlex
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from gateway.app.gateway import Gateway
from gateway.catalog.catalog import Catalog
from gateway.catalog.explained import EVERY_CAPABILITY, Explained, explaining
from gateway.cli.client.remote import GatewayClient, every_page, remote_client
from gateway.cli.console import Console, left_out_lines, protect_stdout, waiting
from gateway.cli.dry_run import asked_sources, dry_run
from gateway.cli.options import one_shot_settings
from gateway.cli.results import show_raw
from gateway.cli.user_input import caller_from_claims, input_bytes
from gateway.config.settings import Settings
from gateway.errors import ConfigError, ExecutionError, RpcError
from gateway.json_types import Json, JsonObject
from gateway.language.files.media_types import media_type_of


@asynccontextmanager
async def open_client(
    options: Namespace, config: str | None, hints: Console, *, about: str | None = None
) -> AsyncIterator[GatewayClient]:
    """Open a client for the server at `--url`, or load the configuration file and serve it in this process.

    Print the unavailable definitions of a file to `hints`. With `about`, print only definitions of that name.
    """
    caller = getattr(options, "caller", None)
    if options.url and caller is not None:
        raise ConfigError.at("--as", "works only with a file: a server at a URL identifies callers itself")
    if options.url:
        async with remote_client(options.url, view=getattr(options, "view", None)) as client:
            yield client
        return
    # Protect standard output during startup and shutdown too, because plugins can print at any time.
    with protect_stdout():
        settings = one_shot_settings(options, config)
        async with AsyncExitStack() as stack:
            with waiting(hints, f"Making {settings.config} ready"):
                gateway = await stack.enter_async_context(Gateway(settings, serves_one_request=True))
            _report_unavailable(gateway.status(), hints, about=about, lists_all=getattr(options, "lists_all", False))
            yield gateway.memory_client(caller_from_claims(caller, gateway.auth))


def _report_unavailable(status: JsonObject, hints: Console, *, about: str | None, lists_all: bool) -> None:
    left_out = [each for each in status["left_out"] if about in {None, each["name"]}]
    for line in left_out_lines(left_out, lists_all=lists_all, hint="`-v` lists each with the reason"):
        hints.foreign(line)
    for name, upstream in status["upstreams"].items():
        if reason := upstream.get("reason"):
            hints.foreign(f"{name} cannot be reached: {reason}")
    for name, document in status["openapi"].items():
        if document["fetched_seconds_ago"] is None:
            reason = document["problem"] or "there was no response in time"
            hints.foreign(f"openapi.{name}: {document['document']} is not fetched yet, because {reason}")


async def with_files(client: GatewayClient, params: JsonObject) -> JsonObject:
    """Replace each `tools/call` argument that names a file with the content of the file, as a data URI."""
    arguments: JsonObject = params.get("arguments", {})
    if not any(map(_names_files, arguments.values())):
        return params
    tools = await every_page(client, "tools/list", "tools")
    schema: JsonObject = next((tool["inputSchema"] for tool in tools if tool["name"] == params["name"]), {})
    members = schema.get("properties", {})
    read = {name: _read(name, value, members.get(name, {})) for name, value in arguments.items()}
    return {**params, "arguments": read}


def _names_files(value: Json) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, str) and item.startswith("@") for item in value)
    return isinstance(value, str) and value.startswith("@")


def _read(name: str, value: Json, schema: JsonObject) -> Json:
    if not _names_files(value):
        return value
    if _is_file(schema) and isinstance(value, str):
        return _data_uri(value[1:], where=f"{name}={value}")
    if _is_file(schema.get("items")):
        given = value if isinstance(value, list) else [value]
        return [_data_uri(each[1:], where=f"{name}={each}") for each in given]
    # The input is not a file. If a key is repeated, the last value is sent.
    return value[-1] if isinstance(value, list) else value


def _is_file(schema: Json) -> bool:
    return isinstance(schema, Mapping) and schema.get("contentEncoding") == "base64"


def _data_uri(path: str, *, where: str) -> str:
    data = input_bytes(path, where=where)
    return data_uri(data, media_type=media_type_of(path) or "", name="" if path == "-" else Path(path).name)


def data_uri(data: bytes, *, media_type: str, name: str) -> str:
    """Encode a file as a data URI (RFC 2397) with the file name as a parameter."""
    parameter = f";name={quote(name, safe='')}" if name else ""
    return f"data:{media_type}{parameter};base64,{base64.b64encode(data).decode()}"


async def show_explanation(  # noqa: PLR0913, PLR0917 - a request, and what every command has
    options: Namespace, config: str | None, method: str, params: JsonObject, out: Console, hints: Console
) -> int:
    if options.url is not None:
        raise ConfigError.at("--explain", "needs a file. It is not available with --url")
    try:
        with protect_stdout():
            explained = await explain(one_shot_settings(options, config), method, params, caller=options.caller)
    except ExecutionError as error:
        hints.foreign(str(error))
        return 1
    if options.raw:
        show_raw(explained.as_json(), out)
        return 0
    facts = explained.as_json()
    out.line(f"{out.styled(facts.pop('name'), 'bold')} {facts.pop('does')}")
    facts |= {key: facts.pop(key) for key in _LAST & facts.keys()}
    rows = [
        (*_WORDS.get(key, (key.replace("_", " "), _plain)), value)
        for key, value in facts.items()
        if value not in ({}, [])
    ]
    width = max(len(label) for label, _, _ in rows)
    for label, words, value in rows:
        out.fact(label, words(value), width=width)
    return 0


def _plain(value: Json) -> str:
    if isinstance(value, list):
        return " ".join(map(_plain, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _members(value: Json) -> str:
    return "\n".join(f"{name}: {_plain(member)}" for name, member in value.items())


def _seconds(value: Json) -> str:
    return f"{value:g} s"


_LAST: Final = frozenset({"confined_by"})
_WORDS: Final[Mapping[str, tuple[str, Callable[[Json], str]]]] = {
    "arguments": ("arguments", _members),
    "from_caller": ("from the caller", _members),
    "confirm": ("asks first", _plain),
    "argv": ("command", shlex.join),
    "headers": ("headers", _members),
    "timeout_seconds": ("timeout", _seconds),
    "cache_seconds": ("cached for", _seconds),
    "confined_by": ("confined by", shlex.join),
}


async def explain(settings: Settings, method: str, params: JsonObject, *, caller: str | None = None) -> Explained:
    """Return how a `tools/call`, `resources/read` or `prompts/get` request would run, without running it.

    If the request would fail before it runs, raise ExecutionError with the message that the caller would receive.
    """
    explained: list[Explained] = []
    async with asked_sources(settings) as sources:
        with dry_run(settings, sources=sources) as dry:
            identity = caller_from_claims(caller, dry.loaded.document.auth)
            offered = explaining(dry.catalog, explained.append)
            client = dry.client(offered, capabilities=EVERY_CAPABILITY, identity=identity)
            try:
                given = await with_files(client, params) if method == "tools/call" else params
                result = await client.request(method, given)
            except RpcError as error:
                if (reason := _why_left_out(dry.catalog, params)) is None:
                    raise
                raise ExecutionError(reason) from error
    if not explained:
        # The call failed before it reached an executor. The result of the call contains the reason.
        raise ExecutionError("\n".join(block.get("text", "") for block in result.get("content", ())))
    return explained[0]


def _why_left_out(catalog: Catalog, params: JsonObject) -> str | None:
    asked = params.get("name") or params["uri"].partition(":")[0]
    return next((str(each) for each in catalog.left_out if each.name == asked), None)
