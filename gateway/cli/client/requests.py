"""Opens the MCP client for `list`, `call`, `read` and `prompt`, and reads files that are passed as arguments.

If the tool's schema defines `photo` as a file, `photo=@path` sends the content of the file. For other inputs, text that
starts with `@` is sent unchanged, as in `handle=@ada`.
"""

from argparse import Namespace
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from gateway.app.gateway import Gateway
from gateway.cli.client.remote import GatewayClient, every_page, remote_client
from gateway.cli.console import Console, left_out_lines, protect_stdout
from gateway.cli.options import one_shot_settings
from gateway.cli.user_input import caller_from_claims, input_bytes
from gateway.errors import ConfigError
from gateway.json_types import Json, JsonObject
from gateway.language.files.decoding import data_uri
from gateway.language.files.media_types import media_type_of


@asynccontextmanager
async def open_client(
    options: Namespace, config: str | None, hints: Console, *, about: str | None = None
) -> AsyncIterator[GatewayClient]:
    """Open a client for the server at `--url`, or load the configuration file and serve it in this process.

    Warn about definitions in the file that are unavailable. `about` limits these warnings to one name.
    """
    caller = getattr(options, "caller", None)
    if options.url and caller is not None:
        raise ConfigError.at("--as", "requires a file, because a server at a URL identifies callers itself")
    if options.url:
        async with remote_client(options.url, view=getattr(options, "view", None)) as client:
            yield client
        return
    # Protect standard output during startup and shutdown too, because plugins can print at any time.
    with protect_stdout():
        settings = one_shot_settings(options, config)
        async with AsyncExitStack() as stack:
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
            reason = document["problem"] or "no response in time"
            hints.foreign(f"openapi.{name}: {document['document']} has not been fetched: {reason}")


async def with_files(client: GatewayClient, params: JsonObject) -> JsonObject:
    """Replace each `@path` argument of a `tools/call` request with the content of the file, as a data URI."""
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
