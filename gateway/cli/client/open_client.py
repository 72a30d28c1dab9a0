"""Opens the client that the commands `list`, `call`, `read` and `prompt` use."""

from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from gateway.app.gateway import Gateway
from gateway.cli.client.remote import GatewayClient, remote_client
from gateway.cli.console import Console, left_out_lines, protect_stdout, waiting
from gateway.cli.options import one_shot_settings
from gateway.cli.user_input import caller_from_claims
from gateway.errors import ConfigError
from gateway.json_types import JsonObject


@asynccontextmanager
async def open_client(
    options: Namespace, config: str | None, hints: Console, *, about: str | None = None
) -> AsyncIterator[GatewayClient]:
    """Open a client for the server at `--url`, or serve the file in this process and open a client for it.

    List the file's unavailable definitions on `hints`. With `about`, list only unavailable definitions of that name.
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
