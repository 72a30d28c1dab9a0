"""Confirmations and choices show invisible characters of callers and file names."""

import os
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest

from gateway.json_types import Json, JsonObject
from tests.behaviour.inside import Client, product

META: Final[JsonObject] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}, "url": {}}}}
PLUGIN: Final = '''
from gateway.plugin import Context

async def asks(context: Context, file: str) -> str:
    """Ask."""
    form = {"type": "object", "properties": {"a": {"type": "string", "title": file, "enum": ["one", "two"]}}}
    return (await context.elicit("a", f"First line.\\nDelete {file}?", form)).action

async def offers(context: Context, file: str) -> str:
    """Offer."""
    fields = {
        "one": {"type": "string", "enum": [file, "z"]},
        "named": {"type": "string", "enum": ["z"], "enumNames": [file]},
        "some": {"type": "array", "items": {"type": "string", "enum": [file, "z"]}},
        "text": {"type": "string", "default": file},
    }
    return (await context.elicit("a", "Which?", {"type": "object", "properties": fields})).action

async def names(context: Context, file: str) -> str:
    """Name a field after a file."""
    form = {"type": "object", "properties": {file: {"type": "string"}, "b": {"type": "string"}}, "required": [file]}
    return (await context.elicit("a", "Which?", form)).content[file]

async def leads(context: Context, url: str) -> str:
    """Lead somewhere."""
    return (await context.elicit_url("a", "Come", url)).action
'''
FILE: Final = """
plugins: [plugins]
tools:
  confirmed:
    description: Deletes.
    input: {file: string, others: {type: array, items: {type: string}, default: []}}
    confirm: "Delete {{ file }}{% for each in others %}, {{ each }}{% endfor %}?\\nIt is gone then."
    shell: {command: [echo, "{{ file }}"]}
  asks: {python: "house:asks"}
  offers: {python: "house:offers"}
  leads: {python: "house:leads"}
  names: {python: "house:names"}
"""
HIDDEN: Final = {
    "\x1b[2K": "\\u001b[2K",
    "\r": "\\u000d",
    "\x08": "\\u0008",
    "\x7f": "\\u007f",
    "\x9b1m": "\\u009b1m",
    "\u202e": "\\u202e",
    "\u2066": "\\u2066",
    "\u200b": "\\u200b",
    "\u2028": "\\u2028",
    "\U000e0041": "\\U000e0041",
    "\n": "\\u000a",
    "\t": "\\u0009",
}


async def asked(client: Client, tool: str, **arguments: Json) -> JsonObject:
    """Return the parameters of the question at the end of the call."""
    result = await client.request("tools/call", {"name": tool, "arguments": arguments, "_meta": META})
    [question] = result["inputRequests"].values()
    found: JsonObject = question["params"]
    return found


@pytest.mark.parametrize("hidden", HIDDEN, ids=HIDDEN.values())
async def test_invisible_characters_are_shown_in_confirmations(tmp_path: Path, hidden: str) -> None:
    async with product(tmp_path, FILE, {"plugins/house.py": PLUGIN}) as client:
        question = await asked(client, "confirmed", file=f"a{hidden}b", others=[f"c{hidden}"])
        assert question["message"] == f"Delete a{HIDDEN[hidden]}b, c{HIDDEN[hidden]}?\nIt is gone then."
        question = await asked(client, "asks", file=f"a{hidden}b")
        line_end = "\\u000a" if hidden in "\n\t" else "\n"
        assert question["message"] == f"First line.{line_end}Delete a{HIDDEN[hidden]}b?"
        assert question["requestedSchema"]["properties"]["a"]["title"] == f"a{HIDDEN[hidden]}b"
        refused = await client.call("leads", url=f"https://good.example/{hidden}")
        assert refused["isError"]


@pytest.mark.parametrize("hidden", HIDDEN, ids=HIDDEN.values())
async def test_invisible_characters_are_shown_in_choices(tmp_path: Path, hidden: str) -> None:
    file, seen = f"a{hidden}b", f"a{HIDDEN[hidden]}b"
    async with product(tmp_path, FILE, {"plugins/house.py": PLUGIN}) as client:
        fields = (await asked(client, "offers", file=file))["requestedSchema"]["properties"]
        assert fields["one"] == {"type": "string", "enum": [file, "z"], "enumNames": [seen, "z"]}
        assert fields["named"]["enumNames"] == [seen]
        assert fields["some"]["items"] == {"anyOf": [{"const": file, "title": seen}, {"const": "z", "title": "z"}]}
        assert fields["text"]["default"] == seen
        fields = (await asked(client, "offers", file="plain"))["requestedSchema"]["properties"]
        assert fields["one"] == {"type": "string", "enum": ["plain", "z"]}
        assert fields["some"]["items"] == {"type": "string", "enum": ["plain", "z"]}


@pytest.mark.parametrize("hidden", HIDDEN, ids=HIDDEN.values())
async def test_invisible_characters_are_shown_in_field_names(tmp_path: Path, hidden: str) -> None:
    file, seen = f"a{hidden}b", f"a{HIDDEN[hidden]}b"
    async with product(tmp_path, FILE, {"plugins/house.py": PLUGIN}) as client:
        schema = (await asked(client, "names", file=file))["requestedSchema"]
        assert list(schema["properties"]) == [seen, "b"]
        assert schema["required"] == [seen]
        answers = {"a": {"action": "accept", "content": {seen: "yes"}}}
        params = {"name": "names", "arguments": {"file": file}, "_meta": META, "inputResponses": answers}
        assert (await client.request("tools/call", params))["content"][0]["text"] == "yes"


async def test_question_without_invisible_characters_is_unchanged(tmp_path: Path) -> None:
    async with product(tmp_path, FILE, {"plugins/house.py": PLUGIN}) as client:
        question = await asked(client, "asks", file="ünïcode 👩\u200d💻 \\u202e")
        assert question["message"] == "First line.\nDelete ünïcode 👩\u200d💻 \\u202e?"
        assert (await asked(client, "leads", url="https://good.example/ü"))["url"] == "https://good.example/ü"


async def test_listed_file_shows_its_name_and_can_be_read(tmp_path: Path) -> None:
    names = ["plain.md", "ü.md", "\x1b]0;x\x07.md", "\u202efdm.exe.md", "two\nlines.md"]
    files = {f"docs/{name}": f"this is {index}" for index, name in enumerate(names)}
    async with product(tmp_path, "resources: {docs: {files: docs/*.md}}", files) as client:
        listed = {each["name"]: each["uri"] for each in (await client.request("resources/list"))["resources"]}
        assert set(listed) == {
            "plain.md", "ü.md", "\\u001b]0;x\\u0007.md", "\\u202efdm.exe.md", "two\\u000alines.md",
        }  # fmt: skip
        for index, name in enumerate(names):
            uri = f"docs:///{quote(name)}"
            assert uri in listed.values()
            assert (await client.read(uri))["text"] == f"this is {index}"
        reference = {"type": "ref/resource", "uri": "docs:///{+path}"}
        suggested = await client.request(
            "completion/complete", {"ref": reference, "argument": {"name": "path", "value": ""}}
        )
        assert set(suggested["completion"]["values"]) == {"plain.md", "ü.md"}


async def test_unreadable_file_is_not_listed(tmp_path: Path) -> None:
    names = [os.fsdecode(name) for name in (b"back\\slash.md", b"plain.md", b"latin-\xfc.md")]
    async with product(
        tmp_path, "resources: {docs: {files: docs/*.md}}", {f"docs/{name}": "text" for name in names}
    ) as client:
        uris = [each["uri"] for each in (await client.request("resources/list"))["resources"]]
        assert uris == ["docs:///latin-%FC.md", "docs:///plain.md"]
        for uri in uris:
            assert (await client.read(uri))["text"] == "text"
