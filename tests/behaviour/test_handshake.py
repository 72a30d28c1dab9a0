"""Version negotiation: `initialize` in the legacy era, `server/discover` in the modern one."""

from typing import Final

import orjson
import pytest

from gateway.json_types import Json
from tests.behaviour.cells import BINDINGS, LATEST, LATEST_LEGACY, STDIO, Cell, cells, since
from tests.behaviour.client import Client, initialize_params
from tests.behaviour.conftest import NewClient
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")

LEGACY_METHODS: Final = ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
IMPLEMENTATION: Final = {
    "name": "2024-11-05",
    "version": "2024-11-05",
    "title": "2025-06-18",
    "description": "2025-11-25",
    "icons": "2025-11-25",
    "websiteUrl": "2025-11-25",
}
CAPABILITIES: Final = {
    "tools": "2024-11-05",
    "resources": "2024-11-05",
    "prompts": "2024-11-05",
    "logging": "2024-11-05",
    "completions": "2025-03-26",
    "extensions": "2026-07-28",
}


@cells(until=LATEST_LEGACY)
@requirement("lifecycle/echo-version", "lifecycle/server-info", "lifecycle/capabilities")
async def test_known_revision_is_negotiated(client: Client) -> None:
    revision = client.cell.revision
    said = client.initialized
    assert said["protocolVersion"] == revision
    assert said["serverInfo"].keys() == since(IMPLEMENTATION, revision)
    assert said["capabilities"].keys() == since(CAPABILITIES, revision)
    assert said["instructions"] == "Knock first."
    assert "_meta" not in said


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("requested", ["2026-07-28", "2099-01-01", "2024-10-07", "1.0", ""])
@requirement("lifecycle/other-version")
async def test_unknown_revision_gets_the_latest_legacy_revision(
    binding: str, requested: str, new_client: NewClient
) -> None:
    client = await new_client(Cell(binding=binding, revision=LATEST_LEGACY), initializes=False)
    answer = await client.ask("initialize", initialize_params(requested))
    assert answer.result["protocolVersion"] == LATEST_LEGACY


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"protocolVersion": 3},
        {"protocolVersion": None},
        {"protocolVersion": LATEST_LEGACY, "capabilities": [1]},
        {"protocolVersion": LATEST_LEGACY, "clientInfo": "me"},
    ],
)
@requirement("lifecycle/malformed-initialize")
async def test_malformed_initialize_opens_no_session(
    binding: str, params: dict[str, Json], new_client: NewClient
) -> None:
    client = await new_client(Cell(binding=binding, revision=LATEST_LEGACY), initializes=False)
    assert (await client.ask("initialize", params)).error["code"] == -32602
    assert (await client.ask("tools/list")).error["code"] == -32600
    assert (await client.ask("initialize", initialize_params(LATEST_LEGACY))).result


@cells(until=LATEST_LEGACY)
@requirement("lifecycle/initialize-once")
async def test_session_is_initialized_once(client: Client) -> None:
    answer = await client.ask("initialize", initialize_params(client.cell.revision))
    assert answer.error["code"] == -32600
    assert answer.status in {None, 400}
    assert (await client.ask("ping")).result == {}


@cells(until=LATEST_LEGACY)
@requirement("lifecycle/initialize-first")
async def test_only_ping_is_accepted_before_the_handshake(cell: Cell, new_client: NewClient) -> None:
    client = await new_client(cell, initializes=False)
    for method in ("tools/list", "logging/setLevel", "no/such"):
        answer = await client.ask(method)
        assert answer.error["code"] == -32600, method
        assert answer.status in {None, 400}
    if not cell.is_http:
        await client.notify("notifications/cancelled", {"requestId": 1})
        assert (await client.ask("ping")).result == {}
    assert (await client.ask("initialize", initialize_params(cell.revision))).result


@cells(until=LATEST_LEGACY)
@requirement("lifecycle/ping", "base/empty-result")
async def test_ping_returns_an_empty_result(client: Client) -> None:
    assert (await client.ask("ping")).message["result"] == {}


@cells(until=LATEST_LEGACY)
@requirement("base/unknown-method", "versioning/modern-methods-alone")
async def test_methods_of_the_modern_era_are_unknown_in_a_session(client: Client) -> None:
    for method in ("server/discover", "subscriptions/listen", "no/such/method"):
        answer = await client.ask(method)
        assert answer.error["code"] == -32601
        assert answer.status in {None, 200}


@cells(since=LATEST)
@requirement("discover/result", "base/server-info-in-meta", "caching/hints")
async def test_discover_returns_capabilities_and_revisions(client: Client) -> None:
    found = (await client.ask("server/discover")).result
    assert found["supportedVersions"] == [LATEST]
    assert found["capabilities"].keys() == CAPABILITIES.keys()
    assert found["instructions"] == "Knock first."
    assert found["resultType"] == "complete"
    assert (found["ttlMs"], found["cacheScope"]) == (7000, "public")
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"].keys() == IMPLEMENTATION.keys()


@cells(since=LATEST)
@requirement("versioning/legacy-methods-gone", "base/unknown-method")
async def test_methods_of_the_legacy_era_are_unknown_with_an_envelope(client: Client) -> None:
    for method in (*LEGACY_METHODS, "tasks/list", "tasks/result", "no/such/method"):
        answer = await client.ask(method)
        assert answer.error["code"] == -32601, method
        assert answer.status in {None, 404}


@cells(since=LATEST)
@pytest.mark.parametrize("version", ["2025-11-25", "v999.0.0", "2099-01-01"])
@requirement("versioning/unsupported")
async def test_unsupported_version_error_lists_the_supported_ones(client: Client, version: str) -> None:
    client.envelope["io.modelcontextprotocol/protocolVersion"] = version
    client.headers["MCP-Protocol-Version"] = version
    answer = await client.ask("server/discover")
    assert answer.error["code"] == -32022
    assert answer.error["data"] == {"supported": [LATEST], "requested": version}
    assert answer.status in {None, 400}


@cells(since=LATEST)
@pytest.mark.parametrize(
    "fields",
    [
        {"io.modelcontextprotocol/clientCapabilities": None},
        {"io.modelcontextprotocol/clientCapabilities": []},
        {"io.modelcontextprotocol/clientInfo": "me"},
        {"io.modelcontextprotocol/logLevel": "loud"},
        {"io.modelcontextprotocol/protocolVersion": 3},
    ],
    ids=str,
)
@requirement("base/envelope")
async def test_malformed_envelope_is_invalid_params(client: Client, fields: dict[str, Json]) -> None:
    answer = await client.ask("tools/list", {"_meta": fields})
    assert answer.error["code"] == -32602
    assert answer.status in {None, 400}


@cells(since=LATEST)
@requirement("base/envelope")
async def test_envelope_requires_version_and_capabilities(client: Client) -> None:
    for key in ("io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"):
        kept = client.envelope.pop(key)
        answer = await client.ask("server/discover")
        assert answer.error["code"] == -32602
        assert answer.status in {None, 400}
        client.envelope[key] = kept


@cells(since=LATEST)
@requirement("base/client-info-optional")
async def test_client_info_is_optional(client: Client) -> None:
    del client.envelope["io.modelcontextprotocol/clientInfo"]
    client.envelope["example.com/unknown"] = {"anything": 1}
    assert (await client.ask("server/discover")).result


@requirement("versioning/both-eras")
@cells(until=LATEST_LEGACY, binding=STDIO)
async def test_process_serves_both_eras(cell: Cell, new_client: NewClient) -> None:
    client = await new_client(cell)
    envelope = {
        "io.modelcontextprotocol/protocolVersion": LATEST,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    message = {"jsonrpc": "2.0", "id": "modern", "method": "tools/list", "params": {"_meta": envelope}}
    modern = (await client.wire.raw(orjson.dumps(message))).result
    assert modern["resultType"] == "complete"
    assert "resultType" not in (await client.ask("tools/list")).result
