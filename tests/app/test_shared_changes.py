"""What plugins switch is the same at all replicas, in whatever order these hear of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from gateway.app import shared_changes
from gateway.app.shared_changes import SharedChanges
from gateway.catalog.caller_catalogs import CallerCatalogs
from gateway.catalog.store import CatalogStore
from gateway.events import Events
from gateway.protocol.notifier import ChangeNotifier
from gateway.state.keys import SigningKeys
from gateway.state.replica import Replica
from gateway.state.state import DaemonState
from tests.catalog.test_store import catalog
from tests.redis_server import RedisServer, redis_server

SECONDS: Final = 10


class Member:
    """A replica, as far as what is switched is concerned."""

    def __init__(self, replica: Replica) -> None:
        self.replica: Final = replica
        self.store: Final = CatalogStore(catalog(1, "one", "two"))
        self.events: Final = Events()
        self.notifier: Final = ChangeNotifier(CallerCatalogs(), events=self.events)
        self.changes: Final = SharedChanges(replica, store=self.store, notifier=self.notifier, events=self.events)

    def disable(self, name: str) -> None:
        self.store.disable("prompts", name)
        self.notifier.tell_others("disabled", "prompts", name)

    def enable(self, name: str) -> None:
        self.store.enable("prompts", name)
        self.notifier.tell_others("enabled", "prompts", name)

    @property
    def offered(self) -> set[str]:
        return set(self.store.current.prompts)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as it:
        yield it


@pytest.fixture
async def server(stack: AsyncExitStack, tmp_path: Path) -> RedisServer:
    return await stack.enter_async_context(redis_server(tmp_path / "redis"))


async def joined(stack: AsyncExitStack, server: RedisServer) -> Member:
    replica = await stack.enter_async_context(Replica(server.url, clock=lambda: 1000.0))
    member = Member(replica)
    await stack.enter_async_context(member.changes)
    await replica.open()
    return member


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not reached():
            await asyncio.sleep(0.01)


async def test_what_was_enabled_stays_so_though_a_replica_that_has_not_heard_of_it_keeps_what_it_disabled(
    stack: AsyncExitStack, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_changes, "_REFRESH_SECONDS", 0.05)
    here, deaf = await joined(stack, server), await joined(stack, server)
    here.disable("one")
    await until(lambda: "one" not in deaf.offered)
    await deaf.replica.mailbox.close()
    here.enable("one")
    await until(lambda: here.replica.mailbox.sent >= 2)
    refreshed = deaf.replica.store.operations + 4
    await until(lambda: deaf.replica.store.operations >= refreshed)
    assert deaf.offered == {"two"}
    assert (await joined(stack, server)).offered == {"one", "two"}


async def test_what_one_call_switches_again_and_again_ends_the_same_everywhere(
    stack: AsyncExitStack, server: RedisServer
) -> None:
    here, there = await joined(stack, server), await joined(stack, server)
    for _ in range(20):
        here.disable("one")
        here.enable("one")
    here.disable("two")
    await until(lambda: there.replica.mailbox.received >= 41)
    await until(lambda: "two" not in there.offered)
    assert (here.offered, there.offered) == ({"one"}, {"one"})
    assert (await joined(stack, server)).offered == {"one"}


async def test_replicas_that_switch_the_same_at_once_agree_in_the_end(
    stack: AsyncExitStack, server: RedisServer
) -> None:
    members = [await joined(stack, server) for _ in range(3)]

    def have_heard(of: int) -> bool:
        return all(each.replica.mailbox.received >= of for each in members)

    for switched in range(10):
        members[0].disable("one")
        members[1].enable("one")
        members[2].disable("two")
        # Each hears of what the two others have done.
        await until(partial(have_heard, 2 * (switched + 1)))
        await until(lambda: len({frozenset(each.offered) for each in members}) == 1)
        assert members[0].offered == (await joined(stack, server)).offered


async def test_what_was_disabled_and_could_not_be_told_holds_everywhere_a_little_later(
    stack: AsyncExitStack, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_changes, "_REFRESH_SECONDS", 0.05)
    here, there = await joined(stack, server), await joined(stack, server)
    here.store.disable("prompts", "one")
    await until(lambda: "one" not in there.offered)


MALFORMED: Final[list[dict[Any, Any]]] = [
    {b"\xff": b"\xff"},
    {"k": b"\xff\xfe", "i": "1", "f": "x", "b": ""},
    {"k": "reply", "i": b"\xff", "f": b"\xff", "b": b"\xff"},
    {"k": "reply", "i": "2", "f": "x", "b": b"\xff\xff some"},
    {"k": "catalog change", "i": "3", "f": "x", "b": b"\xff"},
    {"k": "signing keys", "i": "4", "f": "x", "b": b"\xff"},
    {"k": "unknown", "i": "5", "f": "x"},
]


async def test_a_malformed_message_does_not_keep_a_replica_from_reading_on(
    stack: AsyncExitStack, server: RedisServer
) -> None:
    here, there = await joined(stack, server), await joined(stack, server)
    for stream in ("announcements", f"mailbox:{there.replica.name}"):
        for message in MALFORMED:
            await server.client.xadd(f"mcp-gateway:{stream}", message)
    here.disable("one")
    await until(lambda: there.offered == {"two"})
    there.replica.mailbox.on("echo", lambda body: asyncio.sleep(0, body))
    assert await here.replica.mailbox.ask(there.replica.name, "echo", b"\xff") == b"\xff"


async def opened(stack: AsyncExitStack, server: RedisServer, *keys: bytes, prefix: str = "") -> Replica:
    state = await stack.enter_async_context(
        DaemonState(None, keys=SigningKeys(keys), store=f"{server.url}?prefix={prefix}")
    )
    assert state.replica is not None
    state.replica.mailbox.on("echo", lambda body: asyncio.sleep(0, body))
    await state.replica.open()
    return state.replica


def strangers(logs: Sequence[Mapping[str, Any]]) -> set[str]:
    return {each["replica"] for each in logs if "other signing keys" in each["event"]}


async def test_a_gateway_with_other_signing_keys_in_the_same_store_is_warned_of(
    stack: AsyncExitStack, server: RedisServer
) -> None:
    with capture_logs() as logs:
        one, two = await opened(stack, server, b"a" * 32), await opened(stack, server, b"b" * 32)
        await until(lambda: strangers(logs) == {one.name, two.name})


async def test_replicas_with_a_key_in_common_and_gateways_with_prefixes_are_not_warned_of(
    stack: AsyncExitStack, server: RedisServer
) -> None:
    with capture_logs() as logs:
        await opened(stack, server, b"c" * 32, prefix="another")
        one, two = await opened(stack, server, b"a" * 32, b"b" * 32), await opened(stack, server, b"b" * 32)
        await until(lambda: one.mailbox.received >= 1)
        assert await two.mailbox.ask(one.name, "echo", b"there") == b"there"
        assert strangers(logs) == set()
