"""Atomic replacement of files."""

from pathlib import Path

import pytest

from gateway.atomic_write import atomic_write


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("old")
    with pytest.raises(ValueError, match="bytes must be in range"), atomic_write(path, mode=0o600) as file:
        file.write(bytes([256]))
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]
