"""Input for fuzzing: a configuration, and valid messages of both eras."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Final

from gateway.json_types import Json, JsonObject
from tests.attacks.client import LEGACY_ACCEPT, Client, Fields, initialize, mirrored_value
from tests.attacks.seeds import SECRETS
from tests.attacks.target import Plan
from tests.messages import MODERN, modern_request

PLUGIN: Final = """
import asyncio, time
from gateway.plugin import Context, SyncContext, ToolError

async def slow(seconds: float, context: Context) -> str:
    for step in range(5):
        await context.progress(step, 5, "step")
        await context.log("info", {"step": step})
        await asyncio.sleep(min(max(seconds, 0), 1) / 5)
    return "slept"

def blocking(seconds: float, context: SyncContext) -> str:
    time.sleep(min(max(seconds, 0), 0.2))
    context.progress(1, 1)
    return "blocked"

async def asks(context: Context) -> str:
    answer = await context.elicit("name", "Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"{answer.action} {answer.content}"

async def hides(context: Context) -> str:
    await context.close_stream(50)
    await asyncio.sleep(0.1)
    return "came back"

def fails() -> str:
    raise ToolError("as agreed")

def large() -> str:
    return "large " * 100_000
"""

PLAN: Final = Plan(
    file="""
    plugins: [plugins]
    listen: {session_ttl: 3s}
    limits: {sessions: 300, streams: 300, threads: 8, concurrency: {per_caller: 60, in_all: 100}}
    audit: {file: audit.jsonl, arguments: full}
    server: {page_size: 3}
    tools:
      echo: {description: Repeat a text., input: {text: string}, content: [{text: "{{ text }}"}]}
      run: {description: A child., input: {text: string}, shell: {command: [printf, '%s', "--", "{{ text }}"]}}
      linger: {description: A child that stays., shell: {script: "sleep 1 & sleep 0.2; echo done"}, timeout: 500ms}
      lines: {description: A child that reports., shell: {script: "echo a; echo b; echo c", progress: stdout}}
      flood: {description: A child with much output., shell: {command: [seq, "60000"]}, output: {overflow: resource}}
      slow: {python: "house:slow"}
      blocking: {python: "house:blocking"}
      asks: {python: "house:asks", ask_timeout: 1s}
      hides: {python: "house:hides"}
      fails: {python: "house:fails"}
      large: {python: "house:large"}
      sure: {description: Asks first., confirm: "Really?", ask_timeout: 1s, content: [{text: done}]}
    resources:
      docs: {files: "docs/*.md"}
      one: {uri: "x://one", text: one}
      any: {uri: "y:///{name}", text: "<{{ name }}>", complete: {name: [alpha, beta]}}
    prompts:
      say:
        description: A prompt.
        arguments: {text: {description: A text., complete: [alpha, beta, gamma]}}
        messages: [{user: "{{ text }}"}, {user: {resource: "docs:///a.md"}}]
    """,
    files={"plugins/house.py": PLUGIN, "docs/a.md": "a", "docs/b.md": "b"},
    tolerated=frozenset({"reload refused"}),
)
OPERATOR: Final = (("X-API-Key", SECRETS["api key"]),)
GUARDED: Final = dataclasses.replace(
    PLAN,
    file=PLAN.file
    + """
    auth:
      api_keys:
        fuzzer: {secret: "${env:SEEDED_KEY}", scopes: ["gateway:admin"]}
        other: {sha256: "@digest@", scopes: []}
      rules: [{match: {name: "run"}, scopes: [never]}, {match: {name: "slow"}, scopes: ["gateway:admin"]}]
    """.replace("@digest@", hashlib.sha256(b"the other key").hexdigest()),
    operator=OPERATOR,
)
"""The same configuration with authentication."""
VARIANTS: Final = (
    "tools: {extra: {description: Comes and goes., content: [{text: x}]}}",
    "tools: {extra: {description: Is another., content: [{text: y}]}}",
    "tools: {extra: {broken: true}}",
    "tools: {extra: [",
    "",
)
"""Contents of an additional file for successive reloads. Some are invalid."""

CALLS: Final[tuple[tuple[str, Mapping[str, Json]], ...]] = (
    ("tools/list", {}),
    ("tools/call", {"name": "echo", "arguments": {"text": "hello"}}),
    ("tools/call", {"name": "run", "arguments": {"text": "hello"}}),
    ("tools/call", {"name": "linger", "arguments": {}}),
    ("tools/call", {"name": "lines", "arguments": {}, "_meta": {"progressToken": "p"}}),
    ("tools/call", {"name": "flood", "arguments": {}}),
    ("tools/call", {"name": "slow", "arguments": {"seconds": 0.3}, "_meta": {"progressToken": 7}}),
    ("tools/call", {"name": "blocking", "arguments": {"seconds": 0.1}}),
    ("tools/call", {"name": "asks", "arguments": {}}),
    ("tools/call", {"name": "hides", "arguments": {}}),
    ("tools/call", {"name": "fails", "arguments": {}}),
    ("tools/call", {"name": "large", "arguments": {}}),
    ("tools/call", {"name": "sure", "arguments": {}}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "docs:///a.md"}),
    ("resources/read", {"uri": "y:///name"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "say", "arguments": {"text": "hello"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "say"}, "argument": {"name": "text", "value": "a"}},
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "y:///{name}"}, "argument": {"name": "name", "value": "b"}},
    ),
)
MODERN_CALLS: Final[tuple[tuple[str, Mapping[str, Json]], ...]] = (
    *CALLS,
    ("server/discover", {}),
    ("subscriptions/listen", {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["docs:///a.md"]}}),
    (
        "tools/call",
        {"name": "sure", "inputResponses": {"confirm": {"action": "accept", "content": {}}}, "requestState": "x.y"},
    ),
)
LEGACY_CALLS: Final[tuple[tuple[str, Mapping[str, Json]], ...]] = (
    *CALLS,
    ("ping", {}),
    ("logging/setLevel", {"level": "debug"}),
    ("resources/subscribe", {"uri": "docs:///a.md"}),
    ("resources/unsubscribe", {"uri": "docs:///a.md"}),
)
REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
CAPABILITIES: Final[JsonObject] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


def modern_messages() -> Iterator[JsonObject]:
    for number, (method, params) in enumerate(MODERN_CALLS):
        message = modern_request(method, params, request_id=number)
        yield message
        fields = {**message["params"]["_meta"], "io.modelcontextprotocol/clientCapabilities": CAPABILITIES}
        yield {**message, "id": f"with-{number}", "params": {**message["params"], "_meta": fields}}


def legacy_messages() -> Iterator[JsonObject]:
    for number, (method, params) in enumerate(LEGACY_CALLS):
        yield {"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params)}
    yield {"jsonrpc": "2.0", "method": "notifications/initialized"}
    yield {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 6, "reason": "enough"}}
    yield {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    yield {"jsonrpc": "2.0", "id": "gateway-0", "result": {"action": "accept", "content": {"name": "x"}}}
    yield {"jsonrpc": "2.0", "id": "gateway-0", "error": {"code": 1, "message": "no"}}
    yield initialize()


def opening(revision: str) -> JsonObject:
    message = initialize(revision)
    return {**message, "params": {**message["params"], "capabilities": CAPABILITIES}}


def modern_fields(message: JsonObject) -> Fields:
    """Yield the header fields of a message."""
    params = message["params"]
    name = params.get("name", params.get("uri"))
    yield from [("Content-Type", "application/json"), ("Accept", LEGACY_ACCEPT), ("MCP-Protocol-Version", MODERN)]
    yield "Mcp-Method", message["method"]
    if isinstance(name, str):
        yield "Mcp-Name", mirrored_value(name)


def is_valid(client: Client, message: JsonObject) -> bool:
    """Return whether a message succeeds without changes."""
    answer = client.post(message, fields=[field for field in modern_fields(message) if field[0] != "Content-Type"])
    return answer.status == 200 and "result" in answer.messages[-1]
