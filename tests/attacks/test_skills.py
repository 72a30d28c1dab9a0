"""Only files within a skill's directory are served. URIs, links, pipes and large files cannot leave it or block."""

import os
from pathlib import Path
from textwrap import dedent
from urllib.request import Request, urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalog.catalog import Catalog
from gateway.catalog.compile.compiler import compile_catalog
from gateway.catalog.plugins import Plugins
from gateway.config.loader import load
from gateway.errors import ConfigError
from gateway.executors.shared_services import Services, running_services
from gateway.json_types import Json
from tests.attacks.client import TIMEOUT_SECONDS
from tests.attacks.target import Plan, Target
from tests.attacks.test_files import PIECES, TRAVERSALS, swapping
from tests.examples import share_of

HEAD = "---\nname: {name}\ndescription: Public.\n---\n"
PLAN = Plan(
    file="skills: [skills/*]",
    files={
        "skills/guide/SKILL.md": HEAD.format(name="guide"),
        "skills/guide/a.md": "public a",
        "skills/guide/sub/b.md": "public b",
        "skills/guide/.hidden.md": "hidden",
        "skills/guide/raced/canary.md": "public raced",
        "skills/guide/file.md": "public raced",
        "skills/guide/later.md": "public later",
    },
)
PUBLIC = {None, HEAD.format(name="guide"), "public a", "public b", "public raced", "public later"}


def ask(target: Target, method: str, uri: str) -> Json:
    """Return the result for a URI, or None if it does not exist. Fail the test on any other result."""
    answer = target.client.modern(method, {"uri": uri}).json
    if "error" not in answer:
        return answer["result"]
    assert answer["error"]["code"] == -32602, (uri, answer)
    assert str(target.canary.file.parent) not in str(answer).replace(uri, ""), answer
    return None


def read(target: Target, uri: str) -> Json:
    result = ask(target, "resources/read", uri)
    return None if result is None else result["contents"][0]["text"]


def reload(target: Target) -> None:
    """Reload the daemon."""
    request = Request(target.url.replace("/mcp", "/-/reload"), method="POST")
    with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        assert answer.status == 200


def test_served_files_can_be_read(target: Target) -> None:
    assert read(target, "skill://guide/a.md") == "public a"
    assert read(target, "skill://guide/sub/b.md") == "public b"
    assert ask(target, "skills/get", "skill://guide/SKILL.md")["skill"]["frontmatter"]["name"] == "guide"
    assert ask(target, "resources/directory/read", "skill://guide/sub")["resources"]


@pytest.mark.parametrize("path", TRAVERSALS, ids=lambda path: ascii(path)[:40])
def test_spellings_of_a_path_cannot_leave_the_directory(target: Target, path: str) -> None:
    for uri in (f"skill://guide/{path}", f"skill://{path}", f"skill:///{path}", f"SKILL://guide/{path}"):
        assert read(target, uri) is None
        assert ask(target, "skills/get", uri) is None
        assert ask(target, "resources/directory/read", uri) is None


@given(path=st.lists(st.sampled_from((*PIECES, "guide", "SKILL.md", "raced")), max_size=10).map("".join))
def test_only_public_content_is_read(target: Target, path: str) -> None:
    assert read(target, f"skill://guide/{path}") in PUBLIC
    listed = ask(target, "resources/directory/read", f"skill://guide/{path}")
    assert ".hidden" not in str(listed)


def test_file_replaced_during_a_read_never_leaks(target: Target) -> None:
    target.tolerated.add("reload refused")  # while the link exists, the skill is invalid
    guide, outside, theirs = target.folder / "skills" / "guide", target.canary.file.parent, target.folder / "theirs"
    (outside / "canary.md").write_text(target.canary.content)
    theirs.mkdir()
    (theirs / "folder").symlink_to(outside)
    (theirs / "file").symlink_to(target.canary.file)
    seen = set()
    with swapping((guide / "raced", theirs / "folder"), (guide / "file.md", theirs / "file")):
        for _ in range(share_of(150)):
            seen |= {read(target, "skill://guide/raced/canary.md"), read(target, "skill://guide/file.md")}
    assert seen <= {None, "public raced"}
    reload(target)
    assert read(target, "skill://guide/raced/canary.md") == read(target, "skill://guide/file.md") == "public raced"


def test_file_replaced_by_a_fifo_does_not_block(target: Target) -> None:
    guide = target.folder / "skills" / "guide"
    os.mkfifo(target.folder / "pipe")
    with swapping((guide / "later.md", target.folder / "pipe")):
        assert {read(target, "skill://guide/later.md") for _ in range(share_of(60))} <= {None, "public later"}
    reload(target)
    assert read(target, "skill://guide/later.md") == "public later"


def compiled(folder: Path, services: Services) -> Catalog:
    (folder / "config.yaml").write_text("skills: [skills/*]")
    loaded = load(folder / "config.yaml", environ={})
    return compile_catalog(loaded, services=services, plugins=Plugins(), generation=1)


def skill(folder: Path, text: str = HEAD) -> Path:
    directory = folder / "skills" / "a"
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text(text.format(name="a") if text is HEAD else dedent(text))
    return directory


BOMBS = {
    "aliases": "x: &a [1,1,1,1,1,1,1,1,1]\ny: &b ["
    + "*a," * 9
    + "]\nz: &c ["
    + "*b," * 9
    + "]\nw: ["
    + "*c," * 9
    + "]",
    "long aliases": "x: &a '" + "x" * 60_000 + "'\ny: [" + "*a," * 100 + "]",
    "an alias in itself": "x: &a [*a]",
    "depth": "x: " + "[" * 100_000,
    "length": "x: '" + "x" * 70_000 + "'",
    "numbers": "x: " + "9" * 100_000,
    "a tag": "x: !!python/object/apply:os.system ['touch /tmp/payload_file']",
    "a second document": "...\nx: 1",
    "no end": "x: |\n" + "  x\n" * 10,
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
async def test_hostile_front_matter_is_bounded(tmp_path: Path, bomb: str) -> None:
    close = "" if bomb is BOMBS["no end"] else "\n---\n"
    directory = skill(tmp_path, HEAD)
    async with running_services() as services:
        assert compiled(tmp_path, services).skills
        (directory / "SKILL.md").write_text(f"---\nname: a\ndescription: D.\n{bomb}{close}")
        with pytest.raises(ConfigError) as raised:
            compiled(tmp_path, services)
    assert {each.location.file.name for each in raised.value.errors if each.location} <= {"SKILL.md"}
    assert sum(len(each.message) for each in raised.value.errors) < 2000


async def test_sparse_file_of_a_terabyte_is_rejected_unread(tmp_path: Path) -> None:
    directory = skill(tmp_path)
    (directory / "huge").touch()
    os.truncate(directory / "huge", 2**40)
    async with running_services() as services:
        with pytest.raises(ConfigError, match="exceed 16 MiB in total"):
            compiled(tmp_path, services)
        (directory / "huge").unlink()
        with (directory / "SKILL.md").open("a") as file:
            file.truncate(2**40)
        with pytest.raises(ConfigError, match="is larger than 16 MiB"):
            compiled(tmp_path, services)


async def test_skill_omits_pipes_devices_and_sockets(tmp_path: Path) -> None:
    directory = skill(tmp_path)
    os.mkfifo(directory / "pipe.md")
    async with running_services() as services:
        assert list(compiled(tmp_path, services).resources) == ["skill://a/SKILL.md"]
        (directory / "device.md").symlink_to("/dev/zero")
        with pytest.raises(ConfigError, match=r"`device\.md` is a link that leads outside"):
            compiled(tmp_path, services)
        (directory / "device.md").unlink()
        (directory / "SKILL.md").unlink()
        os.mkfifo(directory / "SKILL.md")
        with pytest.raises(ConfigError, match="not a regular file"):
            compiled(tmp_path, services)


@pytest.mark.build
async def test_names_of_any_bytes_are_listed_as_uris(tmp_path: Path) -> None:
    directory = skill(tmp_path)
    for name in (b"\xff\xfe.md", b"a b%.md", b"\x1b[31m.md", "\u202e.md".encode()):
        Path(os.fsdecode(os.fsencode(directory) + b"/" + name)).write_text("x")
    async with running_services() as services:
        catalog = compiled(tmp_path, services)
    assert sorted(catalog.resources) == sorted(
        f"skill://a/{name}" for name in ("SKILL.md", "%FF%FE.md", "a%20b%25.md", "%1B%5B31m.md", "%E2%80%AE.md")
    )
    assert all(str(each.definition["name"]).isprintable() for each in catalog.resources.values())
