"""`mcp-gateway connections`: sign-in on the command line, for servers on stdio and for running daemons."""

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from tests.e2e.daemon import call, serving, text_of
from tests.fork_server import FORKED
from tests.messages import modern_request
from tests.sign_in_server import Provider, provider

SECONDS: Final = 60
ANN: Final = "key-of-ann-0123456789"
BROWSER: Final = """\
import sys, urllib.request
opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
opener.open(sys.argv[1]).read()
"""


@pytest.fixture
async def idp() -> AsyncIterator[Provider]:
    async with asyncio.timeout(SECONDS), provider() as found:
        yield found


@dataclass
class Terminal:
    """A directory with a file, in which commands run."""

    folder: Path
    env: dict[str, str]

    @property
    def config(self) -> Path:
        return self.folder / "config.yaml"

    @asynccontextmanager
    async def started(self, *words: str, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            FORKED, "connections", *words, stdout=PIPE, stderr=PIPE, cwd=self.folder, env=self.env | env
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def run(self, *words: str, **env: str) -> tuple[int | None, str, str]:
        async with self.started(*words, **env) as process:
            out, hints = await process.communicate()
        return process.returncode, out.decode(), hints.decode()

    async def rows(self, *words: str, **env: str) -> list[dict[str, Any]]:
        code, out, hints = await self.run("list", *words, "--json", **env)
        assert code == 0, hints
        found: list[dict[str, Any]] = json.loads(out)["connections"]
        return found


@pytest.fixture
def terminal(tmp_path: Path, idp: Provider) -> Terminal:
    code = {"issuer": idp.issuer, "scopes": ["read"]}
    connection = {"base_url": f"{idp.issuer}/api", "allow_private": True, "auth": {"authorization_code": code}}
    tool = {"description": "Who am I?", "http": {"connection": "api", "url": "/whoami"}}
    file = {"connections": {"api": connection}, "tools": {"whoami": tool}}
    (tmp_path / "config.yaml").write_text(json.dumps(file))
    (tmp_path / "browser.py").write_text(BROWSER)
    env = {name: value for name, value in os.environ.items() if not name.startswith("MCP_GATEWAY_")}
    env = {name: value for name, value in env.items() if name not in {"BROWSER", "DISPLAY", "WAYLAND_DISPLAY"}}
    return Terminal(tmp_path, {**env, "MCP_GATEWAY_STATE_DIR": str(tmp_path / "state")})


def new_browser() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


async def link_of(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    while line := (await process.stderr.readline()).decode():
        if line.startswith("http"):
            return line.strip()
    raise AssertionError("no link")


async def whoami(terminal: Terminal) -> str:
    flags = ("--stdio", "--state-dir", str(terminal.folder / "state"))
    async with serving(terminal.config, *flags) as daemon:
        return text_of(await daemon.ask(call("whoami")))


async def test_server_on_stdio_uses_the_account_of_the_command(terminal: Terminal, idp: Provider) -> None:
    assert "mcp-gateway connections sign-in api" in await whoami(terminal)
    browser = f"{sys.executable} {terminal.folder / 'browser.py'} %s"
    code, _, hints = await terminal.run("sign-in", "api", BROWSER=browser)
    assert (code, "You are signed in to connections.api." in hints) == (0, True)
    assert idp.asked[0]["code_challenge_method"] == "S256"
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/sign-in/connections\.api", idp.asked[0]["redirect_uri"])
    assert await whoami(terminal) == "ann"
    [row] = await terminal.rows()
    assert (row["entry"], row["signed_in"], row["scopes"]) == ("connections.api", True, ["read"])
    code, _, hints = await terminal.run("sign-out", "connections.api")
    assert (code, "signed out of connections.api" in hints) == (0, True)
    assert [token[:3] for token in idp.revoked] == ["rt-"]
    assert "mcp-gateway connections sign-in api" in await whoami(terminal)
    files = b"".join(file.read_bytes() for file in (terminal.folder / "state").rglob("*") if file.is_file())
    assert not [secret for secret in idp.issued if secret.encode() in files]


async def test_running_server_on_stdio_uses_the_new_account(terminal: Terminal) -> None:
    flags = ("--stdio", "--state-dir", str(terminal.folder / "state"))
    async with serving(terminal.config, *flags) as daemon:
        assert "mcp-gateway connections sign-in api" in text_of(await daemon.ask(call("whoami")))
        async with terminal.started("sign-in", "api") as process, new_browser() as browser:
            async with browser.get(await link_of(process)) as page:
                assert (page.status, "You are signed in" in await page.text()) == (200, True)
            assert await process.wait() == 0
        assert text_of(await daemon.ask(call("whoami"))) == "ann"


async def test_unwritable_store_is_an_error(terminal: Terminal) -> None:
    secrets = terminal.folder / "state" / "secrets.sqlite"
    secrets.mkdir(parents=True)
    code, _, hints = await terminal.run("list")
    assert (code, f"cannot be used: {secrets}" in hints) == (2, True), hints
    code, _, hints = await terminal.run("list", MCP_GATEWAY_STATE_DIR=str(terminal.config / "below"))
    assert (code, "cannot be used: " in hints) == (2, True), hints


async def test_second_server_of_a_state_directory_uses_the_same_account(terminal: Terminal, idp: Provider) -> None:
    flags = ("--stdio", "--state-dir", str(terminal.folder / "state"))
    other = terminal.folder / "other.yaml"
    other.write_text(json.dumps({"tools": {"hello": {"description": "Hello.", "content": "hi"}}}))
    async with serving(terminal.config, *flags) as first, serving(terminal.config, *flags) as second:
        for daemon in (first, second):
            assert "mcp-gateway connections sign-in api" in text_of(await daemon.ask(call("whoami")))
        browser = f"{sys.executable} {terminal.folder / 'browser.py'} %s"
        assert (await terminal.run("sign-in", "api", BROWSER=browser))[0] == 0
        # A server with another file does not sign users out.
        async with serving(other, *flags) as third:
            assert text_of(await third.ask(call("hello"))) == "hi"
        for daemon in (first, second):
            assert text_of(await daemon.ask(call("whoami"))) == "ann"
        assert (await terminal.run("sign-out", "api"))[0] == 0
        for daemon in (first, second):
            assert "mcp-gateway connections sign-in api" in text_of(await daemon.ask(call("whoami")))


async def test_forged_response_is_rejected_and_does_not_end_the_wait(terminal: Terminal, idp: Provider) -> None:
    async with terminal.started("sign-in", "api") as process, new_browser() as browser:
        link = await link_of(process)
        async with browser.get(link, allow_redirects=False) as response:
            query = {name: values[0] for name, values in parse_qs(urlsplit(response.headers["Location"]).query).items()}
        target, state = query["redirect_uri"], query["state"]
        origin = "http://" + urlsplit(target).netloc
        for url, headers in (
            (target, {}),
            (f"{target}?code=forged&state=forged&iss={idp.issuer}", {}),
            (f"{target}?code=forged&state={state.partition('.')[0]}.x", {}),
            (f"{target}?error=access_denied&state=forged", {}),
            (f"{target}?code=one&code=two&state={state}", {}),
            (f"{origin}/?code=forged&state={state}", {}),
            (f"{target}?code=forged&state={state}", {"Host": "evil.example.com"}),
        ):
            async with browser.get(url, headers=headers) as response:
                assert 400 <= response.status < 500, url
        async with browser.post(f"{target}?code=forged&state={state}") as response:
            assert 400 <= response.status < 500
        assert process.returncode is None
        assert not idp.grants
        async with browser.get(link) as response:
            assert response.status == 200
        assert await process.wait() == 0
    assert await whoami(terminal) == "ann"


async def test_only_the_browser_that_opened_the_link_completes_the_sign_in(terminal: Terminal, idp: Provider) -> None:
    async with terminal.started("sign-in", "api") as process, new_browser() as browser, new_browser() as other:
        link = await link_of(process)
        async with browser.get(link, allow_redirects=False) as response:
            assert (response.status, "HttpOnly" in response.headers["Set-Cookie"]) == (303, True)
            target = response.headers["Location"]
        async with other.get(link, allow_redirects=False) as response:
            assert response.status == 400  # the link was opened before
        async with other.get(target) as response:
            assert response.status == 400  # another browser with the same authorization request
        assert not idp.grants
        async with browser.get(link) as response:
            assert response.status == 200
        assert await process.wait() == 0


async def test_denied_sign_in_ends_with_the_reason(terminal: Terminal, idp: Provider) -> None:
    idp.response = {"error": "access_denied", "error_description": "not today"}
    async with terminal.started("sign-in", "api") as process, new_browser() as browser:
        async with browser.get(await link_of(process)) as response:
            assert response.status == 400
        _, hints = await process.communicate()
    assert (process.returncode, "access_denied not today" in hints.decode()) == (1, True)
    assert not idp.grants


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["sign-in"], "expected one name"),
        (["sign-in", "jira"], "expected one of: connections.api"),
        (["sign-in", "api", "--state-dir", "none"], "tokens are stored there"),
    ],
)
async def test_wrong_arguments_are_an_error(terminal: Terminal, words: list[str], reason: str) -> None:
    code, _, hints = await terminal.run(*words)
    assert (code, reason in " ".join(hints.split())) == (2, True), hints


async def test_running_daemon_is_used_with_a_key(terminal: Terminal, idp: Provider) -> None:
    file = json.loads(terminal.config.read_text()) | {"auth": {"api_keys": {"ann": {"secret": ANN}}}}
    terminal.config.write_text(json.dumps(file))
    async with serving(terminal.config, "--http", "127.0.0.1:0", "--state-dir", "none") as daemon:
        url = await daemon.url()
        code, _, hints = await terminal.run("--url", url)
        assert (code, "Set $MCP_GATEWAY_TOKEN to an API key or access token" in hints) == (1, True), hints
        key = {"MCP_GATEWAY_TOKEN": ANN}
        [row] = await terminal.rows("--url", url, **key)
        assert (row["entry"], row["signed_in"]) == ("connections.api", False)
        async with terminal.started("sign-in", "api", "--url", url, **key) as process:
            link = await link_of(process)
            assert link.startswith(url.removesuffix("/mcp") + "/-/sign-in/")
            async with new_browser() as browser, browser.post(link, data={"token": ANN}) as page:
                assert page.status == 200
            assert await process.wait() == 0
        code, out, _ = await terminal.run("list", "api", "--url", url, **key)
        assert (code, "signed in since" in out, "scopes: read" in out) == (0, True, True)
        code, _, _ = await terminal.run("sign-out", "api", "--url", url, **key)
        assert code == 0
        assert [token[:3] for token in idp.revoked] == ["rt-"]


async def test_upstream_lists_its_tools_after_the_command(terminal: Terminal, idp: Provider) -> None:
    upstream = {"url": f"{idp.issuer}/mcp", "allow_private": True, "auth": {"authorization_code": {}}}
    terminal.config.write_text(json.dumps({"upstreams": {"tickets": upstream}}))
    flags = ("--stdio", "--state-dir", str(terminal.folder / "state"))

    async def tools(daemon: Any) -> list[str]:
        return [tool["name"] for tool in (await daemon.ask(modern_request("tools/list")))["result"]["tools"]]

    async with serving(terminal.config, *flags) as daemon:
        assert await tools(daemon) == ["tickets_sign_in"]
        text = text_of(await daemon.ask(call("tickets_sign_in")))
        assert "mcp-gateway connections sign-in tickets" in text
        async with terminal.started("sign-in", "tickets") as process, new_browser() as browser:
            async with browser.get(await link_of(process)) as page:
                assert page.status == 200
            assert await process.wait() == 0
        assert "signed in to tickets" in text_of(await daemon.ask(call("tickets_sign_in")))
        for _ in range(100):
            if await tools(daemon) == ["tickets_whoami"]:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(await tools(daemon))
