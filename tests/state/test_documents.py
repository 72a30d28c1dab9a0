"""Tests for the document store."""

import asyncio
from pathlib import Path

import pytest

from gateway.state.sqlite_stores import MAX_BYTES
from gateway.state.state import DaemonState


async def test_document_survives_a_restart(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        async with DaemonState(tmp_path) as state:
            await state.documents.save("openapi:a", b"old")
            await state.documents.save("openapi:a", b"\x00new")
        async with DaemonState(tmp_path) as state:
            assert await state.documents.read("openapi:a") == b"\x00new"
            assert await state.documents.read("openapi:b") is None


async def test_corrupt_document_is_ignored() -> None:
    async with asyncio.timeout(30), DaemonState(None) as state:
        await state.documents.save("a", b"right")
        await state.database.run(lambda connection: connection.execute("UPDATE documents SET content = x'00'"))
        assert await state.documents.read("a") is None


async def test_document_over_the_limit_is_rejected() -> None:
    async with asyncio.timeout(30), DaemonState(None) as state:
        with pytest.raises(ValueError, match="exceed the maximum"):
            await state.documents.save("a", bytes(MAX_BYTES + 1))
