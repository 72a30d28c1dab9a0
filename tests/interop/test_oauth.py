"""The official client gets a token from a real authorization server, and an explanation for each invalid token."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.authorization_server import AuthorizationServer, Key, authorization_server
from tests.interop.conftest import Cell, serving
from tests.interop.official_clients import OfficialClients
from tests.requirements import requirement

pytestmark = pytest.mark.build

CELLS: Final = [
    Cell(line=1, binding="http", revision="2025-11-25"),
    Cell(line=2, binding="http", revision="2026-07-28"),
    Cell(line=2, binding="http", mode="legacy", revision="2025-11-25"),
]
FILE: Final = """
auth:
  oauth: {issuer: "%s", required_scopes: [tools.use], scopes_supported: [tools.use, tools.write]}
tools:
  hello: {content: [{text: Hello.}]}
  write: {access: {scopes: [tools.write], visible: true}, content: [{text: Written.}]}
  secret: {access: {scopes: [tools.secret]}, content: [{text: Secret.}]}
"""
PATH: Final = "/.well-known/oauth-protected-resource/mcp"

of_each_client = pytest.mark.parametrize("cell", CELLS, ids=str)


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """A server that accepts an issuer's tokens."""

    issuer: AuthorizationServer
    url: str
    clients: OfficialClients

    async def use(
        self, cell: Cell, *, tools: list[str], tokens: Sequence[str | None] = (None,), signs_in: bool = False
    ) -> list[dict[str, Any]]:
        """Return the client's result with each token."""
        plan = {"url": self.url, "mode": cell.mode, "tools": tools, "tokens": list(tokens), "signs_in": signs_in}
        seen: list[dict[str, Any]] = await self.clients.carry_out(cell.line, "oauth", plan)
        return seen

    @property
    def challenge(self) -> str:
        return f'scope="tools.use", resource_metadata="{self.url.removesuffix("/mcp")}{PATH}"'


@asynccontextmanager
async def guarded(clients: OfficialClients, folder: Path) -> AsyncIterator[Guarded]:
    async with authorization_server("RS256") as issuer:
        config = folder / "config.yaml"
        config.write_text(FILE % issuer.issuer)
        async with serving(config) as address:
            yield Guarded(issuer=issuer, url=f"http://{address}/mcp", clients=clients)


@of_each_client
@requirement("authorization/challenge", "authorization/metadata", "authorization/insufficient-scope")
async def test_client_signs_in_and_requests_more_scopes_for_a_tool(
    clients: OfficialClients, cell: Cell, tmp_path: Path
) -> None:
    async with guarded(clients, tmp_path) as server:
        [seen] = await server.use(cell, tools=["hello", "write", "hello"], signs_in=True)
        assert seen.get("failed") is None, seen
        assert seen["revision"] == cell.revision
        assert seen["listed"] == ["hello", "write"]
        assert seen["texts"] == {"hello": "Hello.", "write": "Written."}
        first, last = server.issuer.granted[0], server.issuer.granted[-1]
        assert first == "tools.use"
        assert set(last.split()) == {"tools.use", "tools.write"}
        statuses = [status for status, _ in seen["challenges"]]
        assert (statuses[0], statuses[-1]) == (401, 403)
        assert seen["challenges"][0][1] == f"Bearer {server.challenge}"
        for word in ('error="insufficient_scope"', 'scope="tools.use tools.write"', "error_description=", PATH):
            assert word in seen["challenges"][-1][1]


@of_each_client
@requirement("authorization/every-request")
async def test_valid_token_is_sufficient(clients: OfficialClients, cell: Cell, tmp_path: Path) -> None:
    async with guarded(clients, tmp_path) as server:
        token = server.issuer.token(server.url, scope="tools.use tools.secret")
        [seen] = await server.use(cell, tools=["hello", "secret"], tokens=[token])
        assert seen.get("failed") is None, seen
        assert seen["listed"] == ["hello", "write", "secret"]
        assert seen["challenges"] == []


@of_each_client
@requirement("authorization/challenge", "authorization/audience")
async def test_invalid_token_is_rejected_with_the_reason(clients: OfficialClients, cell: Cell, tmp_path: Path) -> None:
    async with guarded(clients, tmp_path) as server:
        issuer, us = server.issuer, server.url
        past = int(time.time()) - 600
        refusals = {
            None: (401, None),
            issuer.token(us, scope="tools.use", exp=past): (401, "The token has expired"),
            issuer.token("https://other.example.com/mcp", scope="tools.use"): (
                401,
                "The token was issued for another server",
            ),
            issuer.token(us, scope="tools.use", iss="https://idp.example.com"): (
                401,
                "The token was issued by a different authorization server",
            ),
            issuer.token(us, scope="tools.use", key=Key.make("RS256", kid=issuer.keys[0].kid)): (401, "The signature"),
            issuer.token(us, scope="tools.write"): (403, "This request requires the scope tools.use"),
        }
        tries = await server.use(cell, tools=["hello"], tokens=list(refusals))
        for seen, (status, description) in zip(tries, refusals.values(), strict=True):
            assert seen["failed"], seen
            assert {each for each, _ in seen["challenges"]} == {status}
            for _, challenge in seen["challenges"]:
                assert server.challenge in challenge
                assert (f'error_description="{description}' in challenge) if description else "error" not in challenge


@requirement("authorization/metadata")
async def test_sse_client_signs_in_for_its_url(clients: OfficialClients, tmp_path: Path) -> None:
    async with guarded(clients, tmp_path) as server:
        older = replace(server, url=server.url.replace("/mcp", "/sse"))
        cell = Cell(line=1, binding="sse", revision="2025-11-25")
        [seen] = await older.use(cell, tools=["hello"], signs_in=True)
        assert seen.get("failed") is None, seen
        assert seen["texts"] == {"hello": "Hello."}
        assert server.issuer.granted == ["tools.use"]
