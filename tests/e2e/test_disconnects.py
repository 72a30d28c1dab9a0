"""Child processes of disconnected callers end or continue, depending on the revision."""

import asyncio
from pathlib import Path

import aiohttp

from tests.e2e.daemon import post_call, serving
from tests.e2e.test_standard_streams import written
from tests.messages import legacy_request, open_session
from tests.programs import is_running
from tests.waiting import until


async def test_disconnect_of_a_modern_caller_ends_its_child(config: Path, tmp_path: Path) -> None:
    async with serving(config) as daemon, aiohttp.ClientSession() as client:
        call = asyncio.create_task(post_call(client, await daemon.url(), "sleepy", path=str(tmp_path / "pid")))
        await written(tmp_path / "pid")
        call.cancel()
        await asyncio.wait([call])
        await gone(tmp_path / "pid")


async def test_session_keeps_its_child_until_deletion(config: Path, tmp_path: Path) -> None:
    async with serving(config) as daemon, aiohttp.ClientSession() as client:
        url = await daemon.url()
        headers = await open_session(client, url)
        message = legacy_request("tools/call", {"name": "sleepy", "arguments": {"path": str(tmp_path / "pid")}})
        async with client.post(url, json=message, headers=headers, timeout=aiohttp.ClientTimeout(total=20)) as response:
            await response.content.readuntil(b"\n\n")  # progress on the open stream
            await written(tmp_path / "pid")
            response.close()
        async with client.post(url, json=legacy_request("ping", request_id=2), headers=headers) as response:
            assert response.status == 200
        assert is_running(pid_in(tmp_path / "pid"))
        async with client.delete(url, headers=headers) as response:
            assert response.status == 204
        await gone(tmp_path / "pid")


async def gone(path: Path) -> None:
    await until(lambda: not is_running(pid_in(path)))


def pid_in(path: Path) -> int:
    return int(path.read_text())
