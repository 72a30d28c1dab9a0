"""The command `connections`, which lists the services that users sign in to, and signs the user in or out.

With `--url`, a running daemon keeps the tokens. Without `--url`, tokens are kept in the state directory, from which
`serve --stdio` reads the tokens.
"""

import asyncio
import os
import secrets
from argparse import Namespace
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from aiohttp import web

from gateway.access.identity import Subject
from gateway.cli.client.admin_api import ask_daemon
from gateway.cli.console import Console, open_in_browser
from gateway.cli.options import TOKEN_HINT, Option, add_json, add_log_level, add_option, settings_of
from gateway.cli.parser import CONFIG_AS_FIRST_WORD, Parser
from gateway.cli.results import show_raw
from gateway.cli.user_input import split_action, split_config
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import load
from gateway.config.settings import variable_of
from gateway.errors import ConfigError, ExecutionError
from gateway.events import Events
from gateway.executors.shared_services import running_services
from gateway.json_types import JsonObject
from gateway.net.authorization import compile_connection
from gateway.net.authorization_code import ServiceEntry
from gateway.net.sign_ins import LINK_SECONDS, PendingSignIn, SignInRequiredError, SignIns
from gateway.state.keys import SigningKeys
from gateway.state.state import directory_of, opened_secrets
from gateway.telemetry.logs import Logs
from gateway.upstreams.server_spec import compile_spec, sign_in_keys

_ACTIONS: Final = ("list", "sign-in", "sign-out")
_POLL_SECONDS: Final = 1.0
_COOKIE: Final = "mcp-gateway-sign-in"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Connection": "close",
}
_USER: Final = Subject("", is_operator=True)
"""The owner of the stored tokens. A server on stdio has no other user."""


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        words="[list|sign-in|sign-out] [CONFIG] [NAME]",
        summary="List the services that you can sign in to, sign in to one, or sign out.",
        epilog=f"""\
examples:
  {name}
  {name} sign-in tickets
  {name} sign-out config.yaml connections.jira
  {name} sign-in tickets --url https://tools.example.com

Without --url, tokens are stored in the state directory of the file, for `serve --stdio`.

{CONFIG_AS_FIRST_WORD}""",
    )
    arguments.add_argument("words", nargs="*", default=[], metavar="NAME", help="an upstream or connection of the file")
    add = arguments.add_group("where to sign in")
    add("--url", help=f"a running server instead of CONFIG. {TOKEN_HINT.rstrip('.')}")
    add_option(add, Option("state_dir", "DIR", "the directory for tokens"))
    add_log_level(add)
    add_json(arguments, "the response as JSON")
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    action, words = split_action(options.words, _ACTIONS)
    config, names = split_config(words, url=options.url, needs_name=action != "list")
    if len(names) > 1 or (action != "list" and not names):
        expected = "`list`, `sign-in NAME` or `sign-out NAME`" if action == "list" else "one name"
        raise ConfigError.at(" ".join(options.words), f"expected {expected}")
    async with _opened(options, config) as services:
        rows = await services.listed()
        if names:
            rows = [_named(names[0], rows)]
        if action != "list":
            await _act(services, action, str(rows[0]["entry"]), hints)
            return 0
    if options.json:
        show_raw({"connections": rows}, out)
    elif rows:
        out.table([_cells(row) for row in rows])
    else:
        hints.line("No service requires users to sign in.")
    return 0


async def _act(services: "_Daemon | _File", action: str, name: str, hints: Console) -> None:
    if action == "sign-in":
        await services.sign_in(name, hints)
        hints.line(hints.styled(f"You are signed in to {name}.", "green"))
    else:
        await services.sign_out(name)
        hints.line(f"You are signed out of {name}.")


def _named(name: str, rows: Sequence[JsonObject]) -> JsonObject:
    found = [row for row in rows if name in {row["entry"], str(row["entry"]).partition(".")[2]}]
    exact = [row for row in found if row["entry"] == name]
    if len(exact or found) != 1:
        known = ", ".join(str(row["entry"]) for row in found or rows) or "none"
        raise ConfigError.at(name, f"expected one of: {known}")
    return (exact or found)[0]


def _cells(row: JsonObject) -> list[str]:
    if not row["signed_in"]:
        return [str(row["entry"]), "not signed in", ""]
    return [str(row["entry"]), f"signed in since {row['since']}", f"scopes: {' '.join(row['scopes']) or 'none'}"]


@asynccontextmanager
async def _opened(options: Namespace, config: str | None) -> AsyncIterator["_Daemon | _File"]:
    if options.url:
        yield _Daemon(url=options.url)
        return
    settings = settings_of(options, config=config)
    directory = directory_of(settings.state_dir, config=settings.config, environ=os.environ)
    if directory is None:
        raise ConfigError.at(variable_of("state_dir"), "must be a directory, because tokens are stored there")
    if settings.store_url() is not None:
        raise ConfigError.at(
            variable_of("store"),
            "is set, so the tokens are in a shared store. Use `--url` with the URL of a running server",
        )
    loaded = load(settings.config)
    loaded.raise_errors()
    keys = settings.signing_keys()
    with Logs(level=settings.log_level, style=settings.log_format, mask=loaded.redactor.text):
        async with running_services() as services:
            problems = Problems(loaded.sources, redactor=loaded.redactor)
            document, auth = loaded.document, loaded.document.auth
            for name, connection in document.connections.items():
                compile_connection(
                    connection,
                    services=services,
                    redactor=loaded.redactor,
                    issuers=[] if auth is None else auth.issuers,
                    problems=problems.at("connections", name),
                )
            for name, upstream in document.upstreams.items():
                place = problems.at("upstreams", name)
                compile_spec(upstream, document=document, services=services, redactor=loaded.redactor, problems=place)
            problems.raise_errors()
            async with opened_secrets(directory, SigningKeys(keys) if keys else None) as store:
                services.sign_ins.open(store, Events())
                yield _File(sign_ins=services.sign_ins, entries=services.sign_ins.entries(sign_in_keys(document)))


class _Daemon(msgspec.Struct, frozen=True, kw_only=True):
    url: str

    async def listed(self) -> list[JsonObject]:
        rows: list[JsonObject] = (await self._ask()).get("connections", [])
        return rows

    async def sign_in(self, name: str, hints: Console) -> None:
        before = _named(name, await self.listed()).get("since")
        answer = await self._ask({"entry": name, "action": "sign_in"})
        _show_link(str(answer.get("link")), hints)
        for _ in range(int(LINK_SECONDS / _POLL_SECONDS)):
            row = _named(name, await self.listed())
            if row["signed_in"] and row.get("since") != before:
                return
            await asyncio.sleep(_POLL_SECONDS)
        raise ExecutionError("The sign-in was not completed in time")

    async def sign_out(self, name: str) -> None:
        await self._ask({"entry": name, "action": "sign_out"})

    async def _ask(self, form: Mapping[str, str] | None = None) -> JsonObject:
        return await ask_daemon(self.url, "/-/connections", form=form, needs="an API key or access token")


class _File(msgspec.Struct, frozen=True, kw_only=True):
    sign_ins: SignIns
    entries: list[ServiceEntry]

    async def listed(self) -> list[JsonObject]:
        return [await self.sign_ins.described(entry, "") for entry in self.entries]

    async def sign_in(self, name: str, hints: Console) -> None:
        entry = self._entry(name)
        pending = await self.sign_ins.pending(
            await self.sign_ins.begin(SignInRequiredError(self.sign_ins, entry, _USER))
        )
        assert pending is not None  # noqa: S101 - just created
        await _sign_in_on_loopback(self.sign_ins, pending, name=entry.name, hints=hints)

    async def sign_out(self, name: str) -> None:
        await self.sign_ins.sign_out_of(self._entry(name), "")

    def _entry(self, name: str) -> ServiceEntry:
        return next(entry for entry in self.entries if entry.name == name)


async def _sign_in_on_loopback(sign_ins: SignIns, pending: PendingSignIn, *, name: str, hints: Console) -> None:
    """Sign in through a browser, which is redirected to a loopback port of this machine (RFC 8252 §7.3).

    The first browser that opens the link receives a cookie, which is required to complete the sign-in. Requests that do
    not belong to the sign-in are rejected.
    """
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    host, url, cookie, is_open = "", "", "", False
    path = f"/sign-in/{name}"
    link = f"{path}/{secrets.token_urlsafe(32)}"

    async def answer(request: web.BaseRequest) -> web.Response:
        nonlocal is_open
        query, sent = request.query, request.cookies.get(_COOKIE, "")
        is_own = request.method == "GET" and request.host == host
        if is_own and request.path == link and (not is_open or sent == cookie):
            is_open = True
            response = web.Response(status=303, headers={**_HEADERS, "Location": url})
            response.set_cookie(_COOKIE, cookie, path=path, httponly=True, samesite="Lax")
            return response
        found = await sign_ins.returned(query.get("state", ""), sent, name=name)
        if not is_own or request.path != path or len(set(query)) < len(query) or found is None:
            return _page(400, "This response does not belong to a sign-in of this browser.")
        try:
            await sign_ins.finish(found, query)
        except ExecutionError as error:
            if not done.done():
                done.set_exception(error)
            return _page(400, "Sign-in failed. The terminal shows the reason.")
        if not done.done():
            done.set_result(None)
        return _page(200, "You are signed in. You can close this page.")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host = f"127.0.0.1:{runner.addresses[0][1]}"
        url, cookie = await sign_ins.start(pending, redirect_uri=f"http://{host}{path}")
        _show_link(f"http://{host}{link}", hints)
        async with asyncio.timeout(LINK_SECONDS):
            await done
    except TimeoutError:
        raise ExecutionError("The sign-in was not completed in time") from None
    finally:
        await runner.cleanup()


def _page(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text + "\n", headers=_HEADERS)


def _show_link(url: str, hints: Console) -> None:
    hints.line(f"Open this link to sign in:\n{url}")
    open_in_browser(url)
