"""Sends the request of `list`, `call`, `read` or `prompt`: to a gateway in this process, or to a URL."""

from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from gateway.app.gateway import Gateway
from gateway.command_line.client import Client
from gateway.command_line.console import Console
from gateway.command_line.options import one_shot_settings
from gateway.command_line.positional import refusal
from gateway.command_line.protect_stdout import protect_stdout
from gateway.command_line.remote import remote_client
from gateway.command_line.render import Piece, save, show_pieces, show_raw
from gateway.command_line.waiting import waiting
from gateway.json_types import JsonObject


def open_client(
    options: Namespace, config: str | None, hints: Console, *, about: str | None = None
) -> AbstractAsyncContextManager[Client]:
    """A client of the server at `--url`, and of its `--view`; without a URL, of the file, which is served here."""
    if options.url:
        return remote_client(options.url, view=getattr(options, "view", None))
    return _local_client(options, config, hints, about=about)


@asynccontextmanager
async def _local_client(
    options: Namespace, config: str | None, hints: Console, *, about: str | None
) -> AsyncIterator[Client]:
    """Serve the file in this process, without a listener.

    Definitions that this machine cannot serve are named on `hints`: all of them, or the one called `about`. A server
    tells its operators alone which those are; here the caller is one.
    """
    with protect_stdout():
        settings = one_shot_settings(options, config)
        async with AsyncExitStack() as stack:
            with waiting(hints, f"Making {settings.config} ready"):
                gateway = await stack.enter_async_context(Gateway(settings, serves_one_request=True))
            for each in gateway.status()["left_out"]:
                if about in {None, each["name"]}:
                    hints.line(f"{each['kind']}.{each['name']} is not on offer here: {each['reason']}")
            for name, upstream in gateway.status()["upstreams"].items():
                if reason := upstream.get("reason"):
                    hints.line(f"{name} cannot be reached: {reason}")
            yield gateway.memory_client()


def name_and_pairs(words: list[str], what: str) -> list[str]:
    """The words as they are, the first of which names the tool or prompt.

    Raises:
        ConfigError: there are none.
    """
    if not words:
        raise refusal(what, "is missing")
    return words


def show_contents(result: JsonObject, pieces: list[Piece], options: Namespace, out: Console, hints: Console) -> None:
    """Print a result, or save its contents, as `--raw` and `--output` say."""
    if options.raw:
        show_raw(result, out)
    elif options.output is not None:
        save(pieces, options.output, hints=hints)
    else:
        show_pieces(pieces, out=out, hints=hints)
