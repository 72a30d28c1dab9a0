"""Only regular files in the served directory are read, up to a limit."""

import os
import threading
from pathlib import Path

import pytest

from gateway.executors.files.regular_files import NotServedError, TooLargeError, facts_of, read_beneath, read_regular
from tests.programs import linux_only


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_file_up_to_the_limit_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    assert len(read_regular(str(tmp_path / "a"), max_size=3_000_000)) == 3_000_000
    with pytest.raises(TooLargeError):
        read_regular(str(tmp_path / "a"), max_size=2_999_999)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs a file of unknown size")
def test_limit_applies_to_files_without_a_known_size() -> None:
    assert read_regular("/proc/self/status", max_size=100_000).startswith(b"Name:")
    with pytest.raises(TooLargeError):
        read_regular("/proc/self/status", max_size=10)


@pytest.mark.parametrize("name", ["fifo", "directory", "device"])
def test_special_files_are_rejected_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    with pytest.raises(NotServedError):
        read_regular(str(tmp_path / name), max_size=10)


def beneath(root: str, path: str) -> bytes:
    return read_beneath(os.path.realpath(root), path, max_size=10)


def test_link_out_of_the_root_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to("../secret")
    (root / "dir").symlink_to("..")
    for path in ("link", "dir/secret", "../secret", str(tmp_path / "secret")):
        with pytest.raises(NotServedError):
            beneath(str(root), path)


def test_link_to_a_hidden_file_is_rejected_except_in_config_maps(tmp_path: Path) -> None:
    for name in (".git/config", "..data/config", "a/.b/config", "a/..b/.config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(name)
        if name == "..data/config":
            assert beneath(str(tmp_path), "link") == b"x"
        else:
            with pytest.raises(NotServedError):
                beneath(str(tmp_path), "link")


def test_root_can_be_in_a_hidden_directory(tmp_path: Path) -> None:
    (tmp_path / ".hidden" / "root").mkdir(parents=True)
    (tmp_path / ".hidden" / "root" / "a").write_text("a")
    assert beneath(str(tmp_path / ".hidden" / "root"), "a") == b"a"


def test_link_within_the_root_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_text("a")
    (tmp_path / "real" / "link").symlink_to("a")
    (tmp_path / "root").symlink_to("real")
    assert beneath(str(tmp_path / "root"), "link") == b"a"


def test_file_replaced_by_a_link_before_reading_is_rejected(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "public").write_text("public")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (root / "new").symlink_to("../secret")
            (root / "new").rename(root / "a")
            (root / "new").write_text("public")
            (root / "new").rename(root / "a")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        seen = set()
        for _ in range(2_000):
            try:
                seen.add(beneath(str(root), "a"))
            except OSError:
                continue
    finally:
        stop.set()
        swapping.join()
    assert seen <= {b"public", b""}


def test_link_replaced_by_a_file_while_it_is_followed_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("f")
    link = tmp_path / "link"
    link.symlink_to("file")
    read_link = os.readlink

    def replaced_first(path: str) -> str:
        link.unlink()
        link.write_text("new")
        return read_link(path)

    root = os.path.realpath(tmp_path)
    monkeypatch.setattr(os, "readlink", replaced_first)
    with pytest.raises(NotServedError):
        read_beneath(root, "link", max_size=10)


@linux_only
def test_descriptors_are_closed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "a").write_text("a")
    before = open_descriptors()
    for _ in range(50):
        beneath(str(tmp_path), "a")
        for path in ("fifo", "absent", "a/b"):
            with pytest.raises(OSError):  # noqa: PT011 - tested elsewhere
                beneath(str(tmp_path), path)
    assert open_descriptors() == before


def test_facts_are_those_of_the_linked_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("abc")
    (tmp_path / "link").symlink_to("a")
    facts = facts_of(str(tmp_path / "link"))
    assert facts is not None
    assert facts.size == 3
    assert facts_of(str(tmp_path)) is None
    assert facts_of(str(tmp_path / "absent")) is None
