"""Tests for signing keys."""

import asyncio
import os
from pathlib import Path
from typing import Final

import pytest

from gateway.errors import RpcError
from gateway.protocol.call.input_requests.request_state import RequestStateSigner, State, StateScope
from gateway.protocol.list_pages import Cursors
from gateway.state import keys as keys_module
from gateway.state.keys import KEY_FILE, SigningKeys, kept_keys, own_keys
from gateway.state.state import DaemonState
from tests.captured_logs import capture_logs

OLD: Final = b"the old key of sixteen"
NEW: Final = b"the new key of sixteen"
SCOPE: Final = StateScope(owner="a", method="tools/call", params={"name": "t"}, definition="d")


async def test_old_key_stays_valid_during_rotation() -> None:
    before, both, after = SigningKeys([OLD]), SigningKeys([NEW, OLD]), SigningKeys([NEW])
    cursor = Cursors(before).issue("tools", "f", 3)
    assert Cursors(both).redeem(cursor, "tools", "f") == 3
    with pytest.raises(RpcError, match="Invalid cursor"):
        Cursors(after).redeem(cursor, "tools", "f")
    state = RequestStateSigner(before).sign(State(), SCOPE, only_once=True)
    assert await RequestStateSigner(both).open(state, SCOPE) == State()
    with pytest.raises(RpcError, match="was not issued by this server"):
        await RequestStateSigner(after).open(state, SCOPE)


def test_newest_key_signs() -> None:
    cursor = Cursors(SigningKeys([NEW, OLD])).issue("tools", "f", 3)
    assert Cursors(SigningKeys([NEW])).redeem(cursor, "tools", "f") == 3


def test_replaced_key_file_is_reread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "_CHECK_SECONDS", 0.0)
    file = tmp_path / "keys"
    file.write_bytes(OLD + b"\n")
    keys = SigningKeys([OLD], file=file)
    cursors = Cursors(keys)
    cursor = cursors.issue("tools", "f", 3)
    (tmp_path / "new").write_bytes(b"\n" + NEW + b"\r\n\n" + OLD + b"\n")
    os.replace(tmp_path / "new", file)  # noqa: PTH105 - as a secret manager does
    assert keys() == (NEW, OLD)
    assert keys() is keys()
    assert cursors.redeem(cursor, "tools", "f") == 3
    assert Cursors(SigningKeys([NEW])).redeem(cursors.issue("tools", "f", 4), "tools", "f") == 4
    file.unlink()
    assert keys() == (NEW, OLD)
    file.write_bytes(b"\n")
    assert keys() == (NEW, OLD)


def test_key_file_replaced_right_after_reading_is_reread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "_CHECK_SECONDS", 0.0)
    file = tmp_path / "keys"
    file.write_bytes(NEW)
    assert SigningKeys([OLD], file=file)() == (NEW,)


def test_short_key_is_reported_when_reread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "_CHECK_SECONDS", 0.0)
    file = tmp_path / "keys"
    file.write_bytes(OLD)
    keys = SigningKeys([OLD], file=file)
    file.write_bytes(b"hunter2")
    with capture_logs() as logged:
        assert keys() == (b"hunter2",)
    assert logged[-1] == {
        "event": "the signing key is too short",
        "log_level": "warning",
        "file": str(file),
        "shortest": 16,
    }


def test_unwritten_key_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "_CHECK_SECONDS", 0.0)
    directory = tmp_path / "none yet"
    with capture_logs() as logged:
        keys = own_keys(directory)
        first = keys()
    assert [each["event"] for each in logged] == ["signing keys not written; they are kept in memory"]
    directory.mkdir()
    assert own_keys(tmp_path)() != keys() == first == own_keys(directory)()
    (directory / KEY_FILE).unlink()
    assert keys() == first
    assert own_keys(directory)() != first, "deleting the file creates a new key"


def test_key_file_is_created_once_and_private(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    first = kept_keys(file)()
    assert len(first[0]) >= 32
    assert file.stat().st_mode & 0o777 == 0o600
    assert kept_keys(file)() == first
    file.write_bytes(b"")  # the disk was full at the first start
    assert kept_keys(file)() != first


async def test_request_state_is_used_once_across_restarts(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        async with DaemonState(tmp_path) as state:
            signer = RequestStateSigner(state.keys, used=state.used_states)
            once = signer.sign(State(), SCOPE, only_once=True)
            unused = signer.sign(State(), SCOPE, only_once=True)
            assert await signer.open(once, SCOPE) == State()
        async with DaemonState(tmp_path) as state:
            signer = RequestStateSigner(state.keys, used=state.used_states)
            assert await signer.open(once, SCOPE) is None
            assert await signer.open(unused, SCOPE) == State()


async def test_keys_without_a_directory_end_with_the_process() -> None:
    async with asyncio.timeout(30), DaemonState(None) as one, DaemonState(None) as other:
        assert one.keys() != other.keys()
