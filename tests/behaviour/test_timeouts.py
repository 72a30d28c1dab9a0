"""Calls that time out return the same message, whichever step was too slow."""

import asyncio
import re
from pathlib import Path

from aiohttp import web

from tests.behaviour.following import STREAMS, following
from tests.local_server import listening

FILE = """
listen: {http: "127.0.0.1:0"}
plugins: [plugins]
tools:
  shell: {description: Hangs., shell: {command: [sleep, "600"]}, timeout: 200ms}
  http: {description: Hangs., http: {url: "http://127.0.0.1:%d/", allow_private: true}, timeout: 200ms}
  http_attempt: {description: Hangs., http: {url: "http://127.0.0.1:%d/", allow_private: true, timeout: 200ms}}
  sync: {python: "house:sync", timeout: 200ms}
  async: {python: "house:wait", timeout: 200ms}
  own: {python: {call: "house:wait", timeout: 200ms}}
"""
PLUGIN = """
import asyncio
import threading

def sync() -> str:
    "Wait for ever."
    threading.Event().wait()
    return "at last"

async def wait() -> str:
    "Wait for ever."
    await asyncio.sleep(600)
    return "at last"
"""


async def _hangs(_request: web.Request) -> web.Response:
    await asyncio.sleep(600)
    return web.Response()


async def test_timeout_message_is_the_same_for_every_backend(tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "house.py").write_text(PLUGIN)
    application = web.Application()
    application.router.add_get("/", _hangs)
    async with listening(application) as port:
        (tmp_path / "config.yaml").write_text(FILE % (port, port))
        async with following(tmp_path / "config.yaml") as followed:
            client = await followed.client(STREAMS["listen"])
            for tool in ("shell", "http", "http_attempt", "sync", "async", "own"):
                text = (await client.call(tool)).text
                assert re.fullmatch(r".+ timed out after 0\.2 s", text.strip()), (tool, text)
