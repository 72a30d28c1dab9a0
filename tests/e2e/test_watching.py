"""A daemon that cannot watch its files reports the problem, and retries."""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import aiohttp

from gateway.json_types import Json
from tests.e2e.daemon import serving
from tests.programs import need

FILE = """
listen: {http: "127.0.0.1:0"}
tools:
  TOOL: {description: Return a text., content: here}
"""


def bound_by_modes() -> Sequence[str]:
    """Return a launcher that removes root's capability to read all files (capabilities(7))."""
    if os.geteuid() != 0:
        return ()
    return (need("setpriv"), "--bounding-set", "-dac_override,-dac_read_search", "--")


async def status_once(client: aiohttp.ClientSession, url: str, condition: Callable[[Json], bool]) -> Json:
    async with asyncio.timeout(20):
        while True:
            async with client.get(url.replace("/mcp", "/-/status")) as response:
                if condition(status := await response.json()):
                    return status
            await asyncio.sleep(0.02)


def _has(name: str, status: Json) -> bool:
    return name in status["tools"]


async def test_temporarily_unreadable_directory_is_watched_again(tmp_path: Path) -> None:
    directory = tmp_path / "etc"
    directory.mkdir()
    config = directory / "config.yaml"
    config.write_text(FILE.replace("TOOL", "first"))
    async with (
        serving(config, "--poll", "1h", watch=True, launcher=bound_by_modes()) as daemon,
        aiohttp.ClientSession() as client,
    ):
        url = await daemon.url()
        await status_once(client, url, lambda status: status["watch_error"] is None)
        directory.chmod(0)
        try:
            status = await status_once(client, url, lambda status: status["watch_error"] is not None)
        finally:
            directory.chmod(0o755)
        assert str(directory) in status["watch_error"]
        await status_once(client, url, lambda status: status["watch_error"] is None)
        for name in ("second", "third"):
            config.write_text(FILE.replace("TOOL", name))
            await status_once(client, url, partial(_has, name))
