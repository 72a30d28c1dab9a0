"""systemd accepts the units of deploy/systemd, and they match the daemon."""

import configparser
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from gateway.app.gateway import CLEAN_UP_SECONDS
from gateway.cli.commands.serve import parser as serve_parser
from gateway.cli.options import settings_of
from tests.programs import need

UNITS: Final = Path(__file__).parents[2] / "deploy" / "systemd"
SERVICE: Final = UNITS / "mcp-gateway.service"
SOCKET: Final = UNITS / "mcp-gateway.socket"


def section(unit: Path, name: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # names keep their case
    parser.read(unit)
    return parser[name]


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    program = section(SERVICE, "Service")["ExecStart"].split()[0]
    service = tmp_path / SERVICE.name
    service.write_text(SERVICE.read_text().replace(program, sys.executable))
    (tmp_path / SOCKET.name).write_text(SOCKET.read_text())
    verified = subprocess.run(
        [need("systemd-analyze"), "verify", "--man=no", "--recursive-errors=no", str(service), tmp_path / SOCKET.name],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (verified.returncode, verified.stderr) == (0, "")


def test_stop_timeout_covers_the_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    service = section(SERVICE, "Service")
    _, command, *words = shlex.split(service["ExecStart"])
    assert command == "serve"
    settings = settings_of(serve_parser("mcp-gateway serve").parse_intermixed_args(words))
    assert float(service["TimeoutStopSec"]) > settings.drain_timeout.total_seconds() + CLEAN_UP_SECONDS
    assert service["KillMode"] == "mixed", "tools must not receive the stop signal while their calls can finish"
    assert service["Type"].startswith("notify")


def test_socket_outlives_the_service() -> None:
    assert section(SERVICE, "Unit")["Requires"] == SOCKET.name
    assert SOCKET.name in section(SERVICE, "Unit")["After"]
    assert section(SOCKET, "Socket").get("Accept", "no") == "no"
    assert section(SOCKET, "Socket")["ListenStream"].startswith("127.0.0.1:")
