"""Steps of both official clients with a server that sends requests: respond, receive notifications, cancel calls."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

Progress = Callable[[float, float | None, str | None], Awaitable[None]]
SECONDS = 30


class Talker(Protocol):
    """The methods that differ between the two versions of the client."""

    changed: asyncio.Event
    """Set when the list of tools has changed."""

    async def call(self, name: str, arguments: dict[str, Any], progress: Progress | None = None) -> Any: ...
    async def ask_for_logs(self) -> None: ...
    async def cancel(self, calling: "asyncio.Task[Any]") -> None:
        """Cancel a call. The name of the task is that of its tool."""

    def changes(self) -> AbstractAsyncContextManager[asyncio.Event]:
        """Return an event that is set when the list of tools has changed."""

    async def watch(self, uri: str) -> asyncio.Event:
        """Subscribe to a resource. The event is set when the resource was updated."""

    async def tools(self) -> list[str]: ...


class ClientHandlers:
    """Responds to requests of the server, and records requests and notifications."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.logged: list[Any] = []

    def fill_in(self, message: str, form: dict[str, Any] | None) -> tuple[str, dict[str, Any] | None]:
        """Return the action and the content for an elicitation."""
        self.asked.append(message)
        if "no.txt" in message:
            return "decline", None
        fields = (form or {}).get("properties", {})
        return "accept", {name: field.get("default", "Ada") for name, field in fields.items()} if form else None

    def speak(self, text: str) -> str:
        """Return the model's response."""
        self.asked.append(text)
        return f"echo {text}"


async def talk(talker: Talker, handlers: ClientHandlers, plan: Any) -> dict[str, Any]:
    """Use all features in which the server sends requests or notifications, or continue after a proxy restart."""
    if "outlast" in plan:
        return await _outlast(talker, plan)
    heard: list[Any] = []

    async def note(value: float, total: float | None, message: str | None) -> None:
        heard.append([value, total, message])

    outcome = {
        "asked": [_seen(await talker.call(name, {})) for name in ("on_the_loop", "in_a_thread")],
        "confirmed": _seen(await talker.call("by_shell", {"file": "yes.txt"})),
        "declined": _seen(await talker.call("by_shell", {"file": "no.txt"})),
        "counted": _seen(await talker.call("count", {"values": [1, 2, 3]}, note)),
        "progress": heard,
    }
    await talker.ask_for_logs()
    await talker.call("talk", {})
    return {
        **outcome,
        "cancelled": await _cancelled(talker),
        "tools": await _after_an_edit(talker, **plan["edit"]),
        "questions": handlers.asked,
        "logged": handlers.logged,
    }


async def _outlast(talker: Talker, plan: Any) -> dict[str, Any]:
    before = _seen(await talker.call("count", {"values": [1, 2, 3]}))
    Path(plan["outlast"]["go"]).touch()
    async with asyncio.timeout(SECONDS):
        while not Path(plan["outlast"]["gone_and_back"]).exists():
            await asyncio.sleep(0.05)
    after = _seen(await talker.call("count", {"values": [1, 2, 3]}))
    return {"before": before, "after": after, "tools": await _after_an_edit(talker, **plan["edit"])}


async def _cancelled(talker: Talker) -> Any:
    calling = asyncio.create_task(talker.call("wait", {"key": "k"}), name="wait")
    await talker.call("reach", {"key": "k", "state": "running"})
    await talker.cancel(calling)
    state = _seen(await talker.call("reach", {"key": "k", "state": "cancelled"}))
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    return state


async def _after_an_edit(talker: Talker, path: str, old: str, new: str) -> list[str]:
    async with talker.changes() as changed:
        Path(path).write_text(Path(path).read_text().replace(old, new))
        await asyncio.wait_for(changed.wait(), SECONDS)
    return await talker.tools()


def _seen(result: Any) -> Any:
    seen = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return [seen.get("isError", False), seen.get("structuredContent", seen["content"][0]["text"])]
