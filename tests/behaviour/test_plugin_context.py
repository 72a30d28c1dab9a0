"""The context of plugin functions: facts, resources, errors, and enabling definitions."""

from pathlib import Path

import pytest

from tests.behaviour.inside import product

PLUGIN = '''
from gateway.plugin import Context, SyncContext

FACTS = "principal client client_capabilities protocol_version progress_token request_meta cancelled".split()

async def on_the_loop(context: Context) -> dict:
    """Return the facts of the context."""
    return {fact: getattr(context, fact) for fact in FACTS}

def in_a_thread(context: SyncContext) -> dict:
    """Return the facts of the context."""
    return {fact: getattr(context, fact) for fact in FACTS}
'''

FILE = """
plugins: [plugins]
tools:
  on_the_loop: {python: "facts:on_the_loop"}
  in_a_thread: {python: "facts:in_a_thread"}
"""


@pytest.mark.parametrize("tool", ["on_the_loop", "in_a_thread"])
async def test_context_is_complete_on_the_loop_and_in_a_thread(tmp_path: Path, tool: str) -> None:
    async with product(tmp_path, FILE, {"plugins/facts.py": PLUGIN}) as client:
        params = {"name": tool, "_meta": {"progressToken": "p", "example.com/k": 1}}
        facts = (await client.request("tools/call", params))["structuredContent"]
    assert facts["request_meta"].pop("example.com/k") == 1
    assert facts["client"] == facts["request_meta"]["io.modelcontextprotocol/clientInfo"]
    assert {name: facts[name] for name in ("principal", "progress_token", "protocol_version", "cancelled")} == {
        "principal": None,
        "progress_token": "p",
        "protocol_version": "2026-07-28",
        "cancelled": False,
    }


READING = '''
from gateway.plugin import Context, ProtocolError, SyncContext, ToolError

async def on_the_loop(context: Context, uri: str) -> str:
    """Read."""
    return (await context.read_resource(uri))[0]["text"]

def in_a_thread(context: SyncContext, uri: str) -> str:
    """Read."""
    return context.read_resource(uri)[0]["text"]
'''

RESOURCES = """
plugins: [plugins]
tools:
  on_the_loop: {python: "reading:on_the_loop"}
  in_a_thread: {python: "reading:in_a_thread"}
  fixed: {input: {uri: string}, content: [{resource: "{+uri}"}]}
resources:
  there: {uri: "x://there", text: found}
  failing: {uri: "x://failing", shell: {script: "echo broken >&2; exit 1"}}
  through: {uri: "x://through/{uri}", python: "reading:on_the_loop"}
"""


@pytest.mark.parametrize("tool", ["on_the_loop", "in_a_thread", "fixed"])
async def test_resource_that_a_tool_cannot_read_is_a_tool_error(tmp_path: Path, tool: str) -> None:
    async with product(tmp_path, RESOURCES, {"plugins/reading.py": READING}) as client:
        assert "found" in str(await client.call(tool, uri="x://there"))
        absent = await client.call(tool, uri="x://absent")
        failing = await client.call(tool, uri="x://failing")
    assert absent == {**absent, "isError": True}
    assert absent["content"][0]["text"] == "No resource has the URI x://absent"
    assert failing["isError"]
    assert failing["content"][0]["text"].startswith("The resource x://failing could not be read: The command failed")


async def test_not_found_names_the_requested_resource(tmp_path: Path) -> None:
    files = {"plugins/reading.py": READING, "docs/a.md": "a"}
    text = RESOURCES + '  docs: {files: "docs/*.md"}\n  old: {uri: "x://new", file: docs/gone.md, aliases: ["x://old"]}'
    async with product(tmp_path, text, files) as client:
        for uri in ("docs:///my+file.md", "docs:///%61%2Emdx", "x://old", "x://nowhere"):
            error = await client.error("resources/read", {"uri": uri})
            assert (error.code, error.data) == (-32602, {"uri": uri})
        through = await client.error("resources/read", {"uri": "x://through/x%3A%2F%2Fabsent"})
    assert (through.code, through.data) == (-32603, {"uri": "x://through/x%3A%2F%2Fabsent"})
    assert through.message == "No resource has the URI x://absent"


RAISING = """
from gateway.plugin import ProtocolError, ToolError

def wrong_data():
    raise ProtocolError(7, "no", {"x": object()})

def wrong_code():
    raise ProtocolError("seven", "no")

def huge_code():
    raise ProtocolError(10**30, "no")

def half_a_character():
    raise ProtocolError(7, "\\ud800", [1])

def half_a_text():
    raise ToolError("\\ud800")
"""


async def test_unserializable_errors_do_not_affect_other_calls(tmp_path: Path) -> None:
    names = ("wrong_data", "wrong_code", "huge_code", "half_a_text")
    tools = "".join(
        f'  {name}: {{description: x, python: "raising:{name}"}}\n' for name in (*names, "half_a_character")
    )
    async with product(tmp_path, f"plugins: [plugins]\ntools:\n{tools}", {"plugins/raising.py": RAISING}) as client:
        for name in names:
            assert (await client.call(name))["isError"]
        error = await client.error("tools/call", {"name": "half_a_character"})
    assert (error.code, error.message, error.data) == (7, "?", [1])


NAMING = """
from gateway.plugin import Context

async def announce(context: Context) -> None:
    context.notify_changed("tool")

async def switch_on(context: Context) -> None:
    context.enable("prompt", "announce")

async def switch_off(context: Context) -> None:
    context.disable("tool", "announce")
"""


@pytest.mark.parametrize(("tool", "named"), [("announce", "tool"), ("switch_on", "prompt"), ("switch_off", "tool")])
async def test_unknown_kind_error_lists_the_known_kinds(tmp_path: Path, tool: str, named: str) -> None:
    text = f'plugins: [plugins]\ntools: {{{tool}: {{description: d, python: "naming:{tool}"}}}}\n'
    async with product(tmp_path, text, {"plugins/naming.py": NAMING}) as client:
        answer = await client.call(tool)
    assert answer["isError"]
    assert answer["content"][0]["text"] == f"Unknown kind '{named}'. Use one of tools, prompts, resources."


SKILLED = '''
from gateway.plugin import Context

async def switch(context: Context, on: bool) -> None:
    """Switch a skill."""
    (context.enable if on else context.disable)("resources", "skill://knots")
'''


async def test_skill_is_disabled_and_enabled_with_all_its_files(tmp_path: Path) -> None:
    text = 'plugins: [plugins]\nskills: [knots]\ntools: {switch: {python: "skilled:switch"}}\n'
    skill = "---\nname: knots\ndescription: How to tie knots.\n---\nTie them.\n"
    files = {"plugins/skilled.py": SKILLED, "knots/SKILL.md": skill, "knots/bowline.md": "Over and under.\n"}
    async with product(tmp_path, text, files) as client:
        for on in (False, True):
            await client.call("switch", on=on)
            assert len((await client.request("skills/list"))["skills"]) == on
            assert len((await client.request("resources/list"))["resources"]) == 2 * on
        got = await client.request("skills/get", {"uri": "skill://knots/SKILL.md"})
        assert len(got["skill"]["resources"]) == 2
        await client.call("switch", on=False)
        for method in ("skills/get", "resources/read"):
            await client.error(method, {"uri": "skill://knots/SKILL.md"})
