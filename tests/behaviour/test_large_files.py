"""Decoding a large file does not block other calls."""

import base64
import threading
from pathlib import Path

from gateway.json_types import Json
from tests.behaviour.inside import Client, product

FILE = """
tools:
  size:
    description: Measure a file.
    input: {photo: {type: file, max_size: 5MiB}, more: {type: array, items: {type: file}, required: false}}
    content: "{{ photo.size }} {{ more | length if more else 0 }}"
"""
LARGE = base64.b64encode(bytes(4 * 2**20)).decode()


async def threads_of(client: Client, **arguments: Json) -> tuple[str, int]:
    """Return the tool's text, and the number of threads that were started for it."""
    before = set(threading.enumerate())
    text = await client.text("size", **arguments)
    return text, len(set(threading.enumerate()) - before)


async def test_only_large_files_are_decoded_in_a_thread(tmp_path: Path) -> None:
    async with product(tmp_path, FILE) as client:
        assert await threads_of(client, photo="aGVsbG8=") == ("5 0", 0)
        assert await threads_of(client, photo=LARGE) == (f"{4 * 2**20} 0", 1)


async def test_files_that_are_large_together_are_decoded_in_a_thread(tmp_path: Path) -> None:
    async with product(tmp_path, FILE) as client:
        assert await threads_of(client, photo="", more=[LARGE[: 2**18]] * 4) == ("0 4", 1)


async def test_rejected_large_file_names_the_reason(tmp_path: Path) -> None:
    async with product(tmp_path, FILE) as client:
        text, threads = await threads_of(client, photo=f"{LARGE}*")
        assert "/photo must be a file's bytes as base64" in text
        assert threads == 1
        assert "must be at most 5MiB, was 8MiB" in await client.text("size", photo=LARGE.rstrip("=") * 2)
