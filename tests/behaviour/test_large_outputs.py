"""One call's large output is worked on beside the others, not before them."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.behaviour.inside import product

PLUGIN = '''
def text() -> str:
    """Say much."""
    return "a line with \\x1b[1mcolours\\x1b[0m in it\\n" * 800_000

def rows() -> list[dict]:
    """List much."""
    return [{"id": number, "name": "x"} for number in range(300_000)]
'''

FILE = """
plugins: [plugins]
tools:
  text: {python: "much:text"}
  rows: {python: "much:rows"}
  parked: {python: "much:text", output: {overflow: resource}}
  flood:
    description: Writes far more than is passed on.
    shell: {script: "echo first; head -c 40000000 /dev/zero | tr '\\\\0' x; echo; echo last"}
"""


@pytest.mark.parametrize("tool", ["text", "rows", "parked"])
async def test_a_large_output_keeps_nobody_waiting(tmp_path: Path, tool: str) -> None:
    async with product(tmp_path, FILE, {"plugins/much.py": PLUGIN}) as client:
        call = asyncio.create_task(client.call(tool))
        begun = last = time.perf_counter()
        longest = 0.0
        while not call.done():
            await asyncio.sleep(0)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
        assert (await call)["content"]
    assert longest < (last - begun) / 2, "the loop stood still while it was shaped"


async def test_a_flood_is_told_by_its_head_its_tail_and_its_size(tmp_path: Path) -> None:
    async with product(tmp_path, FILE, {"plugins/much.py": PLUGIN}) as client:
        text = await client.text("flood")
    assert text.startswith("first\nxxx")
    assert text.endswith("xxx\nlast\n")
    assert "of 40000012 bytes left out" in text
    assert len(text) < 300 * 1024
