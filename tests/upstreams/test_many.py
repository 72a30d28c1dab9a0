"""A hundred upstreams."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
from gateway.json_types import Json

UPSTREAMS: Final = 100
TOOLS: Final = 20
SECONDS: Final = 60.0


class Servers:
    """Modern servers in one process, one per path, that count their requests."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    async def answer(self, request: web.Request) -> web.Response:
        message = await request.json()
        number, method = request.match_info["number"], message["method"]
        self.asked[method] += 1
        result = self._result(number, method, message["params"])
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    @staticmethod
    def _result(number: str, method: str, params: dict[str, Json]) -> dict[str, Json]:
        match method:
            case "server/discover":
                known: dict[str, Json] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
                return {**known, "resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
            case "tools/list":
                tools = [{"name": f"tool{each}", "inputSchema": {"type": "object"}} for each in range(TOOLS)]
                return {"resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "public"}
            case _:
                text = f"{number} {params['name']}"
                return {"resultType": "complete", "content": [{"type": "text", "text": text}]}


@pytest.mark.build
async def test_hundred_upstreams_are_listed_in_order_without_requests(tmp_path: Path) -> None:
    servers, app = Servers(), web.Application()
    app.router.add_post("/{number}", servers.answer)
    async with TestServer(app) as server, asyncio.timeout(SECONDS):
        path = tmp_path / "config.yaml"
        # Neither the names nor the entries are sorted.
        numbers = [number * 37 % UPSTREAMS for number in range(UPSTREAMS)]
        base = server.make_url("/")
        entries = "".join(f"  up{number}: {{url: {base}{number}, allow_private: true}}\n" for number in numbers)
        path.write_text(f"server: {{page_size: 300}}\ntools: {{own: {{content: x}}}}\nupstreams:\n{entries}")
        given = {"config": path, "log_level": "error", "no_watch": True, "http": "127.0.0.1:0", "state_dir": "none"}
        async with Gateway(read_settings(given)) as gateway:
            await gateway.start()
            client = gateway.memory_client()

            async def listed() -> list[str]:
                names: list[str] = []
                cursor: dict[str, Json] = {}
                while True:
                    page = await client.request("tools/list", cursor)
                    names += [tool["name"] for tool in page["tools"]]
                    if "nextCursor" not in page:
                        return names
                    cursor = {"cursor": page["nextCursor"]}

            expected = ["own", *(f"up{number}_tool{each}" for number in numbers for each in range(TOOLS))]
            while len(await listed()) < len(expected):
                await asyncio.sleep(0.05)
            asked = servers.asked.copy()
            assert asked["tools/list"] == UPSTREAMS
            for _ in range(3):
                assert await listed() == expected
            assert servers.asked == asked
            for number in (numbers[0], numbers[50], numbers[-1]):
                result = await client.request("tools/call", {"name": f"up{number}_tool19", "arguments": {}})
                assert result["content"][0]["text"] == f"{number} tool19"
            assert servers.asked["tools/call"] == 3
