"""A secret of the file leaves in no answer, whoever brings it. CONFIG reference: "Secrets"."""

from pathlib import Path

import orjson
import pytest

from gateway.errors import RpcError
from tests.behaviour.inside import product

SECRET = "correct-horse-battery"

PLUGIN = f"""
from gateway.plugin import EmbeddedResource, ProtocolError, ResourceLink, Text, ToolError

def link():
    return ResourceLink("a:{SECRET}", "{SECRET}", title="{SECRET}", description="{SECRET}")

def embedded():
    return [EmbeddedResource("a:{SECRET}", "{SECRET}"), Text("{SECRET}", annotations={{"x": "{SECRET}"}})]

def structured():
    return {{"{SECRET}": ["{SECRET}"]}}

def tool_error():
    raise ToolError("{SECRET}")

def protocol_error():
    raise ProtocolError(7, "{SECRET}", {{"deep": ["{SECRET}"]}})

def messages():
    return "{SECRET}"

def candidates(value):
    return ["{SECRET}"]
"""

FILE = """
plugins: [plugins]
connections: {c: {base_url: "https://c.example", headers: {Authorization: "${env:TOKEN}"}}}
tools:
  link: {python: "leaks:link"}
  embedded: {python: "leaks:embedded"}
  structured: {python: "leaks:structured"}
  tool_error: {python: "leaks:tool_error"}
  protocol_error: {python: "leaks:protocol_error"}
  fixed: {content: [{resource: {uri: "f:x", file: secret.txt}}]}
  printed: {shell: {command: [cat, secret.txt], cwd: "."}}
  failed: {shell: {script: "cat secret.txt; cat secret.txt >&2; exit 1"}}
resources:
  file: {uri: "s://file", file: secret.txt}
  failing: {uri: "s://failing", shell: {script: "cat secret.txt >&2; exit 1"}}
  function: {uri: "s://function", python: "leaks:embedded"}
prompts:
  written: {messages: [{user: {resource: {uri: "f:x", file: secret.txt}}}]}
  function: {python: "leaks:messages"}
  completed: {arguments: {a: {complete: {python: "leaks:candidates"}}}, messages: [{user: "{{ a }}"}]}
"""

REQUESTS = [
    *(
        ("tools/call", {"name": name})
        for name in ["link", "embedded", "structured", "tool_error", "protocol_error", "fixed", "printed", "failed"]
    ),
    *(("resources/read", {"uri": f"s://{name}"}) for name in ["file", "failing", "function"]),
    *(("prompts/get", {"name": name}) for name in ["written", "function"]),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "completed"}, "argument": {"name": "a", "value": ""}},
    ),
]


@pytest.mark.parametrize(("method", "params"), REQUESTS, ids=[str(params) for _, params in REQUESTS])
async def test_no_answer_holds_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, params: dict[str, object]
) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    async with product(tmp_path, FILE, {"plugins/leaks.py": PLUGIN, "secret.txt": SECRET}) as client:
        try:
            answer = orjson.dumps(await client.request(method, params))
        except RpcError as error:
            answer = orjson.dumps([error.message, error.data])
    assert SECRET.encode() not in answer
    assert b"***" in answer
