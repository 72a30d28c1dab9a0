"""Tests for the audit log file."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.audit.audit_log import AuditLog, refusal_of
from gateway.json_types import Json
from tests.waiting import wait_until

TIMEOUT_SECONDS = 20.0


def records(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@contextmanager
def opened(path: Path, **bounds: float) -> Iterator[AuditLog]:
    log = AuditLog(path, **{"retry_seconds": 0.01, **bounds})  # type: ignore[arg-type]  # numbers of two kinds
    log.start()
    try:
        yield log
    finally:
        log.stop()


FULL_DISK = """
import resource, sys, time
from pathlib import Path
from gateway.audit.audit_log import AuditLog

def wait_until(reached):
    deadline = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.005)

log = AuditLog(Path(sys.argv[1]), most_bytes=2000, retry_seconds=0.01)
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
log.start()
for number in range(100):
    log.append({"number": number, "pad": "x" * 50})
wait_until(lambda: log.problem is not None)
assert log.problem == "file too large", log.problem
dropped = log.dropped
resource.setrlimit(resource.RLIMIT_FSIZE, before)
wait_until(lambda: log.problem is None and log.waiting == 0)
log.append({"number": 100})
log.stop()
print(dropped)
"""
"""Limit the file size, like a full disk, in a separate process."""


def test_records_are_json_lines_in_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with opened(path) as log:
        log.append({"event": "call", "name": "a\nb\u2028", "lone": "\ud800", "large": 2**70})
        log.append({"event": "call"})
    first, second = records(path)
    assert first["name"] == "a\nb\u2028"
    assert first["large"] == 2**70
    assert len(first["time"]) == len("2026-11-22T03:02:28.527Z")
    assert first["time"].endswith("Z")
    assert second == {"time": second["time"], "event": "call"}
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["a\u2028b", "a\x85b", "a\x9b31mb", "a\u202eb", "a\x7fb", "größer 🦉"])
def test_caller_text_cannot_end_a_line_or_affect_terminals(tmp_path: Path, text: str) -> None:
    path = tmp_path / "audit.log"
    with opened(path) as log:
        log.append({"requested": text})
    assert [record["requested"] for record in records(path)] == [text]
    assert path.read_text().removesuffix("\n").isprintable()


def test_existing_records_are_preserved(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text('{"old": 1}\n')
    path.chmod(0o640)
    with opened(path) as log:
        log.append({"new": 1})
    assert [sorted(record) for record in records(path)] == [["old"], ["new", "time"]]
    assert path.stat().st_mode & 0o777 == 0o640


def test_moved_file_is_recreated(tmp_path: Path) -> None:
    path, moved = tmp_path / "audit.log", tmp_path / "audit.log.1"
    with opened(path) as log:
        log.append({"number": 1})
        wait_until(lambda: log.written == 1)
        path.rename(moved)
        log.append({"number": 2})
        wait_until(lambda: log.written == 2)
        path.write_bytes(b"")  # as `copytruncate` does
        log.append({"number": 3})
    assert [record["number"] for record in records(moved)] == [1]
    assert [record["number"] for record in records(path)] == [3]


def test_removed_directory_loses_no_records(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with opened(folder / "audit.log") as log:
        log.append({"number": 1})
        wait_until(lambda: log.written == 1)
        folder.rename(tmp_path / "elsewhere")
        log.append({"number": 2})
        wait_until(lambda: log.problem is not None)
        assert log.problem == "no such file or directory"
        (tmp_path / "elsewhere").rename(folder)
        wait_until(lambda: log.written == 2)
        wait_until(lambda: log.problem is None)
    assert [record["number"] for record in records(folder / "audit.log")] == [1, 2]


def test_full_disk_only_drops_records_over_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    child = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert child.returncode == 0, child.stderr
    dropped = int(child.stdout.splitlines()[-1])
    assert dropped > 50
    assert "audit records dropped" in child.stdout
    assert "audit log is writable again" in child.stdout
    lines = path.read_text().splitlines()
    whole = [json.loads(line) for line in lines if line.endswith("}") and line.startswith("{")]
    numbers = [record["number"] for record in whole if "number" in record]
    assert numbers == sorted(numbers)
    assert numbers[-1] == 100
    [confession] = [record for record in whole if record.get("event") == "dropped"]
    assert confession["records"] == dropped
    assert len(numbers) == 101 - dropped, "a record that was written in part is written again"
    assert len(lines) - len(whole) <= 1


@pytest.mark.parametrize("kind", ["directory", "fifo", "device", "nowhere", "nul"])
def test_unwritable_path_is_rejected(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    match kind:
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "device":
            path = Path("/dev/null")
        case "nowhere":
            path = tmp_path / "nowhere" / "audit.log"
        case "nul":
            path = tmp_path / "a\0b"
    assert refusal_of(path) is not None
    assert refusal_of(tmp_path / "audit.log") is None
