"""MCP servers over stdio that violate the protocol: `python odd_server.py MODE [FILE]`. Has no dependencies.

The servers are legacy, except `confused` and those with the second word `modern`.
"""

import json
import os
import sys
import time
from typing import Any

MODE = sys.argv[1]
IS_MODERN = MODE == "confused" or sys.argv[2:] == ["modern"]
TOOLS = [
    {"name": "work", "description": "Work.", "inputSchema": {"type": "object"}},
    {"name": "grow", "description": "Offer one more.", "inputSchema": {"type": "object"}},
    {"name": "die", "description": "End the process.", "inputSchema": {"type": "object"}},
]
ROOTS: list[str] = []
DECLARED: dict[str, Any] = {}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
QUESTIONS: dict[str, dict[str, Any]] = {
    "ask_form": {"message": "Who?", "requestedSchema": FORM},
    "ask_url": {"message": "Go", "mode": "url", "url": "https://example.com/", "elicitationId": "e"},
}
COMPLETE = {"method": "notifications/elicitation/complete", "params": {"elicitationId": "e"}}
REFUSED = {"fail": "tools/call", "halved": "resources/list", "refusing": "resources/subscribe"}
CONFUSED = {"resultType": "input_required", "inputRequests": [5]}
MISTYPED: dict[str, Any] = {
    "title": None,
    "description": 5,
    "annotations": {"title": 5, "readOnlyHint": "yes"},
    "icons": [{"src": 5}, "x"],
    "_meta": [],
    "inputSchema": None,
    "outputSchema": "x",
}
MALFORMED: list[Any] = [
    {"type": "text", "text": 5},
    {"type": "resource", "resource": 5},
    {"type": "resource_link"},
    {"type": "audio", "data": 5},
    {"type": "text", "text": "whole", "annotations": 5, "_meta": 5},
]
ROLES: list[Any] = [[], {}, 5, "system", None, "user"]
FIXED: dict[str, dict[str, Any]] = {
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
    "prompts/list": {"prompts": [{"name": "said"}]},
    "prompts/get": {"messages": [*({"role": role, "content": MALFORMED[-1]} for role in ROLES), {"role": "user"}]},
}
RESOURCES = (
    ["odd://shared", "odd://only", "skill://skill/SKILL.md"] if MODE in {"nameless", "readable", "refusing"} else []
)


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


def asked(question: dict[str, Any]) -> str:
    """Return the response of the client as JSON."""
    say({"id": "question", "method": "elicitation/create", "params": question})
    for line in sys.stdin:
        if (message := json.loads(line)).get("id") == "question":
            return json.dumps(message.get("result", message.get("error")))
    return ""


def call(name: str) -> dict[str, Any]:
    if name in QUESTIONS:
        said = asked(QUESTIONS[name])
        say(COMPLETE)
        return text(said)
    match name:
        case "die":
            print("out of cheese", file=sys.stderr, flush=True)
            os._exit(3)
        case "grow":
            TOOLS.append({"name": f"more_{len(TOOLS)}", "inputSchema": {"type": "object"}})
            say({"method": "notifications/tools/list_changed"})
        case "pretend":
            say({"method": "notifications/tools/list_changed"})
        case "mutter":
            odds: list[Any] = [[1], {}, True]
            for odd in odds:
                say({"method": "notifications/progress", "params": {"progressToken": odd, "progress": 1}})
                say({"method": "notifications/cancelled", "params": {"requestId": odd}})
        case "mistyped":
            return {"content": MALFORMED}
        case "roots":
            return text(f"{len(ROOTS)} changes")
        case "slow":
            time.sleep(3600)
    return text(f"did {name} in {os.getpid()}")


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            DECLARED.update(params["capabilities"])
            capabilities: dict[str, Any] = {
                "tools": {"listChanged": True},
                "resources": {"subscribe": MODE == "refusing"},
            }
            if MODE == "mistyped":
                capabilities["prompts"] = {}
            info = {"name": MODE, "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
        case "tools/list":
            if MODE == "choosy":
                with open(sys.argv[2], "a", encoding="ascii") as file:  # noqa: PTH123
                    file.write(f"{sorted(DECLARED)}\n")
            return {"tools": TOOLS}
        case "resources/list":
            huge = {"uri": "odd://huge", "name": "huge", "_meta": {"size": 2**70}}
            nameless = [{"name": "it has no URI"}, {"uri": ""}, huge] if MODE == "nameless" else []
            return {"resources": [*nameless, *({"uri": uri, "name": uri} for uri in RESOURCES)]}
        case "resources/templates/list":
            found = [{"uriTemplate": "odd://{name}", "name": "theirs"}] if MODE == "readable" else []
            return {"resourceTemplates": found}
        case "tools/call":
            return CONFUSED if MODE == "confused" else call(params["name"])
    return FIXED.get(method, {})


def refused(message: dict[str, Any]) -> bool:
    if message["method"] == REFUSED.get(MODE):
        code = int(sys.argv[2]) if MODE == "fail" else -32603
        say({"id": message["id"], "error": {"code": code, "message": "the disk is full"}})
        return True
    if message.get("params", {}).get("name") == "refer":
        error = {"code": -32042, "message": "Sign in", "data": {"elicitations": [QUESTIONS["ask_url"]]}}
        say({"id": message["id"], "error": error})
        say(COMPLETE)
        return True
    return False


def serve() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "notifications/roots/list_changed":
            ROOTS.append(message["method"])
        if message.get("method") == "notifications/initialized" and MODE == "choosy":
            say({"method": "notifications/tools/list_changed"})
        if message.get("method") == "notifications/initialized" and MODE == "hasty":
            say({"method": "notifications/resources/updated", "params": {"uri": "odd://any"}})
        if "id" not in message or "method" not in message:
            continue
        if message["method"] == "server/discover" and MODE == "mute":
            for _ in sys.stdin:  # no longer responds
                pass
        if message["method"] == "server/discover" and not IS_MODERN:
            say({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
            continue
        if refused(message):
            continue
        say({"id": message["id"], "result": answer(message["method"], message.get("params", {}))})


match MODE:
    case "flood":
        while True:
            sys.stdout.write("this is not MCP\n" * 1000)
    case "long":
        while True:
            sys.stdout.write("x" * 65536)
    case "hang":
        for _ in sys.stdin:
            pass
    case "late":
        while not os.path.exists(sys.argv[2]):  # noqa: PTH110 - starts faster
            time.sleep(0.02)
        TOOLS.extend({"name": name, "inputSchema": {"type": "object"}} for name in sys.argv[3:])
        serve()
    case "deaf":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(sys.argv[2], "a", encoding="ascii") as file:  # noqa: PTH123
            file.write(f"{os.getpid()}\n")
        serve()
        while True:
            time.sleep(3600)
    case _:
        if MODE == "mistyped":
            TOOLS.append({**MISTYPED, "name": MODE})
        if MODE == "nameless":
            TOOLS.append({"name": "huge", "inputSchema": {"type": "object", "maxProperties": 2**70}})
        if MODE == "ask_url":
            TOOLS.append({"name": "refer", "inputSchema": {"type": "object"}})
        if MODE in {"ask_form", "ask_url", "mutter", "pretend", "roots", "slow"}:
            TOOLS.append({"name": MODE, "inputSchema": {"type": "object"}})
        print("Welcome! This line is no message.", flush=True)
        serve()
