"""Matching of globs, and listings."""

import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.executors.files.globs import Globs, compile_globs, compile_patterns, split_glob


def listed(globs: Globs, at_most: int = 100) -> list[str]:
    return [found.path for found in globs.listing(at_most=at_most).files]


def tree(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    return root


@pytest.mark.parametrize(
    ("glob", "parts"),
    [
        ("docs/**/*.md", ("docs", "**/*.md")),
        ("../docs/a?.md", ("../docs", "a?.md")),
        ("*.md", (".", "*.md")),
        ("docs/a.md", ("docs", "a.md")),
        ("a.md", (".", "a.md")),
        ("/srv/x/*.md", ("/srv/x", "*.md")),
        ("/*.md", ("/", "*.md")),
    ],
)
def test_part_before_the_first_wildcard_is_the_root(glob: str, parts: tuple[str, str]) -> None:
    assert split_glob(glob) == parts


@pytest.mark.parametrize(
    ("pattern", "path", "is_meant"),
    [
        ("**/*.md", "a.md", True),
        ("**/*.md", "x/y/a.md", True),
        ("**/*.md", "x/y/a.txt", False),
        ("**", "x/y/z", True),
        ("x/**/z", "x/z", True),
        ("x/**/z", "x/a/b/z", True),
        ("x/**/z", "x/a/b/z/q", False),
        ("*.md", "x/a.md", False),
        ("a?.md", "ab.md", True),
        ("[x].md", "x.md", True),
        ("[[]x].md", "[x].md", True),
        ("**/*.md", ".hidden/a.md", False),
        ("**/*.md", "x/.a.md", False),
        (".a/*.md", ".a/b.md", False),
        ("*.MD", "a.md", False),
        ("*.md", "a.md\n", False),
    ],
)
def test_pattern_matches_exactly_these_paths(pattern: str, path: str, *, is_meant: bool) -> None:
    assert compile_patterns([pattern]).matches(path) is is_meant


def test_several_patterns_match_any() -> None:
    globs = compile_patterns(["*.md", "**/*.txt"])
    assert globs.matches("a.md")
    assert globs.matches("x/a.txt")
    assert not globs.matches("x/a.md")


def test_long_path_with_many_stars_is_matched_quickly() -> None:
    globs = compile_patterns(["/".join(["**", "*a*"] * 12)])
    assert not globs.matches("/".join(["aaaaaaa"] * 500 + ["b"]))


def test_walk_lists_matching_files_in_order(tmp_path: Path) -> None:
    tree(tmp_path, "b.md", "a.md", "x/y/c.md", "x/d.txt", ".hidden/e.md", ".f.md")
    assert listed(compile_globs(str(tmp_path), ["**/*.md"])) == ["a.md", "b.md", "x/y/c.md"]


def test_walk_omits_special_files(tmp_path: Path) -> None:
    tree(tmp_path, "a.md", "dir.md/x.txt")
    os.mkfifo(tmp_path / "fifo.md")
    (tmp_path / "dangling.md").symlink_to("nowhere")
    (tmp_path / "loop.md").symlink_to("loop.md")
    (tmp_path / "device.md").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.md"))
        assert listed(compile_globs(str(tmp_path), ["**/*.md"])) == ["a.md"]


def test_links_are_followed_below_the_root(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "..data/deep/a.md", "real.md")
    tree(tmp_path / "outside", "secret.md")
    (root / "inside.md").symlink_to("real.md")
    (root / "deep").symlink_to("..data/deep")  # like a Kubernetes volume
    (root / "outside.md").symlink_to(tmp_path / "outside" / "secret.md")
    (root / "out").symlink_to(tmp_path / "outside")
    assert listed(compile_globs(str(root), ["**/*.md"])) == ["deep/a.md", "inside.md", "real.md"]


def test_link_to_a_hidden_file_is_omitted(tmp_path: Path) -> None:
    root = tree(tmp_path, ".hidden/a.md", ".b.md", "real.md")
    (root / "folder").symlink_to(".hidden")
    (root / "b.md").symlink_to(".b.md")
    assert listed(compile_globs(str(root), ["**/*.md"])) == ["real.md"]


def test_directory_replaced_by_a_link_during_a_walk_is_not_followed(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/ours.md")
    tree(tmp_path / "outside", "theirs.md")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "ours.md").touch()
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for other in ("link", "folder"):
                (root / "a").rename(tmp_path / "away")
                (tmp_path / other).rename(root / "a")
                (tmp_path / "away").rename(tmp_path / other)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        globs = compile_globs(str(root), ["**/*.md"])
        seen = {path for _ in range(1_000) for path in listed(globs)}
    finally:
        stop.set()
        swapping.join()
    assert seen == {"a/ours.md"}


def test_root_can_be_a_link(tmp_path: Path) -> None:
    tree(tmp_path / "real", "a.md")
    (tmp_path / "root").symlink_to("real")
    assert listed(compile_globs(str(tmp_path / "root"), ["*.md"])) == ["a.md"]


def test_sibling_with_the_roots_prefix_is_outside(tmp_path: Path) -> None:
    tree(tmp_path, "docs/a.md", "docs-private/b.md")
    (tmp_path / "docs" / "b.md").symlink_to(tmp_path / "docs-private" / "b.md")
    assert listed(compile_globs(str(tmp_path / "docs"), ["*.md"])) == ["a.md"]


def test_circular_links_end(tmp_path: Path) -> None:
    tree(tmp_path, "x/a.md", "y/b.md")
    (tmp_path / "x" / "to-y").symlink_to(tmp_path / "y")
    (tmp_path / "y" / "to-x").symlink_to(tmp_path / "x")
    (tmp_path / "x" / "up").symlink_to(tmp_path)
    assert listed(compile_globs(str(tmp_path), ["**/*.md"])) == ["x/a.md", "y/b.md"]


def test_walk_stops_at_its_limit(tmp_path: Path) -> None:
    tree(tmp_path, *(f"{n}.md" for n in range(9)))
    globs = compile_globs(str(tmp_path), ["*.md"])
    assert globs.listing(at_most=9).is_incomplete is False
    cut = globs.listing(at_most=8)
    assert (len(cut.files), cut.is_incomplete) == (8, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can list every directory")
def test_unlistable_directory_is_named(tmp_path: Path) -> None:
    tree(tmp_path, "a.md", "locked/b.md")
    (tmp_path / "locked").chmod(0)
    listing = compile_globs(str(tmp_path), ["**/*.md"]).listing(at_most=9)
    (tmp_path / "locked").chmod(0o700)
    assert ([found.path for found in listing.files], listing.unreadable) == (["a.md"], ("locked",))


def test_names_that_are_not_utf_8_are_listed(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.md")).write_text("x")
    assert listed(compile_globs(str(tmp_path), ["*.md"])) == ["\udcff.md"]


@given(
    st.lists(st.sampled_from(["**", "*", "a", "?b", "*.md"]), min_size=1, max_size=4), st.text("ab./md", max_size=12)
)
def test_matching_paths_have_no_hidden_or_dotted_names(pattern: list[str], path: str) -> None:
    if compile_patterns(["/".join(pattern)]).matches(path):
        assert not any(name.startswith(".") for name in path.split("/"))


def test_root_replaced_by_a_link_lists_nothing(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    for folder in ("root", "outside"):
        (tmp_path / folder / f"{folder}.md").write_text("")
    globs = compile_globs(str(tmp_path / "root"), ["*.md"])
    (tmp_path / "root").rename(tmp_path / "aside")
    (tmp_path / "root").symlink_to("outside")
    assert listed(globs) == []
    (tmp_path / "root").unlink()
    (tmp_path / "aside").rename(tmp_path / "root")
    assert listed(globs) == ["root.md"]
