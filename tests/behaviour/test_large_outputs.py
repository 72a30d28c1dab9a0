"""Processing a large output does not block other calls.

The event loop is blocked while this process computes between two turns of the loop, also in other threads that hold
the interpreter's lock.
"""

import asyncio
import time
from pathlib import Path

import pytest

from tests.behaviour.inside import Client, product

PLUGIN = '''
from gateway.plugin import Context, EmbeddedResource

MUCH = ["a line with \\x1b[1mcolours\\x1b[0m in it\\n" * 100] * 800

async def logs(context: Context) -> str:
    """Log much."""
    await context.log("info", MUCH)
    return "done"

def embedded() -> EmbeddedResource:
    """Embed much."""
    return EmbeddedResource("a:b", text())

def text() -> str:
    """Say much."""
    return "a line with \\x1b[1mcolours\\x1b[0m in it\\n" * 80_000

def rows() -> list[dict]:
    """List much."""
    return [{"id": number, "name": "x"} for number in range(100_000)]
'''

FILE = """
plugins: [plugins]
tools:
  text: {python: "much:text"}
  rows: {python: "much:rows"}
  embedded: {python: "much:embedded"}
  logs: {python: "much:logs"}
  parked: {python: "much:text", output: {overflow: resource}}
  flood:
    description: Writes much more than is forwarded.
    shell: {script: "echo first; head -c 8000000 /dev/zero | tr '\\\\0' x; echo; echo last"}
resources:
  text: {uri: "s://text", python: "much:text", max_size: 64MiB}
  embedded: {uri: "s://embedded", python: "much:embedded", max_size: 64MiB}
  rows: {uri: "s://rows", python: "much:rows", max_size: 64MiB}
prompts:
  text: {python: "much:text"}
  embedded: {python: "much:embedded"}
"""

SECRETS = "".join(
    f'\n  c{n}: {{base_url: "https://c.example", headers: {{Authorization: "${{env:KEY_{n}}}"}}}}' for n in range(30)
)
"""All of them are searched for."""


REQUESTS = [
    *(("tools/call", {"name": name}) for name in ("text", "rows", "parked", "embedded")),
    ("tools/call", {"name": "logs", "_meta": {"io.modelcontextprotocol/logLevel": "info"}}),
    *(("resources/read", {"uri": f"s://{name}"}) for name in ("text", "rows", "embedded")),
    *(("prompts/get", {"name": name}) for name in ("text", "embedded")),
]


@pytest.mark.parametrize(("method", "params"), REQUESTS, ids=[f"{method} {params}" for method, params in REQUESTS])
async def test_large_output_does_not_block_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, params: dict[str, object]
) -> None:
    for number in range(30):
        monkeypatch.setenv(f"KEY_{number}", f"a+secret/{number}-of-thirty")
    file = f"connections:{SECRETS}\n{FILE}"
    async with product(tmp_path, file, {"plugins/much.py": PLUGIN}) as client, asyncio.timeout(60):
        while await longest_block(client, method, params) > 0.5:
            pass  # on a busy machine, the event loop can wait for its turn


async def longest_block(client: Client, method: str, params: dict[str, object]) -> float:
    """Make a request, and return the longest block of the event loop as a share of the CPU time of the request."""
    call = asyncio.create_task(client.request(method, params))
    begun = last = time.process_time()
    longest = 0.0
    while not call.done():
        await asyncio.sleep(0.001)
        now = time.process_time()
        longest, last = max(longest, now - last), now
    assert await call
    return longest / (last - begun)


async def test_huge_output_is_shown_by_head_tail_and_size(tmp_path: Path) -> None:
    async with product(tmp_path, FILE, {"plugins/much.py": PLUGIN}) as client:
        text = await client.text("flood")
    assert text.startswith("first\nxxx")
    assert text.endswith("xxx\nlast\n")
    assert "of 8000012 bytes omitted" in text
    assert len(text) < 300 * 1024
