"""Many reloads under load: no call fails, no list is mixed, and each client gets one notification per change."""

import asyncio
from collections.abc import Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import pytest

from gateway.json_types import Json
from tests.behaviour.cells import HTTP, LATEST, LATEST_LEGACY, Cell
from tests.behaviour.client import Client, listed
from tests.behaviour.daemons import COUNT
from tests.behaviour.following import Followed, Listener, following, save
from tests.examples import IS_CI

RELOADS: Final = 100 if IS_CI else 34
"""Every third reload changes nothing. The last one must change something."""
STREAMS: Final[Mapping[str, int]] = {"stdio": 1, "get": 17, "sse": 16, "listen": 16}
SECONDS: Final = 240 * COUNT
TOOLS: Final = 30
CATALOGS: Final = {letter: [f"{letter}{number}" for number in range(TOOLS)] for letter in "ab"}


def written(letter: str) -> str:
    tools = {name: {"description": "Says who it is.", "content": [{"text": name}]} for name in CATALOGS[letter]}
    echo: Json = {"description": "Says it again.", "input": {"text": "string"}, "content": [{"text": "{{ text }}"}]}
    return f"tools: {tools | {'echo': echo}}"


@pytest.mark.build
async def test_many_reloads_under_load(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    save(config, written("b"))
    async with asyncio.timeout(SECONDS), following(config) as followed:
        listeners = [await followed.listener(stream) for stream, number in STREAMS.items() for _ in range(number)]
        load = [
            asyncio.create_task(work(await followed.client(Cell(binding=HTTP, revision=revision))))
            for revision in (LATEST, LATEST_LEGACY)
        ]
        for number, letter in enumerate(islice(cycle(["a", "b", None]), RELOADS)):
            if letter is None:
                await refuse(followed)
            else:
                await change(followed, listeners, letter)
            assert not any(task.done() for task in load), number
        for task in load:
            task.cancel()
        worked = await asyncio.gather(*load, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in worked), worked
        save(config, written("a") + "\nprompts: {p: {messages: [user: hello]}}")
        for listener in listeners:
            await listener.list_changed("prompts")
            assert listener.received() == []


@pytest.mark.build
async def test_thousand_tools_reload_during_calls(tmp_path: Path) -> None:
    """The bounds are generous for busy machines. Usually, reloads take a second and calls take milliseconds."""
    config = tmp_path / "config.yaml"
    tool: Json = {
        "description": "Looks.",
        "input": {"path": "string", "depth": {"type": "integer", "default": 1}},
        "shell": {"command": ["du", "--max-depth={{ depth }}", "--", "{{ path }}"]},
    }
    echo: Json = {"description": "Says it again.", "input": {"text": "string"}, "content": [{"text": "{{ text }}"}]}
    save(config, f"tools: {{echo: {echo}}}")
    async with asyncio.timeout(SECONDS), following(config) as followed:
        listener, client = await followed.listener("listen"), await followed.client(Cell(binding=HTTP, revision=LATEST))
        told = asyncio.create_task(listener.list_changed("tools"))
        save(config, f"tools: { {f't{number}': tool for number in range(1000)} | {'echo': echo} }")
        answered = 0
        while not told.done():
            assert (await client.call("echo", text="x")).text == "x"
            answered += 1
        assert answered > 10  # calls continued during the reload


async def change(followed: Followed, listeners: list[Listener], letter: str) -> None:
    save(followed.config, written(letter))
    await asyncio.gather(*(listener.list_changed("tools") for listener in listeners))


async def refuse(followed: Followed) -> None:
    save(followed.config, "tools: {broken: {shell: {command: 7}}}")
    await followed.until(lambda status: bool(status["problems"]))


async def work(client: Client) -> None:
    """Call a tool that always exists, and list tools, in an endless loop."""
    whole = {frozenset([*names, "echo"]) for names in CATALOGS.values()}
    while True:
        assert (await client.call("echo", text="x")).text == "x"
        tools = await listed(client, "tools/list", "tools")
        assert frozenset(tool["name"] for tool in tools) in whole
