"""The image of a terminal session in the README is a recording of a real session.

MCP_GATEWAY_TEST_IMAGES=docs/images renders it again.
"""

import os
import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

from tests.docs.recording import Line, Session, picture
from tests.ports import free_port

pytestmark = pytest.mark.build

SHOWN: Final = Path(__file__).parents[2] / "docs" / "images" / "first-minute.svg"
MAX_BYTES: Final = 100 * 1024
TITLE: Final = "A terminal: mcp-gateway init, serve and call; the file is edited, and the next call answers by it."


def recorded(folder: Path) -> list[Line]:
    port = free_port()
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MCP_GATEWAY_HTTP": f"127.0.0.1:{port}",
        "MCP_GATEWAY_STATE_DIR": "none",
    }
    with Session(folder=folder, environ=environ, renamed={str(port): "8000"}) as session:
        session.run("mcp-gateway init")
        session.begin("mcp-gateway serve config.yaml", until="listening")
        session.run(f"mcp-gateway call --url http://127.0.0.1:{port} hello name=Ada")
        session.run("sed -i 's/Hello, /Good morning, /' config.yaml")
        session.hear(until="reloaded")
        answer = session.run(f"mcp-gateway call --url http://127.0.0.1:{port} hello name=Ada")
        assert "Good morning, Ada" in answer
        return session.lines


def test_recorded_session_works(tmp_path: Path) -> None:
    lines = recorded(tmp_path)
    text = picture(lines, title=TITLE)
    ET.fromstring(text)
    assert "Hello, Ada" in text
    assert len(text.encode()) < MAX_BYTES
    if folder := os.environ.get("MCP_GATEWAY_TEST_IMAGES"):
        Path(folder, SHOWN.name).write_text(text)
    shown = SHOWN.read_text()
    typed = [line.text for line in lines if line.is_typed]
    assert [command for command in typed if command.replace("&", "&amp;") not in shown] == []
