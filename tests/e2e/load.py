"""Clients that make a fixed number of calls at a steady rate, even while the daemon restarts."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import aiohttp
import orjson

from gateway.json_types import Json
from tests.messages import BOTH, MODERN, initialize_request, modern_request


@dataclass(kw_only=True)
class CallCounts:
    answered: int = 0
    retried: int = 0
    """Calls that were repeated after a failed connection, once each."""
    initialized: Counter[int] = field(default_factory=Counter)
    """The number of sessions of each client."""
    failures: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Load:
    """Modern clients, which also read the pages of a list, and legacy clients with a session each."""

    url: str
    http: aiohttp.ClientSession
    counts: CallCounts = field(default_factory=CallCounts)
    _cursors: dict[int, str | None] = field(default_factory=dict)
    _sessions: dict[int, str] = field(default_factory=dict)
    _opening: dict[int, asyncio.Lock] = field(default_factory=dict)

    async def run(self, *, rate: int, seconds: float, clients: int, legacy: int) -> None:
        """Make `rate` calls per second. The first `legacy` of the clients use sessions."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with asyncio.TaskGroup() as group:
            for number in range(int(rate * seconds)):
                await asyncio.sleep(start + number / rate - loop.time())
                client = number % clients
                group.create_task(self._count(client, number, is_legacy=client < legacy))

    async def _count(self, client: int, number: int, *, is_legacy: bool) -> None:
        try:
            async with asyncio.timeout(60):
                await (self._legacy(client, number) if is_legacy else self._modern(client, number))
        except (aiohttp.ClientError, AssertionError, TimeoutError) as error:
            self.counts.failures.append(f"call {number}, {'legacy' if is_legacy else 'modern'}: {error!r}")
        else:
            self.counts.answered += 1

    async def _modern(self, client: int, number: int) -> None:
        if number % 3:
            params = {"name": "echo", "arguments": {"text": f"call {number}"}}
            answer = await self._modern_result("tools/call", params, {"Mcp-Name": "echo"})
            assert answer["content"][0]["text"] == f"call {number}"
        else:
            cursor = self._cursors.get(client)
            answer = await self._modern_result("tools/list", {} if cursor is None else {"cursor": cursor}, {})
            self._cursors[client] = answer.get("nextCursor")

    async def _modern_result(self, method: str, params: dict[str, Json], fields: dict[str, str]) -> Json:
        fields = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **fields}
        status, _, answer = await self._post(modern_request(method, params), fields)
        assert status == 200, answer
        assert "result" in answer, answer
        return answer["result"]

    async def _legacy(self, client: int, number: int) -> None:
        params = {"name": "echo", "arguments": {"text": f"call {number}"}}
        body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        for _ in range(2):
            session = await self._session(client)
            status, _, answer = await self._post(body, {"Mcp-Session-Id": session})
            if status != 404:
                break
            if self._sessions.get(client) == session:
                del self._sessions[client]  # the session has ended, so a new one is opened
        assert status == 200, answer
        assert "result" in answer, answer
        assert answer["result"]["content"][0]["text"] == f"call {number}"

    async def _session(self, client: int) -> str:
        async with self._opening.setdefault(client, asyncio.Lock()):
            if client not in self._sessions:
                status, headers, answer = await self._post(initialize_request(), {})
                assert status == 200, answer
                self.counts.initialized[client] += 1
                self._sessions[client] = headers["Mcp-Session-Id"]
                done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                await self._post(done, {"Mcp-Session-Id": self._sessions[client]})
            return self._sessions[client]

    async def _post(self, body: Json, fields: dict[str, str]) -> tuple[int, dict[str, str], Json]:
        try:
            return await self._post_once(body, fields)
        except aiohttp.ClientConnectionError:
            self.counts.retried += 1
            return await self._post_once(body, fields)

    async def _post_once(self, body: Json, fields: dict[str, str]) -> tuple[int, dict[str, str], Json]:
        async with self.http.post(self.url, json=body, headers={"Accept": BOTH, **fields}) as response:
            return response.status, dict(response.headers), _message(await response.text())


def _message(text: str) -> Json:
    """Return the response: the body, or the last event of an event stream."""
    *_, last = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith(("{", "data: {"))] or [""]
    return orjson.loads(last) if last else {}
