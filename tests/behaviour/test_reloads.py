"""Reloads: running calls, plugins, sessions, errors and renamed definitions."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest

from gateway.json_types import Json
from tests.behaviour.cells import HTTP, LATEST, LATEST_LEGACY, Cell
from tests.behaviour.client import Client, listed
from tests.behaviour.daemons import COUNT
from tests.behaviour.following import CHANGED, STREAMS, Followed, following, save
from tests.fork_server import FORKED
from tests.waiting import until

MODERN: Final = Cell(binding=HTTP, revision=LATEST)
LEGACY: Final = Cell(binding=HTTP, revision=LATEST_LEGACY)
TOOLS: Final = CHANGED.format("tools")

PLUGIN: Final = """
    import asyncio
    from pathlib import Path
    from gateway.plugin import Context

    with open({marks!r}, "a") as marks:
        marks.write("{version}")

    VERSION = "{version}"

    async def waits(path: str) -> str:
        '''Waits until there is a file.'''
        Path(path + ".begun").touch()
        while not Path(path).exists():
            await asyncio.sleep(0.01)
        return VERSION

    async def switch(context: Context, on: bool) -> None:
        '''Switches another tool.'''
        (context.enable if on else context.disable)("tools", "sometimes")
"""
CONFIG: Final = dedent("""
    plugins: [plugins]
    tools:
      waits: {python: "house:waits"}
      switch: {python: "house:switch"}
      sometimes: {description: Sometimes., content: [{text: here}]}
""")
NEXT: Final = CONFIG + "  more: {description: More., content: []}\n"
BROKEN: Final = "tools: {broken: {shell: {command: 7}}}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plugins").mkdir()
    write_plugin(tmp_path, "1")
    save(tmp_path / "config.yaml", CONFIG)
    return tmp_path


def write_plugin(folder: Path, version: str) -> None:
    save(folder / "plugins" / "house.py", dedent(PLUGIN).format(marks=str(folder / "marks"), version=version))


@asynccontextmanager
async def asked(folder: Path, *flags: str) -> AsyncIterator[Followed]:
    """A daemon that reloads only on request."""
    async with following(folder / "config.yaml", *flags, watch=False) as followed:
        yield followed


async def names(client: Client) -> list[str]:
    return [tool["name"] for tool in await listed(client, "tools/list", "tools")]


async def begin_to_wait(client: Client, path: Path) -> asyncio.Task[str]:
    """Start a call that runs until the file exists."""

    async def call() -> str:
        return (await client.call("waits", path=str(path))).text

    calling = asyncio.create_task(call())
    await until(lambda: path.with_name(f"{path.name}.begun").exists())
    return calling


@pytest.mark.parametrize("stream", STREAMS)
async def test_running_call_keeps_its_catalog_and_code(folder: Path, stream: str) -> None:
    async with asked(folder) as followed:
        client = await followed.client(STREAMS[stream])
        calling = await begin_to_wait(client, folder / "go")
        write_plugin(folder, "2")
        save(folder / "config.yaml", "tools: {other: {content: []}}")
        assert (await followed.reload())[0] == 200
        save(folder / "config.yaml", CONFIG)
        assert (await followed.reload())[0] == 200
        save(folder / "config.yaml", "tools: {other: {content: []}}")
        assert (await followed.reload())[0] == 200
        assert await names(client) == ["other"]
        (folder / "go").touch()
        assert await calling == "1"


async def test_unchanged_plugin_is_not_imported_again(folder: Path) -> None:
    async with asked(folder) as followed:
        for config in (NEXT, BROKEN, CONFIG):
            save(folder / "config.yaml", config)
            await followed.reload()
        assert (folder / "marks").read_text() == "1" * COUNT
        write_plugin(folder, "2")
        await followed.reload()
        assert (folder / "marks").read_text() == "1" * COUNT + "2" * COUNT
        (folder / "go").touch()
        client = await followed.client(MODERN)
        assert (await client.call("waits", path=str(folder / "go"))).text == "2"


async def test_disabled_tool_stays_disabled_after_reloads(folder: Path) -> None:
    async with asked(folder) as followed:
        client, listener = await followed.client(MODERN), await followed.listener("listen")
        await client.call("switch", on=False)
        await listener.notification(TOOLS)
        save(folder / "config.yaml", NEXT)
        await followed.reload()
        await listener.notification(TOOLS)
        assert await names(client) == ["waits", "switch", "more"]
        await client.call("switch", on=True)
        await listener.notification(TOOLS)
        assert await names(client) == ["waits", "switch", "sometimes", "more"]
        assert listener.received() == []


async def test_invalid_file_is_reported_until_corrected_and_changes_nothing(folder: Path) -> None:
    async with asked(folder) as followed:
        listeners = await followed.listeners()
        before = await followed.get("/-/status")
        save(folder / "config.yaml", BROKEN)
        status, report = await followed.reload()
        assert status == 422
        assert "config.yaml:1:" in report["problems"][0]
        assert report["generation"] == 1
        for path in ("/-/status", "/-/ready"):
            assert (await followed.get(path))["problems"] == report["problems"]
        after = await followed.get("/-/status")
        assert (after["generation"], after["files"], after["tools"]) == (1, before["files"], before["tools"])
        assert (await followed.get("/-/ready"))["ready"]
        code, said = await status_command(followed)
        assert code == 1
        assert report["problems"][0] in said
        save(folder / "config.yaml", NEXT)
        assert await followed.reload() == (200, {"generation": 2, "problems": []})
        for path in ("/-/status", "/-/ready"):
            assert (await followed.get(path))["problems"] == []
        assert (await followed.get("/-/status"))["files"] != before["files"]
        assert (await status_command(followed))[0] == 0
        for listener in listeners:
            await listener.notification(TOOLS)
            assert listener.received() == []


async def status_command(followed: Followed) -> tuple[int, str]:
    url = followed.own_urls[0]
    process = await asyncio.create_subprocess_exec(*(FORKED, "status", "--url", url), stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(20):
        said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_changes_that_need_a_restart_are_reported(folder: Path) -> None:
    async with asked(folder) as followed:
        save(folder / "config.yaml", NEXT + "listen: {path: /elsewhere}")
        assert (await followed.reload())[0] == 200
        assert (await followed.get("/-/status"))["restart_required"] == ["listen"]
        assert "more" in await names(await followed.client(MODERN))
        save(folder / "config.yaml", NEXT)
        await followed.reload()
        assert (await followed.get("/-/status"))["restart_required"] == []


async def test_sighup_reloads(folder: Path) -> None:
    async with asked(folder) as followed:
        listener = await followed.listener("listen")
        save(folder / "config.yaml", NEXT)
        followed.daemon.signal(signal.SIGHUP)
        await listener.notification(TOOLS)
        assert await followed.generation() == 2


async def test_no_watch_only_reloads_on_request(folder: Path) -> None:
    async with asked(folder, "--poll", "10ms") as followed:
        listener = await followed.listener("listen")
        save(folder / "config.yaml", NEXT + "prompts: {p: {messages: [user: x]}}")
        save(folder / "config.yaml", NEXT)
        await followed.reload()
        await listener.notification(TOOLS)
        assert listener.received() == []
        assert await followed.generation() == 2


async def test_polling_finds_changes_without_events(folder: Path) -> None:
    """A write through a hard link in another directory causes no event in the watched directory."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "other.yaml").hardlink_to(folder / "config.yaml")
    async with following(folder / "config.yaml", "--poll", "200ms") as followed:
        listener = await followed.listener("listen")
        for generation, text in ((2, NEXT), (3, CONFIG)):
            (elsewhere / "other.yaml").write_text(text)
            await listener.notification(TOOLS)
            assert await followed.generation() == generation
        assert listener.received() == []


async def test_alias_of_an_old_name_works(tmp_path: Path) -> None:
    save(tmp_path / "config.yaml", "tools: {old: {content: []}}")
    async with asked(tmp_path) as followed:
        client = await followed.client(MODERN)
        save(
            tmp_path / "config.yaml",
            """
            tools: {new: {aliases: [old], content: [{text: works}]}}
            prompts: {new: {aliases: [old], messages: [user: x]}}
            resources: {new: {uri: "x:new", aliases: ["x:old"], text: works}}
            """,
        )
        assert (await followed.reload())[0] == 200
        assert await names(client) == ["new"]
        assert (await client.call("old")).text == "works"
        assert "messages" in (await client.ask("prompts/get", {"name": "old"})).result
        contents: Json = (await client.ask("resources/read", {"uri": "x:old"})).result["contents"]
        assert contents[0]["text"] == "works"


async def test_subscription_to_an_old_uri_is_notified(tmp_path: Path) -> None:
    save(tmp_path / "config.yaml", 'resources: {a: {uri: "x:new", aliases: ["x:old"], text: one}}')
    async with asked(tmp_path) as followed:
        listener = await followed.listener("get", "x:old")
        save(tmp_path / "config.yaml", 'resources: {a: {uri: "x:new", aliases: ["x:old"], text: two}}')
        await followed.reload()
        assert await listener.notification("notifications/resources/updated") == {"uri": "x:old"}
