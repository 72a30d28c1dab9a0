"""Tests for the number of source files that a call passes, which a reader has to open to follow it."""

import sys
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

import gateway
from gateway.json_types import JsonObject
from gateway.transports.memory import MemoryClient
from tests.upstreams.scripted_server import OBJECT, Answers, scripted
from tests.upstreams.test_failures import config, odd, until_listed
from tests.upstreams.test_failures import gateway as gateway_of

AT_MOST: Final = {"say": 38, "odd_work": 39, "web_work": 42}
"""Upper bounds, which only fall: a shell tool, and tools of upstream servers over stdio and HTTP."""
WORK: Final[Answers] = {
    "tools/list": {"tools": [{"name": "work", "inputSchema": OBJECT}]},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}
_OURS: Final = f"{Path(gateway.__file__).parent}/"


@pytest.mark.parametrize("tool", AT_MOST)
async def test_call_passes_few_files(tool: str, tmp_path: Path) -> None:
    async with scripted(WORK) as (_, web):
        path = config(tmp_path, odd=odd("good"), web=web)
        path.write_text(f"{path.read_text(encoding='utf-8')}tools: {{say: {{shell: {{command: [echo, hello]}}}}}}\n")
        async with gateway_of(path) as running:
            await until_listed(running, "odd_work", "web_work")
            client = running.memory_client()
            call: JsonObject = {"name": tool, "arguments": {}}
            await client.request("tools/call", call)  # opens sessions and fills caches
            # Background tasks can run during a call, so the smallest of several counts is taken.
            files = min([await _files_of(client, call) for _ in range(5)], key=len)
    print(f"{tool}: {len(files)} files")  # noqa: T201 - shown by `pytest -rP`
    assert len(files) <= AT_MOST[tool], "\n".join(sorted(files))


async def _files_of(client: MemoryClient, call: JsonObject) -> set[str]:
    files: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_OURS):
            files.add(frame.f_code.co_filename.removeprefix(_OURS))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = await client.request("tools/call", call)
    finally:
        sys.setprofile(before)
    assert not result.get("isError")
    return files
