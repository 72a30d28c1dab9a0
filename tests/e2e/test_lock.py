"""The lock of a running daemon: changed definitions are held back until they are locked."""

import asyncio
import json
import subprocess
from pathlib import Path

import aiohttp

from gateway.json_types import Json
from tests.e2e.daemon import TIMEOUT_SECONDS, serving
from tests.fork_server import FORKED

MAIN = """\
server: {lock: enforce}
listen: {http: "127.0.0.1:0"}
include: [tools.yaml]
"""
TOOLS = "tools: {look: {description: Look., content: x}}"


def lock(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FORKED, "lock", *words, "config.yaml"],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def status(url: str) -> Json:
    async with aiohttp.ClientSession() as http, http.get(url.replace("/mcp", "/-/status")) as answer:
        return await answer.json()


async def test_edit_is_served_when_the_lock_is_renewed(tmp_path: Path) -> None:
    main, tools = tmp_path / "config.yaml", tmp_path / "tools.yaml"
    main.write_text(MAIN)
    tools.write_text(TOOLS)
    assert lock("--check", cwd=tmp_path).returncode == 2
    assert lock(cwd=tmp_path).returncode == 0
    assert list(json.loads((tmp_path / "mcp-gateway.lock").read_text())["tools"]) == ["look"]
    async with serving(main, watch=True) as daemon:
        url = await daemon.url()
        assert (await status(url))["lock"]["differs"] == []
        tools.write_text(TOOLS.replace("}}", "}, more: {description: More., content: y}}"))
        warned = await daemon.event("configuration warning")
        assert "tools.more: was added since the lock was written, so it is not served" in warned["problem"]
        now = await status(url)
        assert now["tools"] == {"look": "content"}
        assert now["lock"]["differs"] == ["tools.more was added since the lock was written"]
        assert now["lock"]["mode"] == "enforce"
        checked = lock("--check", cwd=tmp_path)
        assert (checked.returncode, checked.stdout.split()[0]) == (1, "tools.more")
        assert lock(cwd=tmp_path).returncode == 0
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (now := await status(url))["tools"] != {"look": "content", "more": "content"}:
                await asyncio.sleep(0.05)
        assert now["lock"]["differs"] == []
