"""Responses contain no secrets of the configuration, whichever component returns them."""

from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest

from gateway.errors import RpcError
from gateway.json_types import Json
from tests.behaviour.inside import product

SECRET = "correct-horse-battery"


SPLIT = "correct-\\x1b[1mhorse\\x1b[0m-bat\\x08tery \\x1b]0;title\\x07 \\x9b31m"
"""The secret with terminal escapes inside and around it, in the notation of Python and printf."""

OUTPUTS_PLUGIN = f"""
from gateway.plugin import Context, EmbeddedResource, ResourceLink, Text, ToolError, ProtocolError

SPLIT = "{SPLIT}"

def text(): return SPLIT
def structured(): return {{SPLIT: [SPLIT]}}
def blocks(): return [Text(SPLIT), EmbeddedResource("a:b", SPLIT), ResourceLink("a:b", SPLIT, title=SPLIT)]
def fails(): raise ToolError(SPLIT)
def refuses(): raise ProtocolError(7, SPLIT, {{SPLIT: [SPLIT]}})
def candidates(value): return [SPLIT]

async def talks(context: Context):
    await context.progress(1, None, SPLIT)
    context.log("error", {{SPLIT: (SPLIT, [SPLIT], {{SPLIT}})}}, logger=SPLIT)

async def asks(context: Context):
    await context.elicit("a", SPLIT, {{"type": "object", "properties": {{"a": {{"type": "string", "title": SPLIT}}}}}})

async def samples(context: Context):
    await context.sample("a", SPLIT, system_prompt=SPLIT)
"""

OUTPUTS = """
plugins: [plugins]
connections: {c: {base_url: "https://c.example", headers: {Authorization: "${env:TOKEN}"}}}
tools:
  text: {python: "leaks:text"}
  structured: {python: "leaks:structured"}
  blocks: {python: "leaks:blocks"}
  fails: {python: "leaks:fails"}
  refuses: {python: "leaks:refuses"}
  talks: {python: "leaks:talks"}
  asks: {python: "leaks:asks"}
  samples: {python: "leaks:samples"}
  printed: {shell: {command: [cat, torn.txt], cwd: "."}}
  reported: {shell: {command: [cat, torn.txt], cwd: ".", progress: stdout}}
  failed: {shell: {script: "cat torn.txt; cat torn.txt >&2; exit 1"}}
  confirmed: {input: {a: string}, confirm: "Really {{ a }}?", shell: {command: ["true"]}}
resources:
  printed: {uri: "s://printed", shell: {command: [cat, torn.txt], cwd: "."}}
  failed: {uri: "s://failed", shell: {script: "cat torn.txt >&2; exit 1"}}
  function: {uri: "s://function", python: "leaks:blocks"}
prompts:
  function: {python: "leaks:text"}
  fails: {python: "leaks:fails"}
  listed: {arguments: {a: {complete: {python: "leaks:candidates"}}}, messages: [{user: "{{ a }}"}]}
  completed: {arguments: {a: {complete: {command: [cat, torn.txt]}}}, messages: [{user: "{{ a }}"}]}
"""

NAMED = {
    "tools": "text structured blocks fails refuses talks asks samples printed reported failed",
    "resources": "printed failed function",
    "prompts": "function fails",
    "completions": "listed completed",
}
ESCAPED = [
    *(("tools/call", {"name": name}) for name in NAMED["tools"].split()),
    ("tools/call", {"name": "confirmed", "arguments": {"a": SPLIT.encode().decode("unicode_escape")}}),
    *(("resources/read", {"uri": f"s://{name}"}) for name in NAMED["resources"].split()),
    *(("prompts/get", {"name": name}) for name in NAMED["prompts"].split()),
    *(
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "a", "value": ""}},
        )
        for name in NAMED["completions"].split()
    ),
]
META = {
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "sampling": {}},
    "io.modelcontextprotocol/logLevel": "debug",
}


@pytest.mark.parametrize(("method", "params"), ESCAPED, ids=[str(params) for _, params in ESCAPED])
async def test_no_output_contains_escapes_or_split_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, params: dict[str, object]
) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    heard: list[Json] = []

    async def listen(message: Json) -> None:
        heard.append(message)

    files: dict[str, str | bytes] = {
        "plugins/leaks.py": OUTPUTS_PLUGIN,
        "torn.txt": SPLIT.encode().decode("unicode_escape").encode(),
    }
    async with product(tmp_path, OUTPUTS, files) as client:
        try:
            answer = await client.request(method, {**params, "_meta": META}, on_notification=listen)
        except RpcError as error:
            answer = {"message": error.message, "data": error.data}
    said = "\n".join(texts([answer, heard]))
    assert "***" in said
    assert "horse" not in said
    assert not [character for character in said if not character.isprintable() and character not in "\n\t"]


def texts(value: Json) -> list[str]:
    match value:
        case str():
            return [value]
        case Mapping():
            return [text for name, member in value.items() for text in (name, *texts(member))]
        case list() | tuple():
            return [text for item in value for text in texts(item)]
        case _:
            return []


@pytest.mark.parametrize("control", ["\x1b", "\x1b[1m", "\0", "\r", "\b", "\x7f", "\x9b", "\x1b]0;x\x07"])
async def test_raw_output_keeps_controls_and_masks_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control: str
) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    text = """
    connections: {c: {base_url: "https://c.example", headers: {Authorization: "${env:TOKEN}"}}}
    tools:
      torn: {shell: {command: [cat, torn.txt], cwd: "."}, output: {raw: true}}
      json: {shell: {command: [cat, torn.json], cwd: "."}, output: {raw: true, format: json}}
      clean: {shell: {command: [cat, clean.txt], cwd: "."}, output: {raw: true}}
    resources:
      torn: {uri: "s://torn", file: torn.txt}
      clean: {uri: "s://clean", file: clean.txt}
    """
    torn = f"a {SECRET[:9]}{control}{SECRET[9:]} b"
    files: dict[str, str | bytes] = {
        "torn.txt": torn.encode(),
        "torn.json": orjson.dumps({"a": torn}),
        "clean.txt": f"x{control}y".encode(),
    }
    async with product(tmp_path, text, files) as client:
        shown = [await client.text("torn"), str(await client.call("json")), (await client.read("s://torn"))["text"]]
        assert await client.text("clean") == f"x{control}y"
        assert (await client.read("s://clean"))["text"] == f"x{control}y"
    for each in shown:
        assert "***" in each
        assert SECRET[9:] not in each
        assert SECRET[:9] not in each
