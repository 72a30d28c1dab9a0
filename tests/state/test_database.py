"""Tests for the state database and its faults."""

import asyncio
import multiprocessing
import os
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from gateway.errors import NotStoredError
from gateway.state.database import StateDatabase
from gateway.state.fallback_connection import SqliteStatement
from gateway.state.sqlite_file import open_file

NOTES: Final = "CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, content TEXT NOT NULL) STRICT"
SECONDS: Final = 30


@asynccontextmanager
async def opened(path: Path | None, *tables: str) -> AsyncIterator[StateDatabase]:
    async with asyncio.timeout(SECONDS), StateDatabase(path, tables or [NOTES], retry_seconds=0.05) as database:
        yield database


async def note(database: StateDatabase, name: str, content: str = "", *, durable: bool = False) -> None:
    await database.run(
        lambda connection: connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, content)),
        durable=durable,
    )


async def names(database: StateDatabase) -> set[str]:
    return {name for (name,) in await database.run(lambda each: each.execute("SELECT name FROM notes").fetchall())}


async def durable_again(database: StateDatabase) -> None:
    while not database.is_durable:
        await asyncio.sleep(0.01)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", mounted], check=False, capture_output=True
        ).returncode
    ):
        pytest.skip("mounts a file system, which requires root")
    yield mounted
    subprocess.run(["umount", "-l", mounted], check=True)


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as filling, suppress(OSError):
        while True:
            filling.write(b"x" * 1024)


@pytest.mark.parametrize("where", ["file", "memory"])
async def test_written_rows_are_read(where: str, file: Path) -> None:
    async with opened(file if where == "file" else None) as database:
        await note(database, "a")
        assert await names(database) == {"a"}
        assert database.is_durable == (where == "file")


async def test_database_file_is_durable_and_private(file: Path) -> None:
    async with opened(file) as database:
        database.post(lambda connection: connection.execute("INSERT INTO notes VALUES ('posted', '')"))
    assert file.stat().st_mode & 0o077 == 0
    async with opened(file) as database:
        assert await names(database) == {"posted"}


@pytest.mark.parametrize("where", ["file", "memory"])
async def test_failed_work_is_rolled_back_alone(where: str, file: Path) -> None:
    def twice(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO notes VALUES ('undone', '')")
        connection.execute("INSERT INTO notes VALUES ('undone', '')")

    async with opened(file if where == "file" else None) as database:
        done = await asyncio.gather(
            note(database, "before"), database.run(twice), note(database, "after"), return_exceptions=True
        )
        assert [type(each) for each in done] == [type(None), sqlite3.IntegrityError, type(None)]
        with pytest.raises(sqlite3.IntegrityError):
            await database.run(twice)
        assert await names(database) == {"before", "after"}
        assert database.is_durable == (where == "file")


@pytest.mark.parametrize("others", [0, 3])
async def test_failed_statement_is_rolled_back_alone(others: int, file: Path) -> None:
    insert = "INSERT INTO notes VALUES ('statement', ''), (?, '')"
    async with opened(file) as database:
        jobs = [database.run(SqliteStatement(insert, ("statement",)))]
        jobs += [
            database.run(SqliteStatement(insert.replace("statement", f"{number}"), ("-",))) for number in range(others)
        ]
        done = await asyncio.gather(*jobs, return_exceptions=True)
        assert [type(each) for each in done] == [sqlite3.IntegrityError, list, *[sqlite3.IntegrityError] * 2][
            : len(done)
        ]
        assert await names(database) == ({"0", "-"} if others else set())
        assert await database.run(SqliteStatement("SELECT count(*) FROM notes")) == [(2 if others else 0,)]
        assert database.is_durable


async def test_file_of_a_newer_gateway_is_not_changed(file: Path) -> None:
    async with opened(file) as database:
        await note(database, "old")
    with sqlite3.connect(file) as outside:
        outside.execute("PRAGMA user_version = 2")
    async with opened(file) as database:
        assert not database.is_durable
        assert "has version 2, but the newest supported version is 1" in database.connection.problem
        assert await names(database) == set()
    with sqlite3.connect(file) as outside:
        outside.execute("PRAGMA user_version = 1")
    async with opened(file) as database:
        assert await names(database) == {"old"}


@pytest.mark.parametrize("broken", [b"not a database" * 500, b""])
async def test_file_that_is_not_a_database_is_renamed(file: Path, broken: bytes) -> None:
    file.write_bytes(broken)
    async with opened(file) as database:
        await note(database, "new", durable=True)
        aside = database.connection.put_aside
    assert aside is None if broken == b"" else aside is not None and aside.read_bytes() == broken
    async with opened(file) as database:
        assert await names(database) == {"new"}


async def test_corrupt_file_is_renamed_and_its_readable_rows_are_kept(file: Path) -> None:
    other = "CREATE TABLE IF NOT EXISTS other (name TEXT PRIMARY KEY) STRICT"
    async with opened(file, NOTES, other) as database:
        await database.run(lambda connection: connection.execute("INSERT INTO other VALUES ('kept')"))
        for number in range(200):
            await note(database, str(number), "x" * 3000)
        root = await database.run(
            lambda each: each.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'notes'").fetchone()[0]
        )
        await database.run(lambda connection: connection.execute("PRAGMA cache_size = 1"))

        def overwrite() -> None:
            with sqlite3.connect(file) as outside:
                outside.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            with file.open("r+b") as opened_file:
                opened_file.seek((root - 1) * 4096)
                opened_file.write(b"\xff" * 4096)

        await asyncio.to_thread(overwrite)
        await note(database, "1", "again")
        await durable_again(database)
        assert database.connection.put_aside is not None
        assert database.connection.faults["SQLITE_CORRUPT"] >= 1
        assert "1" in await names(database)
        assert await database.run(lambda each: each.execute("SELECT name FROM other").fetchall()) == [("kept",)]


async def test_full_disk_loses_no_rows(small_disk: Path) -> None:
    file, ballast = small_disk / "state.sqlite", small_disk / "ballast"
    async with opened(file) as database:
        await note(database, "first", durable=True)
        fill(ballast)
        await note(database, "second", "x" * 65536)
        assert not database.is_durable
        assert "full" in database.connection.problem
        with pytest.raises(NotStoredError, match="full"):
            await note(database, "refused", durable=True)
        assert await names(database) == {"first", "second"}
        ballast.unlink()
        await durable_again(database)
        await note(database, "third", durable=True)
    async with opened(file) as database:
        assert await names(database) == {"first", "second", "third"}


async def test_locked_file_is_written_later(file: Path) -> None:
    async with opened(file) as database:
        await note(database, "first")
        outside = sqlite3.connect(file, isolation_level=None)
        outside.execute("BEGIN IMMEDIATE")
        await note(database, "second")
        assert not database.is_durable
        assert "locked" in database.connection.problem
        assert await names(database) == {"first", "second"}
        outside.execute("ROLLBACK")
        outside.close()
        await durable_again(database)
        assert await names(database) == {"first", "second"}


async def test_file_locked_at_the_start_keeps_its_rows(file: Path) -> None:
    async with opened(file) as database:
        await note(database, "first")
    outside = sqlite3.connect(file, isolation_level=None)
    outside.execute("PRAGMA locking_mode = EXCLUSIVE")
    outside.execute("BEGIN EXCLUSIVE")
    async with opened(file) as database:
        assert not database.is_durable
        await note(database, "second")
        outside.close()
        await durable_again(database)
        assert await names(database) == {"first", "second"}


async def test_deleted_file_is_recreated_with_its_rows(file: Path) -> None:
    async with opened(file) as database:
        await note(database, "first")
        for each in file.parent.glob("state.sqlite*"):
            each.unlink()
        await note(database, "second")
        await durable_again(database)
    async with opened(file) as database:
        assert await names(database) == {"first", "second"}


async def test_durable_work_without_a_file_is_rejected() -> None:
    async with StateDatabase(None, [NOTES], why_memory="read-only") as database:
        with pytest.raises(NotStoredError, match="read-only"):
            await note(database, "a", durable=True)
        assert await names(database) == set()


async def test_closed_database_rejects_work(file: Path) -> None:
    async with opened(file) as database:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        await names(database)


def _open_at(path: Path, when: float) -> None:
    while time.time() < when:
        pass
    open_file(path, (NOTES,)).close()


def test_new_file_is_opened_by_several_processes_at_once(tmp_path: Path) -> None:
    count = 4
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as processes:
        for each in range(60):
            path, when = tmp_path / f"{each}.sqlite", time.time() + 0.02
            list(processes.map(_open_at, [path] * count, [when] * count))
