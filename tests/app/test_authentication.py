"""The section `auth` at the start and after reloads."""

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
import pytest

from gateway.app.gateway import Gateway
from gateway.cli.commands.validate import check
from gateway.config.settings import read_settings
from gateway.errors import ConfigError, Severity
from tests.authorization_server import AuthorizationServer, authorization_server
from tests.behaviour.inside import served_over_http
from tests.messages import BOTH, initialize_request, legacy_request

OLD, NEW, OPERATOR = "key-of-ci-0123456789", "next-key-of-ci-01234", "operator-key-0123456"
SECONDS: Final = 15
TOOL: Final = "tools: {hello: {description: Says hello., content: [{text: Hello.}]}}\n"


def keys(**holders: str) -> str:
    listed = "".join(f"    {name}: {{sha256: {digest(key)}}}\n" for name, key in holders.items())
    return f"auth:\n  api_keys:\n    operator: {{sha256: {digest(OPERATOR)}, scopes: ['gateway:admin']}}\n{listed}"


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def tokens_of(issuer: AuthorizationServer) -> str:
    return f"auth: {{oauth: {{issuer: '{issuer.issuer}'}}}}\n{TOOL}"


SAME: Final = f"{{sha256: {digest(OLD)}}}"


class Served:
    """A running gateway and an HTTP client."""

    def __init__(self, config: Path, gateway: Gateway, client: aiohttp.ClientSession) -> None:
        self._config: Final = config
        self._gateway: Final = gateway
        self.client: Final = client

    async def status(self, key: str | None, session_id: str | None = None) -> int:
        """Return the HTTP status of `initialize`, or of a ping in a session."""
        status, _ = await self._post(key, session_id)
        return status

    async def initialize(self, key: str | None) -> str:
        status, fields = await self._post(key, None)
        assert status == 200
        return fields["Mcp-Session-Id"]

    async def first_notification(self, key: str, session_id: str) -> str:
        """Return the method of the first message on the stream of a session."""
        fields = {"Accept": "text/event-stream", "Mcp-Session-Id": session_id, **_bearer(key)}
        async with self.client.get(self.url("/mcp"), headers=fields) as response:
            async for line in response.content:
                if line.startswith(b"data: {"):
                    return str(orjson.loads(line[6:])["method"])
        raise AssertionError("the stream ended")

    async def reload(self, text: str) -> list[str]:
        """Save the file and reload. Return the problems."""
        self._config.write_text(text)
        async with self.client.post(self.url("/-/reload"), headers=_bearer(OPERATOR)) as response:
            assert response.status in {200, 422}, await response.text()
            problems: list[str] = (await response.json())["problems"]
            return problems

    async def _post(self, key: str | None, session_id: str | None) -> tuple[int, Mapping[str, str]]:
        message: Any = initialize_request() if session_id is None else legacy_request("ping")
        fields = {"Accept": BOTH, **_bearer(key), **({} if session_id is None else {"Mcp-Session-Id": session_id})}
        async with self.client.post(self.url("/mcp"), json=message, headers=fields) as response:
            await response.read()
        if session_id is None and response.status == 200:
            done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self.client.post(
                self.url("/mcp"), json=done, headers={**fields, "Mcp-Session-Id": response.headers["Mcp-Session-Id"]}
            )
        return response.status, response.headers

    def url(self, path: str) -> str:
        assert self._gateway.url is not None
        return self._gateway.url.removesuffix("/mcp") + path


def _bearer(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}


@asynccontextmanager
async def serving(folder: Path, text: str, **settings: Any) -> AsyncIterator[Served]:
    async with asyncio.timeout(SECONDS), served_over_http(folder, text, **settings) as (gateway, client):
        yield Served(folder / "config.yaml", gateway, client)


def problems_of(folder: Path, text: str, **settings: Any) -> list[str]:
    """Return the messages of `validate`."""
    (folder / "config.yaml").write_text(text)
    try:
        _, found = check(read_settings({"config": folder / "config.yaml", **settings}))
    except ConfigError as error:
        found = error.problems
    return [f"{problem.severity}: {problem.path}: {problem.message}" for problem in found]


async def test_reload_that_adds_or_removes_a_key_only_affects_its_holder(tmp_path: Path) -> None:
    async with serving(tmp_path, keys(ci=OLD) + TOOL) as served:
        mine, theirs = await served.initialize(OPERATOR), await served.initialize(OLD)
        assert await served.status(NEW) == 401
        assert await served.reload(keys(other=NEW) + TOOL) == []
        assert await served.status(NEW) == 200
        assert await served.status(OLD, theirs) == 401
        assert await served.status(OPERATOR, mine) == 200
        assert await served.reload(keys(ci=OLD) + TOOL) == []
        assert await served.status(OLD, theirs) == 404  # the session has ended, so the key needs a new one


async def test_added_scope_announces_the_tool_list(tmp_path: Path) -> None:
    tools = "tools: {write: {description: Writes., access: {scopes: [write]}, content: [{text: Written.}]}}\n"
    async with serving(tmp_path, keys(ci=OLD) + tools) as served:
        session_id = await served.initialize(OLD)
        assert await served.reload(keys(ci=OLD).replace(digest(OLD), f"{digest(OLD)}, scopes: [write]") + tools) == []
        assert await served.first_notification(OLD, session_id) == "notifications/tools/list_changed"


async def test_invalid_file_changes_no_credentials(tmp_path: Path) -> None:
    async with serving(tmp_path, keys(ci=OLD) + TOOL) as served:
        session_id = await served.initialize(OLD)
        [problem] = await served.reload(f"auth: {{api_keys: {{ci: {{sha256: {digest(OLD)[1:]}}}}}}}\n{TOOL}")
        assert "auth.api_keys.ci.sha256" in problem
        assert await served.status(OLD, session_id) == 200


@pytest.mark.parametrize(
    ("listen", "settings"),
    [
        ("", {"http": "0.0.0.0:0"}),
        ("", {"http": "0.0.0.0:0", "allow_anonymous": True}),
        ("listen: {public_url: 'https://tools.example.com'}\n", {}),
    ],
)
async def test_reload_cannot_remove_authentication_from_a_reachable_listener(
    tmp_path: Path, listen: str, settings: dict[str, Any]
) -> None:
    async with serving(tmp_path, listen + keys(ci=OLD) + TOOL, **settings) as served:
        session_id = await served.initialize(OLD)
        [problem] = await served.reload(listen + TOOL)
        assert "`auth` was removed" in problem
        assert await served.status(None) == 401
        assert await served.status(OLD, session_id) == 200
        assert await served.reload(listen + keys(ci=OLD) + TOOL) == []


async def test_auth_section_can_change_on_loopback(tmp_path: Path) -> None:
    async with serving(tmp_path, TOOL) as served:
        anybodys = await served.initialize(None)
        assert await served.reload(keys(ci=OLD) + TOOL) == []
        assert await served.status(None, anybodys) == 401
        assert await served.status(OLD, anybodys) == 404
        mine = await served.initialize(OLD)
        assert await served.reload(TOOL) == []
        assert await served.status(None, mine) == 404
        assert await served.status(None) == 200


async def test_token_audience_is_the_listening_address(tmp_path: Path) -> None:
    async with authorization_server() as issuer, serving(tmp_path, tokens_of(issuer)) as served:
        here = served.url("/mcp")
        for audience in (here, here.replace("127.0.0.1", "localhost"), served.url("/sse")):
            assert await served.status(issuer.token(audience)) == 200
        for audience in (served.url("/other"), "http://127.0.0.1/mcp", here.replace("http", "https")):
            assert await served.status(issuer.token(audience)) == 401


async def test_token_audience_is_the_public_url(tmp_path: Path) -> None:
    public = "listen: {public_url: 'https://tools.example.com/ops/'}\n"
    async with authorization_server() as issuer, serving(tmp_path, public + tokens_of(issuer)) as served:
        assert await served.status(issuer.token("https://tools.example.com/ops/mcp")) == 200
        assert await served.status(issuer.token(served.url("/mcp"))) == 401


async def test_tokens_of_several_issuers_and_for_several_audiences_are_accepted(tmp_path: Path) -> None:
    async with authorization_server() as one, authorization_server() as two, authorization_server() as other:
        both = f"['{one.issuer}', '{two.issuer}']"
        text = f"auth: {{oauth: {{issuer: {both}, audience: ['https://a.example.com', b]}}, {{operator}}}}\n{TOOL}"
        text = text.replace("{operator}", f"api_keys: {{operator: {{secret: {OPERATOR}, scopes: ['gateway:admin']}}}}")
        async with serving(tmp_path, text) as served:
            for issuer, audience in ((one, "https://a.example.com/"), (two, "b"), (one, "b"), (two, ["x", "b"])):
                assert await served.status(issuer.token(audience)) == 200
            session = await served.initialize(two.token("b"))
            assert await served.status(one.token("b"), session) == 404
            assert await served.status(two.token("c")) == 401
            assert await served.status(other.token("b")) == 401
            assert await served.status(two.token("b", iss=one.issuer)) == 401
            assert await served.status(two.token("b", iss=["x"])) == 401
            async with served.client.get(served.url("/.well-known/oauth-protected-resource/mcp")) as response:
                assert (await response.json())["authorization_servers"] == [one.issuer, two.issuer]
            assert await served.reload(text.replace(both, one.issuer)) == []
            assert await served.status(two.token("b")) == 401
            assert await served.status(one.token("b")) == 200


def test_validate_warns_of_an_address_that_serve_rejects(tmp_path: Path) -> None:
    text = f"listen: {{http: ':8000', admin: '[::]:9000'}}\n{TOOL}"
    warnings = problems_of(tmp_path, text)
    assert [warning.split(": ")[1] for warning in warnings] == ["listen.http", "listen.admin"]
    assert all(warning.startswith(Severity.WARNING) for warning in warnings)
    assert all("--allow-anonymous" in warning for warning in warnings)
    assert problems_of(tmp_path, text, allow_anonymous=True) == []
    assert problems_of(tmp_path, text + keys(ci=OLD)) == []
    assert [each.split(": ")[1] for each in problems_of(tmp_path, text, http="127.0.0.1:0")] == ["listen.admin"]
    assert problems_of(tmp_path, TOOL) == []


async def test_rejected_start_names_the_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"listen:\n  http: '0.0.0.0:0'\n{TOOL}")
    async with Gateway(read_settings({"config": tmp_path / "config.yaml", "log_level": "error"})) as gateway:
        with pytest.raises(ConfigError) as caught:
            await gateway.start()
    [problem] = caught.value.problems
    assert problem.location is not None
    assert (problem.path, problem.location.line, problem.location.column) == ("listen.http", 2, 9)


@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        (f"{{api_keys: {{a: {SAME}, b: {SAME}}}}}", "error: auth.api_keys.b: has the same key as `a`"),
        ("{api_keys: {a: {secret: short}}}", "warning: auth.api_keys.a.secret: has fewer than 16 characters"),
        ("{oauth: {issuer: []}}", "error: auth.oauth.issuer: needs at least 1 item"),
        ("{oauth: {issuer: 'http://idp.example.com'}}", "error: auth.oauth.issuer: must start with https://"),
        (
            "{oauth: {issuer: 'https://idp.example.com', audience_claim: client_id}}",
            "error: auth.oauth: `audience_claim` requires `audience`",
        ),
        (
            "{oauth: {issuer: 'https://idp.example.com', scopes_supported: [offline_access]}}",
            "warning: auth.oauth.scopes_supported: `offline_access` is a scope for clients",
        ),
    ],
)
def test_problems_across_keys_are_reported(tmp_path: Path, auth: str, expected: str) -> None:
    assert any(each.startswith(expected) for each in problems_of(tmp_path, f"auth: {auth}\n{TOOL}"))


def test_tokens_that_clients_cannot_obtain_are_a_warning(tmp_path: Path) -> None:
    oauth = "auth: {oauth: {issuer: 'https://idp.example.com'}}\n"
    for listen in ("http: ':8000'", "trusted_proxies: [127.0.0.1]", "allowed_hosts: [tools.example.com]"):
        found = problems_of(tmp_path, f"listen: {{{listen}}}\n{oauth}{TOOL}")
        assert any("Set `listen.public_url`" in each for each in found)
    assert problems_of(tmp_path, oauth + TOOL) == []


def test_missing_token_packages_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)  # simulates missing packages
    expected = "error: auth.oauth: needs packages that are not installed: pip install 'pyjwt[crypto]'"
    assert expected in problems_of(tmp_path, f"auth: {{oauth: {{issuer: 'https://idp.example.com'}}}}\n{TOOL}")
    assert problems_of(tmp_path, keys(ci=OLD) + TOOL) == []
