"""What a plugin's function knows of its call, and can do with it. CONFIG reference: "python", "Context"."""

from pathlib import Path

import pytest

from tests.behaviour.inside import product

PLUGIN = '''
from gateway.plugin import Context, SyncContext

FACTS = "principal client client_capabilities protocol_version progress_token request_meta cancelled".split()

async def on_the_loop(context: Context) -> dict:
    """Say what is known."""
    return {fact: getattr(context, fact) for fact in FACTS}

def in_a_thread(context: SyncContext) -> dict:
    """Say what is known."""
    return {fact: getattr(context, fact) for fact in FACTS}
'''

FILE = """
plugins: [plugins]
tools:
  on_the_loop: {python: "facts:on_the_loop"}
  in_a_thread: {python: "facts:in_a_thread"}
"""


@pytest.mark.parametrize("tool", ["on_the_loop", "in_a_thread"])
async def test_every_fact_is_known_on_the_loop_and_in_a_thread(tmp_path: Path, tool: str) -> None:
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
