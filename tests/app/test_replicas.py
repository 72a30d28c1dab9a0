"""Replicas agree on the primitives that plugins enable and disable."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from gateway.app import replicas
from gateway.app.replicas import AnnouncementsDue, CatalogAgreement, SharedChanges, announce
from gateway.catalog.catalog import CallerCatalogs, Catalog
from gateway.catalog.store import CatalogStore
from gateway.events import Events, SignInsChanged
from gateway.protocol.notifier import ChangeNotifier
from gateway.state.keys import SigningKeys
from gateway.state.replica import Replica
from gateway.state.state import DaemonState
from tests.captured_logs import capture_logs
from tests.catalog.test_store import catalog, serve
from tests.redis_server import RedisServer, redis_server
from tests.waiting import until

SECONDS: Final = 10


class Member:
    """A replica with its catalog store."""

    def __init__(self, replica: Replica) -> None:
        self.replica: Final = replica
        self.store: Final = CatalogStore(catalog(1, "one", "two"))
        self.events: Final = Events()
        self.notifier: Final = ChangeNotifier(self.store, CallerCatalogs(), events=self.events)
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
    stack.push_async_callback(member.changes.close)
    await replica.open()
    return member


async def test_late_refresh_does_not_disable_an_enabled_primitive(
    stack: AsyncExitStack, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_REFRESH_SECONDS", 0.05)
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


async def test_repeated_switches_converge_at_all_replicas(stack: AsyncExitStack, server: RedisServer) -> None:
    here, there = await joined(stack, server), await joined(stack, server)
    for _ in range(20):
        here.disable("one")
        here.enable("one")
    here.disable("two")
    await until(lambda: there.replica.mailbox.received >= 41)
    await until(lambda: "two" not in there.offered)
    assert (here.offered, there.offered) == ({"one"}, {"one"})
    assert (await joined(stack, server)).offered == {"one"}


async def test_concurrent_switches_converge_at_all_replicas(stack: AsyncExitStack, server: RedisServer) -> None:
    members = [await joined(stack, server) for _ in range(3)]

    def have_received(of: int) -> bool:
        return all(each.replica.mailbox.received >= of for each in members)

    for switched in range(10):
        members[0].disable("one")
        members[1].enable("one")
        members[2].disable("two")
        # Each replica receives the changes of the other two.
        await until(partial(have_received, 2 * (switched + 1)))
        await until(lambda: len({frozenset(each.offered) for each in members}) == 1)
        assert members[0].offered == (await joined(stack, server)).offered


async def test_disabled_primitive_is_shared_once_the_store_is_back(
    stack: AsyncExitStack, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_REFRESH_SECONDS", 0.05)
    here, there = await joined(stack, server), await joined(stack, server)
    here.store.disable("prompts", "one")
    await until(lambda: "one" not in there.offered)


def lists(tools: str, prompts: str) -> Catalog:
    return replace(catalog(1), fingerprints={"tools": tools, "prompts": prompts, "resources": "same"})


async def agreeing(stack: AsyncExitStack, server: RedisServer) -> tuple[CatalogStore, ChangeNotifier]:
    replica = await stack.enter_async_context(Replica(server.url, clock=lambda: 1000.0))
    store, events = CatalogStore(lists("old", "old")), Events()
    agreement = CatalogAgreement(replica, store=store, events=events)
    stack.push_async_callback(agreement.close)
    notifier = ChangeNotifier(store, CallerCatalogs(), events=events, agreement=agreement)
    events.subscribe(AnnouncementsDue, partial(announce, notifier=notifier))
    await replica.open()
    return store, notifier


async def test_change_is_held_while_an_earlier_announcement_is_repeated(
    stack: AsyncExitStack, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_FOLLOW_SECONDS", 0.5)
    members = [await agreeing(stack, server) for _ in range(2)]
    stores, notifiers = zip(*members, strict=True)
    here, there = stores
    async with asyncio.timeout(SECONDS):
        while await server.client.hlen("mcp-gateway:catalogs") < 6:
            await asyncio.sleep(0.01)
    with notifiers[0].listen(frozenset({"tools", "prompts"}), frozenset(), scopes=None) as subscription:

        def announced() -> list[str]:
            methods = [message["method"].split("/")[1] for message in subscription.outbox.messages.values()]
            subscription.outbox.messages.clear()
            return methods

        serve(here, lists("new", "old"))
        await until(lambda: bool(subscription.outbox.messages))  # after the timeout
        assert announced() == ["tools"]
        serve(here, lists("old", "new"))
        # `tools` is announced again, because all replicas have the old list
        await until(lambda: bool(subscription.outbox.messages))
        assert announced() == ["tools"]
        serve(there, lists("old", "new"))
        await until(lambda: bool(subscription.outbox.messages))
        assert "prompts" in announced()


async def test_error_of_redis_does_not_stop_announcements(stack: AsyncExitStack, server: RedisServer) -> None:
    await server.client.set("mcp-gateway:catalogs", "not a hash")
    with capture_logs() as logs:
        store, notifier = await agreeing(stack, server)
        await until(lambda: any(each["event"] == "lists not compared with other replicas" for each in logs))
    with notifier.listen(frozenset({"tools"}), frozenset(), scopes=None) as subscription:
        serve(store, lists("new", "old"))
        await until(lambda: bool(subscription.outbox.messages))
    await server.client.delete("mcp-gateway:catalogs")


MALFORMED: Final[list[dict[Any, Any]]] = [
    {b"\xff": b"\xff"},
    {"k": b"\xff\xfe", "i": "1", "f": "x", "b": ""},
    {"k": "reply", "i": b"\xff", "f": b"\xff", "b": b"\xff"},
    {"k": "reply", "i": "2", "f": "x", "b": b"\xff\xff some"},
    {"k": "catalog change", "i": "3", "f": "x", "b": b"\xff"},
    {"k": "signing keys", "i": "4", "f": "x", "b": b"\xff"},
    {"k": "unknown", "i": "5", "f": "x"},
]


async def test_malformed_message_does_not_stop_the_mailbox(stack: AsyncExitStack, server: RedisServer) -> None:
    here, there = await joined(stack, server), await joined(stack, server)
    for stream in ("announcements", f"mailbox:{there.replica.name}"):
        for message in MALFORMED:
            await server.client.xadd(f"mcp-gateway:{stream}", message)
    here.disable("one")
    await until(lambda: there.offered == {"two"})
    there.replica.mailbox.on("echo", lambda body: asyncio.sleep(0, body))
    assert await here.replica.mailbox.ask(there.replica.name, "echo", b"\xff") == b"\xff"


async def opened(stack: AsyncExitStack, server: RedisServer, *keys: bytes, prefix: str = "") -> None:
    state = await stack.enter_async_context(
        DaemonState(None, keys=SigningKeys(keys), store=f"{server.url}?prefix={prefix}")
    )
    assert state.replica is not None
    await state.replica.open()


def warnings_of_keys(logs: Sequence[Mapping[str, Any]]) -> int:
    return sum("different signing keys" in each["event"] for each in logs)


async def test_different_signing_keys_in_one_store_are_a_warning(stack: AsyncExitStack, server: RedisServer) -> None:
    with capture_logs() as logs:
        await opened(stack, server, b"a" * 32)
        assert warnings_of_keys(logs) == 0
        await opened(stack, server, b"b" * 32)
        assert warnings_of_keys(logs) == 1


async def test_common_key_or_prefix_is_no_warning(stack: AsyncExitStack, server: RedisServer) -> None:
    with capture_logs() as logs:
        await opened(stack, server, b"c" * 32, prefix="another")
        await opened(stack, server, b"a" * 32, b"b" * 32)
        await opened(stack, server, b"b" * 32)
        assert warnings_of_keys(logs) == 0


async def test_sign_ins_are_announced_once_to_other_replicas(stack: AsyncExitStack, server: RedisServer) -> None:
    one, other = [await joined(stack, server) for _ in range(2)]
    seen: dict[Member, list[SignInsChanged]] = {one: [], other: []}
    for member, events in seen.items():
        member.events.subscribe(SignInsChanged, events.append)
    one.events.publish(SignInsChanged("upstreams.notes"))
    await until(lambda: bool(seen[other]))
    one.events.publish(SignInsChanged("upstreams.other"))
    await until(lambda: len(seen[other]) > 1)
    assert [event.entry for event in seen[other]] == ["upstreams.notes", "upstreams.other"]
    assert all(event.is_of_replica for event in seen[other])
    assert not any(event.is_of_replica for event in seen[one])
