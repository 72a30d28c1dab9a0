"""Files through the whole gateway: to functions and questions, in logs and the audit log, from the command line."""

import asyncio
import base64
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
from gateway.json_types import JsonObject

DATA: Final = b"\x89PNG\r\n\x1a\n" + b"the bytes of the file " * 50
SENT: Final = f"data:image/png;name=lamp.png;base64,{base64.b64encode(DATA).decode()}"
TASKS: Final = "io.modelcontextprotocol/tasks"
PLUGIN: Final = '''
from dataclasses import dataclass
from typing import Annotated
from pydantic import Field

@dataclass
class Album:
    name: str
    photos: list[bytes]

async def count(album: Album, cover: bytes | None = None, note: bytes = b"none") -> str:
    """Count."""
    return f"{[len(photo) for photo in album.photos]} {cover and len(cover)} {note!r}"

def limited(photo: Annotated[bytes, Field(max_length=4, json_schema_extra={"media_types": ["image/*"]})]) -> int:
    """Measure."""
    return len(photo)
'''
CONFIG: Final = """
plugins: [plugins]
audit: {file: audit.log, arguments: full}
tools:
  count: {python: "albums:count"}
  limited: {python: "albums:limited"}
  ask:
    description: Asks.
    input: {photo: file}
    confirm: "Send {{ photo.name }} ({{ photo.type }}, {{ photo.size }})?"
    confirm_fallback: allow
    content: "{{ photo.type }} {{ photo.name }} {{ photo.size }} {{ photo | base64 | length }}"
  later:
    description: Runs as a task.
    input: {photo: file}
    task: required
    shell: {command: [wc, -c, "{{ photo }}"]}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "albums.py").write_text(PLUGIN)
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path / "config.yaml"


async def call(client: Any, name: str, **arguments: Any) -> JsonObject:
    result: JsonObject = await client.request("tools/call", {"name": name, "arguments": arguments})
    return result


async def test_functions_take_bytes_and_texts_take_what_a_file_is(config: Path) -> None:
    async with Gateway(read_settings({"config": config, "log_level": "error"}), serves_one_request=True) as gateway:
        client = gateway.memory_client()
        counted = await call(client, "count", album={"name": "a", "photos": [SENT, "aGVsbG8="]}, cover=None)
        assert counted["content"][0]["text"] == f"[{len(DATA)}, 5] None b'none'"
        assert (await call(client, "count", album={"name": "a", "photos": []}, note="b25l"))["content"][0]["text"] == (
            "[] None b'one'"
        )
        refused = (await call(client, "limited", photo=SENT))["content"][0]["text"]
        assert "/photo must be at most 4B" in refused
        asked = await call(client, "ask", photo=SENT)
        assert asked["content"][0]["text"] == f"image/png lamp.png {len(DATA)} {len(base64.b64encode(DATA))}"


async def test_neither_logs_nor_the_audit_log_hold_the_bytes_of_a_file(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = read_settings({"config": config, "log_level": "debug", "log_format": "json", "http": "127.0.0.1:0"})
    async with Gateway(settings) as gateway:
        await gateway.start()
        client = gateway.memory_client()
        await call(client, "ask", photo=SENT)
        await call(client, "count", album=orjson.dumps({"name": "a", "photos": [SENT]}).decode())
        await call(client, "count", album={"name": 1, "photos": [SENT]})
    audited = config.parent / "audit.log"
    logged = capfd.readouterr().err
    assert "message received" in logged
    for text in (logged, audited.read_text()):
        assert base64.b64encode(DATA).decode()[20:60] not in text
    records = [orjson.loads(line) for line in audited.read_text().splitlines()]
    assert {"photo": {"name": "lamp.png", "type": "image/png", "size": len(DATA)}} in [
        record.get("arguments") for record in records
    ]


async def test_a_task_has_the_files_of_its_call(config: Path) -> None:
    async with Gateway(read_settings({"config": config, "log_level": "error"}), serves_one_request=True) as gateway:
        client = gateway.memory_client()
        knows: JsonObject = {"_meta": {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}}
        task = await client.request("tools/call", {"name": "later", "arguments": {"photo": SENT}, **knows})
        async with asyncio.timeout(60):
            while (found := await client.request("tasks/get", {"taskId": task["taskId"], **knows}))[
                "status"
            ] == "working":
                await asyncio.sleep(0.05)
        assert found["result"]["content"][0]["text"].startswith(f"{len(DATA)} ")
