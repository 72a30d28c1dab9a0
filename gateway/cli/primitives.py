"""The commands `list`, `call`, `read` and `prompt`: one request each, from this process or to a URL."""

from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from gateway.app import Gateway
from gateway.cli.arguments import KINDS
from gateway.cli.contents import Piece, pieces_of, save, show_pieces, show_raw, show_tool_result
from gateway.cli.explain import show_explanation
from gateway.cli.own_output import own_output
from gateway.cli.peer import Peer, every_page
from gateway.cli.remote import remote_peer
from gateway.cli.screen import Screen, say
from gateway.cli.settings import one_shot_settings
from gateway.cli.words import arguments_of, refusal, split_config
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject


async def list_primitives(options: Namespace, out: Screen, hints: Screen) -> int:
    config, kinds = split_config(options.words, url=options.url)
    for kind in kinds:
        if kind not in KINDS:
            raise refusal(kind, f"expected one of {', '.join(KINDS)}")
    async with _peer(options, config, hints) as peer:
        lists = {kind: await _listed(peer, kind) for kind in kinds or KINDS}
    if options.json:
        show_raw(lists, out)
        return 0
    for kind, items in lists.items():
        if items and len(lists) > 1:
            out.line(out.styled(kind, "dim"))
        if items:
            out.table((_ROWS[kind](item) for item in items), style="cyan")
    if not any(lists.values()):
        hints.line("nothing is on offer")
    return 0


async def call(options: Namespace, out: Screen, hints: Screen) -> int:
    config, words = split_config(options.words, url=options.url, needs_name=True)
    name, *pairs = _named(words, "TOOL")
    params = {"name": name, "arguments": arguments_of(pairs, json=options.json), "_meta": _WITH_LOG_MESSAGES}
    if options.explain:
        return await show_explanation(options, config, "tools/call", params, out, hints)

    async def show(notification: JsonObject) -> None:
        _show_notification(notification, hints)

    async with _peer(options, config, hints, about=name) as peer:
        result = await peer.request("tools/call", params, on_notification=show)
    failed = result.get("isError") is True
    if options.raw:
        show_raw(result, out)
    elif failed:
        show_tool_result(result, out=hints, hints=hints)
    elif options.output is not None:
        save(pieces_of(result["content"]), options.output, hints=hints)
    else:
        show_tool_result(result, out=out, hints=hints)
    return 1 if failed else 0


async def read(options: Namespace, out: Screen, hints: Screen) -> int:
    match options.words:
        case [uri]:
            config = None
        case [config, uri] if options.url is None:
            pass
        case _:
            raise refusal(" ".join(options.words), "expected one URI, with CONFIG or --url before it")
    if options.explain:
        return await show_explanation(options, config, "resources/read", {"uri": uri}, out, hints)
    async with _peer(options, config, hints, about=uri.partition(":")[0]) as peer:
        result = await peer.request("resources/read", {"uri": uri})
    _show(result, pieces_of(result["contents"]), options, out, hints)
    return 0


async def prompt(options: Namespace, out: Screen, hints: Screen) -> int:
    config, words = split_config(options.words, url=options.url, needs_name=True)
    name, *pairs = _named(words, "NAME")
    params = {"name": name, "arguments": arguments_of(pairs)}
    if options.explain:
        return await show_explanation(options, config, "prompts/get", params, out, hints)
    async with _peer(options, config, hints, about=name) as peer:
        result = await peer.request("prompts/get", params)
    if options.raw or options.output is not None:
        _show(result, pieces_of(message["content"] for message in result["messages"]), options, out, hints)
        return 0
    for message in result["messages"]:
        out.line(out.styled(f"{message['role']}:", "bold"))
        show_pieces(pieces_of([message["content"]]), out=out, hints=hints)
    return 0


_WITH_LOG_MESSAGES: Final[JsonObject] = {"io.modelcontextprotocol/logLevel": "info"}


def _peer(
    options: Namespace, config: str | None, hints: Screen, *, about: str | None = None
) -> AbstractAsyncContextManager[Peer]:
    return remote_peer(options.url) if options.url else _local_peer(options, config, hints, about=about)


@asynccontextmanager
async def _local_peer(
    options: Namespace, config: str | None, hints: Screen, *, about: str | None
) -> AsyncIterator[Peer]:
    """Serve the file in this process, once it was said which definitions are not on offer here: all, or `about` one.

    A server says that to its operators alone.
    """
    with own_output():
        async with Gateway(one_shot_settings(options, config)) as gateway:
            for each in gateway.status()["left_out"]:
                if about in {None, each["name"]}:
                    hints.line(f"{each['kind']}.{each['name']} is not on offer here: {each['reason']}")
            yield gateway.memory_client()


def _named(words: list[str], what: str) -> list[str]:
    if not words:
        raise refusal(what, "is missing")
    return words


def _show(result: JsonObject, pieces: list[Piece], options: Namespace, out: Screen, hints: Screen) -> None:
    if options.raw:
        show_raw(result, out)
    elif options.output is not None:
        save(pieces, options.output, hints=hints)
    else:
        show_pieces(pieces, out=out, hints=hints)


def _show_notification(message: JsonObject, hints: Screen) -> None:
    match message:
        case {"method": "notifications/progress", "params": {"progress": progress, **rest}}:
            total = f"/{rest['total']:.15g}" if "total" in rest else ""
            hints.foreign(f"[{progress:.15g}{total}] {rest.get('message', '')}".rstrip())
        case {"method": "notifications/message", "params": {"level": level, "data": data}}:
            hints.foreign(f"{level}: {say(data)}")


_LISTS: Final = {
    "tools": ("tools/list", "tools"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
    "prompts": ("prompts/list", "prompts"),
}


async def _listed(peer: Peer, kind: str) -> list[Json]:
    try:
        return await every_page(peer, *_LISTS[kind])
    except RpcError as error:
        if error.code == ErrorCode.METHOD_NOT_FOUND:  # a server without any need not know the method
            return []
        raise


def _tool_row(tool: JsonObject) -> tuple[str, str, str]:
    schema = tool["inputSchema"]
    required = schema.get("required", [])
    inputs = [name if name in required else f"[{name}]" for name in schema.get("properties", {})]
    return tool["name"], " ".join(inputs), _about(tool)


def _prompt_row(prompt: JsonObject) -> tuple[str, str, str]:
    inputs = [
        argument["name"] if argument.get("required") else f"[{argument['name']}]"
        for argument in prompt.get("arguments", [])
    ]
    return prompt["name"], " ".join(inputs), _about(prompt)


def _about(definition: JsonObject) -> str:
    return (definition.get("description") or definition.get("title") or "").partition("\n")[0]


_ROWS: Final[Mapping[str, Callable[[JsonObject], tuple[str, str, str]]]] = {
    "tools": _tool_row,
    "resources": lambda resource: (resource["uri"], resource.get("mimeType", ""), _about(resource)),
    "templates": lambda template: (template["uriTemplate"], template.get("mimeType", ""), _about(template)),
    "prompts": _prompt_row,
}
