"""A legacy MCP server over stdio that asks for roots once it is initialized, and whenever they change."""

import json
import sys
from typing import Any

known = "none"


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "rooted", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": "where", "inputSchema": {"type": "object"}}]}
    return {"content": [{"type": "text", "text": known}]} if method == "tools/call" else {}


for line in sys.stdin:
    message = json.loads(line)
    match message:
        case {"method": "notifications/initialized" | "notifications/roots/list_changed"}:
            say({"id": "roots", "method": "roots/list"})
        case {"id": "roots", "result": {"roots": roots}}:
            known = roots[0]["uri"]
        case {"method": "server/discover", "id": request_id}:
            say({"id": request_id, "error": {"code": -32601, "message": "unknown"}})
        case {"method": str(method), "id": request_id}:
            say({"id": request_id, "result": answer(method, message.get("params", {}))})
