"""A daemon with a console in this process, and a client of its API."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
from gateway.json_types import JsonObject
from gateway.wire.event_parser import EventParser
from tests.e2e.daemon import post_call

SECONDS: Final = 60
CONSOLE: Final = "listen: {console: true}\n"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    data: Any
    id: str


class Events:
    """An open event stream and its events so far."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._parser = EventParser()
        self.seen: list[Seen] = []

    async def until(self, is_wanted: Callable[[Seen], bool]) -> Seen:
        """Read until an event matches, and return it."""
        at = 0
        while True:
            for event in self.seen[at:]:
                if is_wanted(event):
                    return event
            at = len(self.seen)
            assert await self.read(), [each.kind for each in self.seen]

    async def until_end(self) -> None:
        while await self.read():
            pass

    async def first(self, kind: str) -> Any:
        return (await self.until(lambda event: event.kind == kind)).data

    async def read(self) -> bool:
        """Read more. Return False at the end."""
        chunk = await self._response.content.readany()
        for event in self._parser.feed(chunk):
            if event.data:
                self.seen.append(Seen(kind=event.name, data=msgspec.json.decode(event.data), id=event.id or ""))
        return bool(chunk)


class Watched:
    """A daemon and an operator."""

    def __init__(self, gateway: Gateway, http: aiohttp.ClientSession, config: Path) -> None:
        self.gateway = gateway
        self.http = http
        self.config = config
        self.url = gateway.url or ""
        base, _, rest = (gateway.console_link or "").partition("/-/console/")
        token = rest.removeprefix("?token=")
        self.api = f"{base}/-/api"
        self.bearer = {"Authorization": f"Bearer {token}"}

    async def get(self, path: str, query: Mapping[str, str] | None = None, *, status: int = 200) -> Any:
        async with self.http.get(f"{self.api}{path}", params=query or {}, headers=self.bearer) as response:
            assert response.status == status, await response.text()
            return await response.json()

    async def ask(self, method: str, path: str, *, status: int = 200) -> Any:
        async with self.http.request(method, f"{self.api}{path}", headers=self.bearer) as response:
            assert response.status == status, await response.text()
            return await response.json() if response.content_length else None

    async def call(self, tool: str, **arguments: Any) -> JsonObject:
        answer: JsonObject = await post_call(self.http, self.url, tool, **arguments)
        return answer

    async def only_call(self, **query: str) -> Any:
        """Return the details of the only call of a kind."""
        [call] = (await self.get("/calls", query))["calls"]
        return await self.get(f"/calls/{call['seq']}")

    @asynccontextmanager
    async def events(self, **query: str) -> AsyncIterator[Events]:
        async with self.http.get(f"{self.api}/events", params=query, headers=self.bearer) as response:
            assert response.status == 200, await response.text()
            events = Events(response)
            await events.first("hello")
            yield events


@asynccontextmanager
async def watched(folder: Path, text: str, **settings: Any) -> AsyncIterator[Watched]:
    """Serve a file. If it has no section `listen`, it gets `CONSOLE`."""
    config = folder / "config.yaml"
    config.write_text(text if "listen:" in text else CONSOLE + text)
    given = {"config": config, "log_level": "error", "no_watch": True, "http": "127.0.0.1:0", "state_dir": "none"}
    async with (
        asyncio.timeout(SECONDS),
        Gateway(read_settings({**given, **settings})) as gateway,
        aiohttp.ClientSession() as http,
    ):
        await gateway.start()
        yield Watched(gateway, http, config)
