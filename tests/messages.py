"""JSON-RPC messages of both eras with their header fields, and sessions over HTTP."""

from types import MappingProxyType
from typing import Final

import aiohttp

from gateway.json_types import Json, JsonObject

MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
BOTH: Final = "application/json, text/event-stream"
ENVELOPE: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def modern_request(method: str, params: JsonObject = MappingProxyType({}), *, request_id: Json = 1) -> dict[str, Json]:
    meta = {**ENVELOPE, **params.get("_meta", {})}
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": meta}}


def modern_headers(method: str, params: JsonObject, **fields: str) -> dict[str, str]:
    name = {"Mcp-Name": params["name"]} if "name" in params else {}
    standard = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **name}
    return standard | {key.replace("_", "-"): value for key, value in fields.items()}


def legacy_request(method: str, params: JsonObject = MappingProxyType({}), *, request_id: Json = 1) -> dict[str, Json]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": dict(params)}


def initialize_request(revision: str = LEGACY, **capabilities: Json) -> dict[str, Json]:
    client_info = {"name": "test", "version": "1"}
    params = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": client_info}
    return legacy_request("initialize", params, request_id=0)


async def open_session(client: aiohttp.ClientSession, url: str, revision: str = LEGACY) -> dict[str, str]:
    """Open a session, and return the header fields of its requests."""
    async with client.post(url, json=initialize_request(revision), headers={"Accept": BOTH}) as response:
        assert response.status == 200, await response.text()
        return {"Accept": BOTH, "Mcp-Session-Id": response.headers["Mcp-Session-Id"]}
