"""Tests for encrypted storage, in the state database and in Redis."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.state.database import StateDatabase
from gateway.state.encrypted_store import ENCRYPTED, EncryptedStore
from gateway.state.keys import SigningKeys
from gateway.state.replica import Replica
from tests.redis_server import redis_server

KEYS = SigningKeys([b"k" * 40])
OTHER_KEYS = SigningKeys([b"o" * 40])


@asynccontextmanager
async def stores(kind: str, folder: Path) -> AsyncIterator[Callable[[SigningKeys], EncryptedStore]]:
    """Yield a function that returns a store of the same rows with other keys."""
    async with StateDatabase(folder / "secrets.sqlite", (ENCRYPTED,)) as database:
        if kind == "sqlite":
            yield lambda keys: EncryptedStore(database, keys=keys, clock=time.time)
            return
        async with redis_server(folder / "redis") as server, Replica(server.url, clock=time.time) as replica:
            yield lambda keys: EncryptedStore(database, keys=keys, clock=time.time, shared=replica.store)


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_content_is_returned_until_deleted_or_expired(kind: str, tmp_path: Path) -> None:
    async with stores(kind, tmp_path) as make:
        store = make(KEYS)
        later = time.time() + 60
        await store.write("tokens:a:1", b"secret content", expires=later)
        await store.write("tokens:b:1", b"other", expires=later)
        await store.write("tokens:c:1", b"late", expires=time.time() + 0.01)
        while await store.read("tokens:c:1") is not None:
            pass
        assert await store.read("tokens:a:1") == b"secret content"
        assert await store.names("tokens:") == ["tokens:a:1", "tokens:b:1"]
        assert await store.names("tokens:a:") == ["tokens:a:1"]
        await store.delete("tokens:a:1")
        assert await store.read("tokens:a:1") is None


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_name_is_claimed_once_until_deleted(kind: str, tmp_path: Path) -> None:
    async with stores(kind, tmp_path) as make:
        store = make(KEYS)
        later = time.time() + 60
        assert [await store.claim("lease:1", expires=later) for _ in range(2)] == [True, False]
        await store.delete("lease:1")
        assert await store.claim("lease:1", expires=later)


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_content_of_another_key_or_name_cannot_be_read(kind: str, tmp_path: Path) -> None:
    async with stores(kind, tmp_path) as make:
        await make(KEYS).write("a", b"secret content", expires=time.time() + 60)
        assert await make(OTHER_KEYS).read("a") is None
        rotated = SigningKeys([b"n" * 40, b"k" * 40])
        assert await make(rotated).read("a") == b"secret content"


async def test_content_moved_to_another_name_cannot_be_read(tmp_path: Path) -> None:
    async with StateDatabase(tmp_path / "secrets.sqlite", (ENCRYPTED,)) as database:
        store = EncryptedStore(database, keys=KEYS, clock=time.time)
        await store.write("a", b"secret content", expires=time.time() + 60)
        await database.run(lambda connection: connection.execute("UPDATE encrypted SET name = 'b'"))
        assert await store.read("b") is None
    assert all(b"secret content" not in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_content_is_replaced_only_if_it_has_not_changed(kind: str, tmp_path: Path) -> None:
    async with stores(kind, tmp_path) as make:
        store, later = make(KEYS), time.time() + 60
        assert not await store.replace("a", b"one", b"two", expires=later)
        assert await store.read("a") is None
        await store.write("a", b"one", expires=later)
        changes = [store.replace("a", b"one", b"two %d" % number, expires=later) for number in range(8)]
        assert sorted(await asyncio.gather(*changes)) == [*[False] * 7, True]
        assert (await store.delete("a") or b"").startswith(b"two")
        assert await store.delete("a") is None
