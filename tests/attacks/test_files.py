"""No spelling of a URI or path, and no swap during a read, gives access to a file that is not served."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.json_types import Json
from tests.attacks.target import Plan, Target
from tests.examples import examples, share_of

PLAN = Plan(
    file="""
    resources:
      docs:
        files: "**/*.md"
        root: docs
      everything:
        files: "**"
        root: docs
      pages:
        uri: "pages://{+page}"
        text: "page {{ page }}"
        complete: {page: {files: "docs/**/*.md"}}
    tools:
      show:
        description: Show a file of a directory.
        input: {path: {type: string, within: docs}}
        shell: {command: [cat, "--", "{{ path }}"]}
      show_all:
        description: Show files of a directory.
        input: {paths: {type: array, items: {type: string}, within: docs}}
        shell: {command: [cat, "--", "{{ paths }}"]}
    """,
    files={
        "docs/a.md": "public a",
        "docs/sub/b.md": "public b",
        "docs/.hidden.md": "hidden",
        "docs/.git/config.md": "x",
    },
)


@pytest.fixture(scope="module", autouse=True)
def _traps(daemon: Target) -> Iterator[None]:
    """Create special files in the served directory, and links that lead out of it."""
    docs = daemon.folder / "docs"
    os.mkfifo(docs / "fifo.md")
    (docs / "device.md").symlink_to("/dev/zero")
    (docs / "tty.md").symlink_to("/dev/tty")
    (docs / "folder.md").mkdir()
    (docs / "inside.md").symlink_to("sub/b.md")
    (docs / "out.md").symlink_to(daemon.canary.file)
    (docs / "out").symlink_to(daemon.canary.file.parent)
    (docs / "up").symlink_to("..")
    (docs / "tohidden.md").symlink_to(".hidden.md")
    (docs / "loop.md").symlink_to("loop.md")
    (docs / "fd.md").symlink_to("/proc/self/fd/0")
    (docs / "environ.md").symlink_to("/proc/self/environ")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(docs / "socket.md"))
        yield


def read(target: Target, uri: str) -> Json:
    """Return the text at a URI, or None if it does not exist. Fail the test on any other result."""
    answer = target.client.modern("resources/read", {"uri": uri}).json
    if "error" not in answer:
        return answer["result"]["contents"][0]["text"]
    assert answer["error"]["code"] in {-32002, -32602}, (uri, answer)
    assert str(target.canary.file.parent) not in str(answer).replace(uri, ""), answer
    return None


def test_served_files_can_be_read(target: Target) -> None:
    for scheme in ("docs", "everything"):
        assert read(target, f"{scheme}:///a.md") == "public a"
        assert read(target, f"{scheme}:///sub/b.md") == "public b"
        assert read(target, f"{scheme}:///%61.%6dd") == "public a"
        assert read(target, f"{scheme}:///inside.md") == "public b"


TRAVERSALS = (
    "../main.yaml", "sub/../../main.yaml", "../plain.secret", "./a.md", "sub/../a.md", "sub/./b.md", "a.md/../a.md",
    "%2e%2e/main.yaml", "%2e%2e%2fmain.yaml", "..%2fmain.yaml", "%2e./main.yaml", ".%2e%2f%2e%2e/outside/canary.txt",
    "%252e%252e/main.yaml", "%252e%252e%252fmain.yaml", "%25252e%25252e/main.yaml", "..%252fmain.yaml",
    "..\\main.yaml", "..%5cmain.yaml", "sub%5c..%5c..%5cmain.yaml", "%c0%ae%c0%ae/main.yaml",
    "%c0%ae%c0%ae%c0%afmain.yaml", "%e0%80%ae%e0%80%ae/main.yaml", "%uff0e%uff0e/main.yaml",
    "\uff0e\uff0e/main.yaml", "\u2025/main.yaml", "..;/main.yaml", "..%00/main.yaml", "a.md%00", "a.md%00.md",
    "main.yaml%00.md", "%00a.md", "a.md%0a", "%0aa.md", "a.md%20", "a.md/", "a.md/.", "a.md//", "//a.md", "/a.md",
    "sub//b.md", "", "/", ".", "..", "...", ".../a.md", "~/a.md", "~root/.profile", ".hidden.md", "%2ehidden.md",
    ".git/config.md", "%2egit/config.md", "sub/../.hidden.md", "tohidden.md", "fifo.md", "device.md", "tty.md",
    "socket.md", "folder.md", "loop.md", "fd.md", "environ.md", "out.md", "out/canary.txt", "up/main.yaml",
    "up/up/outside/canary.txt", "a.md?x=1", "a.md#x", "a.md%3fx", "A.MD", "a.md::$DATA", "a.md.", "CON",
    "file:///etc/passwd", "//etc/passwd", "%2fetc%2fpasswd", "/etc/passwd", "C:/windows/win.ini", "x" * 300 + ".md",
    "x/" * 3000 + "a.md", "%2e%2e/" * 500 + "etc/passwd", "\ud800.md".encode("utf-8", "replace").decode(),
)  # fmt: skip


@pytest.mark.parametrize("path", TRAVERSALS, ids=lambda path: ascii(path)[:40])
@pytest.mark.parametrize("scheme", ["docs", "everything"])
def test_spellings_of_a_path_cannot_leave_the_directory(target: Target, scheme: str, path: str) -> None:
    assert read(target, f"{scheme}:///{path}") is None


OTHERS = (
    "docs://a.md", "docs://host/a.md", "docs:a.md", "docs:/a.md", "DOCS:///a.md", "docs:////a.md", "docs://",
    "docs://localhost/a.md", "docs://../a.md", "docs:///", "docs:", ":///a.md", " docs:///a.md", "file:///a.md",
)  # fmt: skip


@pytest.mark.parametrize("uri", OTHERS)
def test_file_has_exactly_one_uri(target: Target, uri: str) -> None:
    assert read(target, uri) is None


@pytest.mark.parametrize("path", ["a" * 100_000 + ".md", "../" * 20_000 + "etc/passwd", "%2e%2e%2f" * 20_000 + "x"])
def test_long_uri_is_not_found(target: Target, path: str) -> None:
    """In a session, no header field repeats the URI and limits its length."""
    with target.client.session() as session:
        assert "error" in session.ask("resources/read", {"uri": f"docs:///{path}"})


PIECES = (
    *(
        "..",
        ".",
        "a.md",
        "sub",
        "b.md",
        "out",
        "up",
        "docs",
        "main.yaml",
        "outside",
        "canary.txt",
        ".hidden.md",
        ".git",
    ),
    *("%2e", "%2f", "%5c", "%00", "%25", "/", "/", "/", "\\", "~", "%c0%ae", "*", "?", "#", ";", ":", "é", "%ff"),
)


@given(path=st.lists(st.sampled_from(PIECES), max_size=10).map("".join))
def test_only_public_content_is_read(target: Target, path: str) -> None:
    assert read(target, f"docs:///{path}") in (None, "public a", "public b")


@given(path=st.text(max_size=60))
def test_no_text_is_a_path_to_another_file(target: Target, path: str) -> None:
    uri = f"everything:///{quote(path, safe='/', errors='surrogatepass')}"
    assert read(target, uri) in (None, "public a", "public b")


def test_lists_contain_only_served_files(target: Target) -> None:
    listed = target.client.modern("resources/list").json["result"]["resources"]
    names = {resource["uri"].partition(":///")[2] for resource in listed}
    assert names <= {"a.md", "sub/b.md", "inside.md"}
    assert {"a.md", "sub/b.md"} <= names
    completed = target.client.modern(
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "pages://{+page}"}, "argument": {"name": "page", "value": ""}},
        name="pages://{+page}",
    ).json["result"]["completion"]["values"]
    assert set(completed) == {"a.md", "sub/b.md", "inside.md"}


@contextmanager
def swapping(*steps: tuple[Path, Path]) -> Iterator[None]:
    """Repeatedly exchange the paths of each pair while the context is open."""
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for place, other in steps:
                aside = place.with_name(place.name + ".aside")
                place.rename(aside)
                other.rename(place)
                place.rename(other)
                aside.rename(place)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_file_replaced_during_a_read_never_leaks(target: Target) -> None:
    target.tolerated.add("reload refused")
    docs, outside = target.folder / "docs", target.canary.file.parent
    (docs / "raced").mkdir()
    (docs / "raced" / "canary.md").write_text("public raced")
    (docs / "file.md").write_text("public raced")
    theirs = target.folder / "theirs"
    theirs.mkdir()
    (outside / "canary.md").write_text(target.canary.content)
    (theirs / "folder").symlink_to(outside)
    (theirs / "file").symlink_to(target.canary.file)
    seen = set()
    with swapping((docs / "raced", theirs / "folder"), (docs / "file.md", theirs / "file")):
        for _ in range(share_of(150)):
            seen |= {read(target, "docs:///raced/canary.md"), read(target, "docs:///file.md")}
    assert seen <= {None, "public raced"}
    assert read(target, "docs:///raced/canary.md") == read(target, "docs:///file.md") == "public raced"


def test_file_replaced_by_a_fifo_does_not_block(target: Target) -> None:
    docs = target.folder / "docs"
    (docs / "later.md").write_text("public later")
    os.mkfifo(target.folder / "pipe")
    with swapping((docs / "later.md", target.folder / "pipe")):
        assert {read(target, "docs:///later.md") for _ in range(share_of(60))} <= {None, "public later"}
    assert read(target, "docs:///later.md") == "public later"


OUTSIDE = (
    "", ".", "..", "a.md", "./docs/a.md", "{docs}/../main.yaml", "{docs}/sub/../../main.yaml", "{docs}/out.md",
    "{docs}/out/canary.txt", "{docs}/up/main.yaml", "{docs}x", "{docs}-private/a.md", "/etc/passwd", "~/x",
    "/proc/self/cwd/main.yaml", "/proc/1/cwd/etc/passwd", "file://{docs}/a.md", "//etc/passwd",
    "{docs}/a.md\0", "\0{docs}/a.md", "{docs}/%2e%2e/../../main.yaml", "-{docs}/a.md", " {docs}/a.md",
    "\n{docs}/a.md", "{docs}\\..\\main.yaml/../../x",
)  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE)
def test_path_cannot_leave_its_directory(target: Target, path: str) -> None:
    docs = str(target.folder / "docs")
    text = path.format(docs=docs)
    assert "must be an absolute path under" in target.client.refusal("show", {"path": text})
    good = f"{docs}/a.md"
    assert "must be an absolute path under" in target.client.refusal("show_all", {"paths": [good, text]})
    assert target.client.text("show", {"path": good}) == "public a"
    assert target.client.text("show_all", {"paths": [good, f"{docs}/sub/../sub/b.md"]}) == "public apublic b"


@given(steps=st.lists(st.sampled_from(("..", ".", "sub", "up", "out", "a.md", "", "docs")), max_size=8))
@examples(40)
def test_combined_path_segments_cannot_leave_the_directory(target: Target, steps: list[str]) -> None:
    docs = target.folder / "docs"
    path = "/".join([str(docs), *steps])
    is_inside = Path(os.path.realpath(path)).is_relative_to(docs)
    said = str(target.client.call("show", {"path": path}))
    assert ("must be an absolute path under" in said) is not is_inside


@contextmanager
def swapped(directory: Path, leads_to: Path) -> Iterator[None]:
    """Replace a directory by a link while the context is open."""
    aside = directory.with_name(f"{directory.name}.aside")
    directory.rename(aside)
    directory.symlink_to(leads_to)
    try:
        yield
    finally:
        directory.unlink()
        aside.rename(directory)


def test_root_replaced_by_a_link_is_not_followed_even_after_a_reload(target: Target) -> None:
    target.tolerated.add("reload refused")
    docs, outside = target.folder / "docs", target.canary.file.parent
    (outside / "a.md").write_text("from outside")
    completed = {"ref": {"type": "ref/resource", "uri": "pages://{+page}"}, "argument": {"name": "page", "value": ""}}
    with swapped(docs, outside):
        for _ in range(2):
            assert read(target, "docs:///a.md") is None
            assert read(target, f"everything:///{target.canary.file.name}") is None
            shown = target.client.call("show", {"path": str(docs / "a.md")})
            assert shown["isError"], shown
            values = target.client.modern("completion/complete", completed).json["result"]["completion"]["values"]
            assert values == []
            answer = target.client.request("POST", "/-/reload")
            assert answer.status == 422, answer
            assert f"`{docs}` has become a symbolic link" in str(answer.json["problems"])
    assert target.client.request("POST", "/-/reload").status == 200
    assert read(target, "docs:///a.md") == "public a"
