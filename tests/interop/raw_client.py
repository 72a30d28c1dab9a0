"""A client without a library, in both eras. It tries each step at most twice, and counts the outcomes."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp
import orjson

from gateway.json_types import Json
from tests.interop.drivers.endure import PAUSE_SECONDS
from tests.messages import BOTH, initialize_request, modern_headers, modern_request
from tests.waiting import until

SECONDS: Final = 20
TASK_SECONDS: Final = 60
"""The time for a lease and the work, twice, because the next replica can fail too."""
ROUND_SECONDS: Final = 150
STOPPED: Final = "the server stopped before the task finished"
TASKS: Final[dict[str, Json]] = {
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}
}


class RawClient:
    """A client with a session, which also sends modern requests."""

    def __init__(self, url: str, http: aiohttp.ClientSession, *, name: str) -> None:
        self.name: Final = name
        self.counts: Final[Counter[str]] = Counter()
        self.lost: Final[list[str]] = []
        self._url: Final = url
        self._http: Final = http
        self._session: dict[str, str] = {}
        self._number = 0
        self._is_over = False

    @property
    def rounds(self) -> int:
        return self.counts["rounds"]

    async def until(self, rounds: int) -> None:
        await until(lambda: self.rounds >= rounds)

    def stop(self) -> None:
        """Stop after the current round."""
        self._is_over = True

    async def go_on(self) -> None:
        """Run rounds and concurrent tasks until stopped."""
        await self._open()
        tasks = asyncio.create_task(self._work())
        while not self._is_over:
            await self._try(self._modern_call)
            await self._try(self._question)
            await self._try(self._resumption)
            self.counts["rounds"] += 1
            await asyncio.sleep(PAUSE_SECONDS)
        await tasks

    async def _work(self) -> None:
        while not self._is_over:
            await self._try(self._task, seconds=TASK_SECONDS)
            await self._try(self._task_without_restart, seconds=TASK_SECONDS)

    async def _open(self) -> None:
        message = initialize_request(elicitation={})
        async with self._http.post(self._url, json=message, headers={"Accept": BOTH}) as response:
            self._session = {"Accept": BOTH, "Mcp-Session-Id": response.headers["Mcp-Session-Id"]}
        await self._send_message({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def _try(self, step: Callable[[], Awaitable[None]], *, seconds: float = SECONDS) -> None:
        name, why = step.__name__.removeprefix("_"), ""
        self.counts["made"] += 1
        for attempt in range(2):
            try:
                async with asyncio.timeout(seconds):
                    await step()
            except (aiohttp.ClientError, TimeoutError, AssertionError) as error:
                why = f"{why} {error!r}"
                continue
            self.counts["answered"] += 1
            self.counts["repeated"] += attempt
            self.counts[f"repeated {name}"] += attempt
            return
        self.lost.append(f"{name}:{why}"[:500])

    async def _modern_call(self) -> None:
        assert (await self._ask("tools/call", name="here", arguments={}))["content"]

    async def _question(self) -> None:
        """Receive a question on the stream of a call, and send the answer in another request."""
        async with self._http.post(self._url, json=self._call("named"), headers=self._session) as response:
            async for line in response.content:
                if not line.startswith(b"data: {"):
                    continue
                said = orjson.loads(line[6:])
                if said.get("method") == "elicitation/create":
                    answer: Json = {"action": "accept", "content": {"name": "Ada"}}
                    await self._send_message({"jsonrpc": "2.0", "id": said["id"], "result": answer})
                elif said.get("id") == self._number:
                    assert "Ada" in line.decode(), line
                    return
        raise AssertionError("the stream ended without the response")

    async def _resumption(self) -> None:
        """Lose the connection of a call, and resume its stream at another replica."""
        key = uuid.uuid4().hex
        call = self._call("wait", key=key, token="t")
        async with self._http.post(self._url, json=call, headers=self._session) as response:
            last = ""
            async for line in response.content:
                if line.startswith(b"id: "):
                    last = line[4:].decode().strip()
                if b"notifications/progress" in line:
                    break
        await self._ask("tools/call", name="release", arguments={"key": key})
        resuming = {**self._session, "Accept": "text/event-stream", "Last-Event-ID": last}
        async with self._http.get(self._url, headers=resuming) as response:
            async for line in response.content:
                if line.startswith(b"data: {") and orjson.loads(line[6:]).get("id") == call["id"]:
                    assert b"released" in line, line
                    return
        raise AssertionError("the stream ended without the response")

    async def _task(self) -> None:
        task = await self._ended("work")
        assert task["status"] == "completed", task

    async def _task_without_restart(self) -> None:
        """Start a task that cannot be restarted. If its replica fails, it reports the reason."""
        task = await self._ended("work_once")
        if task["status"] != "completed":
            assert (task["status"], task["statusMessage"]) == ("failed", STOPPED), task
            self.counts["ended with its replica"] += 1

    async def _ended(self, tool: str) -> Json:
        made = await self._ask("tools/call", name=tool, arguments={"key": uuid.uuid4().hex})
        assert made["resultType"] == "task", made
        while True:
            try:
                task = await self._ask("tasks/get", taskId=made["taskId"])
            except (aiohttp.ClientError, TimeoutError):  # polled again
                self.counts["polls repeated"] += 1
                continue
            if task["status"] != "working":
                return task
            await asyncio.sleep(0.1)

    async def _ask(self, method: str, **params: Json) -> Json:
        body = modern_request(method, {**params, "_meta": TASKS}, request_id=uuid.uuid4().hex)
        headers = modern_headers(method, {}, Accept=BOTH)
        headers["Mcp-Name"] = str(params.get("name") or params["taskId"])
        async with self._http.post(self._url, json=body, headers=headers) as response:
            response.raise_for_status()
            answer = await response.json()
            assert "result" in answer, answer
            return answer["result"]

    def _call(self, tool: str, token: str = "", **arguments: Json) -> dict[str, Json]:
        self._number += 1
        params = {"name": tool, "arguments": arguments, **({"_meta": {"progressToken": token}} if token else {})}
        return {"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params}

    async def _send_message(self, message: Json) -> None:
        for _ in range(2):
            try:
                async with self._http.post(self._url, json=message, headers=self._session) as response:
                    if response.status == 202:
                        return
            except (aiohttp.ClientError, TimeoutError):
                continue
        raise aiohttp.ClientError("the message was not accepted")
