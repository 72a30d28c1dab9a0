"""Directories of `skills:` become resources and entries, and errors in SKILL.md are located."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.catalog.catalog import Catalog, scoped
from gateway.catalog.compile.compiler import compile_catalog
from gateway.catalog.lock import Lock
from gateway.catalog.plugins import Plugins
from gateway.catalog.skill_file import leads_out
from gateway.catalog.skill_snapshot import MAX_BYTES, MAX_FILES
from gateway.config.loader import load
from gateway.errors import ConfigError, ExecutionError, Problem
from gateway.executors.shared_services import Services
from gateway.json_types import Json
from tests.catalog.conftest import Compile
from tests.catalog.test_resources import read

HEAD = "---\nname: {name}\ndescription: Does {name}.\n---\n# {name}\n"
AUTH = "auth: {api_keys: {ci: {sha256: " + "ab" * 32 + "}}, rules: [%s]}\n"

NO_NAME = "is not a valid skill name: use 1 to 64 of a-z and 0-9, with single hyphens between them"
OUT = "leads outside the skill's directory, which agents cannot follow"


def skill(folder: Path, name: str, text: str = HEAD, **files: str) -> Path:
    directory = folder / "skills" / name
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text(text.replace("{name}", name), encoding="utf-8")
    for path, content in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(content, encoding="utf-8")
    return directory


def problems(compiled: Compile, text: str = "skills: [skills/*]") -> list[Problem]:
    """Return the problems of a file, including warnings if it is valid."""
    try:
        return list(compiled(text).warnings)
    except ConfigError as error:
        return list(error.problems)


def lines(found: list[Problem]) -> list[str]:
    return [
        f"{each.severity}: {each.location.file.name}:{each.location.line}:{each.location.column}: {each.message}"
        for each in found
        if each.location is not None
    ]


def entry_of(catalog: Catalog, name: str) -> Mapping[str, Json]:
    return catalog.skills[f"skill://{name}/SKILL.md"].entry


async def test_files_of_a_skill_become_resources(compiled: Compile, tmp_path: Path) -> None:
    directory = skill(tmp_path, "pdf", **{"references/FORMS.md": "forms", "scripts/run.py": "pass", ".hidden": "x"})
    (directory / "logo.png").write_bytes(b"\x89PNG\xff")
    (directory / "empty").mkdir()
    catalog = compiled("skills: [skills/*]")
    assert list(catalog.resources) == [
        "skill://pdf/SKILL.md",
        "skill://pdf/logo.png",
        "skill://pdf/references/FORMS.md",
        "skill://pdf/scripts/run.py",
    ]
    assert [each["uri"] for each in entry_of(catalog, "pdf")["resources"]] == list(catalog.resources)
    for each in entry_of(catalog, "pdf")["resources"]:
        data = (directory / each["uri"].removeprefix("skill://pdf/")).read_bytes()
        assert each["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
        assert each["size"] == len(data)
    definition = catalog.resources["skill://pdf/SKILL.md"].definition
    assert {key: definition[key] for key in ("name", "description", "mimeType")} == {
        "name": "pdf",
        "description": "Does pdf.",
        "mimeType": "text/markdown",
    }
    assert "_meta" not in definition
    assert (await read(catalog, "skill://pdf/references/FORMS.md"))["text"] == "forms"
    assert "blob" in await read(catalog, "skill://pdf/logo.png")
    children = catalog.skills["skill://pdf/SKILL.md"].directories
    assert [(each["uri"], each["mimeType"]) for each in children["skill://pdf"]] == [
        ("skill://pdf/SKILL.md", "text/markdown"),
        ("skill://pdf/logo.png", "image/png"),
        ("skill://pdf/empty", "inode/directory"),
        ("skill://pdf/references", "inode/directory"),
        ("skill://pdf/scripts", "inode/directory"),
    ]
    assert children["skill://pdf/empty"] == ()
    assert [each["name"] for each in children["skill://pdf/scripts"]] == ["scripts/run.py"]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("2026-01-31", "2026-01-31"),
        ("12:30:45", "12:30:45"),
        ("0o17", 15),
        ("017", 17),
        ("1_000", "1_000"),
        ("true", True),
        ("~", None),
        ("1.50", 1.5),
        ("[a, {b: c}]", ["a", {"b": "c"}]),
        ("{<<: {a: 1}}", {"<<": {"a": 1}}),
    ],
)
async def test_front_matter_is_yaml_1_2(compiled: Compile, tmp_path: Path, written: str, value: Json) -> None:
    skill(tmp_path, "a", f"---\nname: a\ndescription: D.\nlicense: {written}\n---\n")
    assert entry_of(compiled("skills: [skills/*]"), "a")["frontmatter"] == {
        "name": "a",
        "description": "D.",
        "license": value,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "---\ndescription: D.\nname: b\n---\n",
            "error: SKILL.md:3:7: the skill is named `b`, but its directory is named `a`. Both must have the same name",
        ),
        (
            "---\nname: A_b\ndescription: D.\n---\n",
            f"error: SKILL.md:2:7: `A_b` {NO_NAME}",
        ),
        ("---\ndescription: D.\n---\n", "error: SKILL.md:1:1: needs a `name`, which must match its directory, `a`"),
        (
            "---\nname: 1\ndescription: D.\n---\n",
            "error: SKILL.md:2:7: needs a `name`, which must match its directory, `a`",
        ),
        ("---\nname: a\n---\n", "error: SKILL.md:1:1: needs a `description`: agents need it to choose a skill"),
        (
            "---\nname: a\ndescription: ' '\n---\n",
            "error: SKILL.md:3:14: needs a `description`: agents need it to choose a skill",
        ),
        (
            "# A\n",
            "error: SKILL.md:1:1: expected `---` as the first line, and the skill's `name` and `description` below it",
        ),
        ("---\nname: a\n", "error: SKILL.md:1:1: the front matter that starts here is not closed by `---`"),
        ("---\n- a\n---\n", "error: SKILL.md:1:1: front matter must be a mapping (`name: …`)"),
        (
            "---\nname: a\ndescription: D.\nname: a\n---\n",
            "error: SKILL.md:4:1: duplicate key `name`, first at SKILL.md:2:1",
        ),
        (
            HEAD + "See [it](../b/x.md) and `[y](../c)`.\n```\n[z](../d)\n```\n[w]: /etc/passwd\n",
            "\n".join(
                f"error: SKILL.md:{place}: the link `{link}` {OUT}"
                for place, link in [("6:10", "../b/x.md"), ("10:6", "/etc/passwd")]
            ),
        ),
        (
            "\ufeff" + HEAD,
            "error: SKILL.md:1:1: starts with a byte order mark, which hides its first line from agents. Remove it",
        ),
        (
            "---\nname: a\ndescription: " + "d" * 1025 + "\n---\n",
            "warning: SKILL.md:3:14: `description` has 1,025 characters, but some agents allow only 1,024",
        ),
        (HEAD + "[web](https://example.com/../x) [here](./a/../b.md#c) [top](#d)\n", ""),
    ],
)
async def test_skill_errors_are_located(compiled: Compile, tmp_path: Path, text: str, expected: str) -> None:
    skill(tmp_path, "a", text)
    found = problems(compiled)
    assert "\n".join(lines(found)) == expected
    assert all(each.path == "skills.0" for each in found)


async def test_number_of_skill_files_is_limited(compiled: Compile, tmp_path: Path) -> None:
    directory = skill(tmp_path, "a")
    for number in range(MAX_FILES - 1):
        (directory / f"{number}.txt").touch()
    assert len(entry_of(compiled("skills: [skills/*]"), "a")["resources"]) == MAX_FILES
    (directory / "one-more.txt").touch()
    assert lines(problems(compiled)) == [
        "error: SKILL.md:1:1: the skill has more than 512 files, so agents can reject the skill"
    ]


async def test_size_of_a_skill_is_limited(compiled: Compile, tmp_path: Path) -> None:
    directory = skill(tmp_path, "a")
    left = MAX_BYTES - (directory / "SKILL.md").stat().st_size
    (directory / "data").write_bytes(bytes(left))
    assert problems(compiled) == []
    os.truncate(directory / "data", left + 1)
    assert lines(problems(compiled)) == [
        "error: SKILL.md:1:1: the skill's files exceed 16 MiB in total, so agents can reject the skill"
    ]


async def test_links_must_stay_within_the_skill(compiled: Compile, tmp_path: Path) -> None:
    directory = skill(tmp_path, "a", **{"references/b.md": "b"})
    (directory / "inside.md").symlink_to("references/b.md")
    catalog = compiled("skills: [skills/*]")
    assert (await read(catalog, "skill://a/inside.md"))["text"] == "b"
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("key")
    (directory / "key").symlink_to(tmp_path / "secret" / "key")
    (directory / "more").symlink_to(tmp_path / "secret")
    assert lines(problems(compiled)) == [
        f"error: SKILL.md:1:1: `{name}` is a link that leads outside the skill's directory, or to no file in it"
        for name in ("key", "more")
    ]


async def test_unservable_files_of_a_skill_are_reported(compiled: Compile, tmp_path: Path) -> None:
    skill(tmp_path, "a", **{"x\\y.md": "x"})
    (skill(tmp_path, "b") / "SKILL.md").write_bytes(b"---\n\xff")
    assert [line.partition(",")[0].partition(" (")[0] for line in lines(problems(compiled))] == [
        "warning: SKILL.md:1:1: `x\\y.md` is not served: its name contains a backslash",
        "error: SKILL.md:2:1: is not UTF-8",
    ]


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("nowhere/*", "error: config.yaml:1:10: directory `{folder}/nowhere` does not exist"),
        ("skills/none", "error: config.yaml:1:10: `{folder}/skills/none` contains no SKILL.md"),
        ("skills/n*", "warning: config.yaml:1:10: no directory with a SKILL.md matches"),
        ("skills/*", "warning: config.yaml:1:10: `{folder}/skills/none` is not a skill: it has no SKILL.md"),
        ("skills/*/../x", "error: config.yaml:1:10: `..` leads outside the directory that the glob starts with"),
        ("skills/**", ""),
        ("skills/a/SKILL.md", "error: config.yaml:1:10: directory `{folder}/skills/a/SKILL.md` does not exist"),
        (r'"skills/\0"', "error: config.yaml:1:10: a path cannot contain NUL"),
    ],
)
async def test_glob_without_skills_is_reported(compiled: Compile, tmp_path: Path, glob: str, expected: str) -> None:
    skill(tmp_path, "a")
    (tmp_path / "skills" / "none").mkdir()
    assert lines(problems(compiled, f"skills: [{glob}]")) == list(filter(None, [expected.format(folder=tmp_path)]))


async def test_duplicate_skill_name_is_an_error(compiled: Compile, tmp_path: Path) -> None:
    """The second entry for a directory could require scopes that the first does not."""
    one = skill(tmp_path, "a")
    two = tmp_path / "more" / "a"
    two.mkdir(parents=True)
    (two / "SKILL.md").write_text(HEAD.replace("{name}", "a"))
    assert lines(problems(compiled, "skills: [skills/*, more/*, skills/a]")) == [
        f"error: config.yaml:1:20: `{two}` and `{one}` both contain a skill named `a`",
        f"error: config.yaml:1:28: `skills.0` already includes `{one}`",
    ]


async def test_nested_skill_is_served_separately_too(compiled: Compile, tmp_path: Path) -> None:
    inner = HEAD.replace("{name}", "inner")
    skill(tmp_path, "outer", **{"inner/SKILL.md": inner})
    catalog = compiled("skills: [skills/**]")
    assert list(catalog.skills) == ["skill://outer/SKILL.md", "skill://inner/SKILL.md"]
    assert [each["uri"] for each in entry_of(catalog, "outer")["resources"]] == [
        "skill://outer/SKILL.md",
        "skill://outer/inner/SKILL.md",
    ]


async def test_skills_of_included_files_are_relative_to_their_file(compiled: Compile, tmp_path: Path) -> None:
    skill(tmp_path, "a")
    skill(tmp_path / "deep", "b")
    (tmp_path / "deep" / "more.yaml").write_text("skills: [{dir: skills/b, tags: [t]}]")
    catalog = compiled("include: [deep/more.yaml]\nskills: [skills/a]")
    assert set(catalog.skills) == {"skill://a/SKILL.md", "skill://b/SKILL.md"}
    assert catalog.resources["skill://b/SKILL.md"].tags == ("t",)


async def test_scopes_hide_all_files_of_a_skill(compiled: Compile, tmp_path: Path) -> None:
    for name in ("open", "own", "ruled", "tagged"):
        skill(tmp_path, name, **{"references/x.md": name})
    rules = "{match: {kind: resources, name: 'r*d'}, scopes: [r]}, {match: {tag: t}, scopes: [t]}"
    catalog = compiled(
        AUTH % rules + "skills: [skills/open, {dir: skills/own, access: {scopes: [o]}}, skills/ruled,"
        " {dir: skills/tagged, tags: [t]}]"
    )
    for scopes, seen in [("", "open"), ("o", "open own"), ("r t", "open ruled tagged")]:
        part = scoped(catalog, frozenset(scopes.split()))
        names = seen.split()
        assert list(part.skills) == [f"skill://{name}/SKILL.md" for name in names]
        assert list(part.resources) == [
            f"skill://{name}/{p}" for name in names for p in ("SKILL.md", "references/x.md")
        ]


async def test_access_without_auth_is_reported_at_its_entry(compiled: Compile, tmp_path: Path) -> None:
    skill(tmp_path, "a")
    assert lines(problems(compiled, "skills: [{dir: skills/a, access: {scopes: [x]}}]")) == [
        "error: config.yaml:1:34: requires `auth`: without it, callers have no scopes"
    ]


async def test_skill_with_the_uri_of_a_resource_is_an_error(compiled: Compile, tmp_path: Path) -> None:
    skill(tmp_path, "a")
    text = "resources: {r: {uri: 'skill://a/SKILL.md', text: x, description: D}}\nskills: [skills/a]"
    assert lines(problems(compiled, text)) == [
        "error: config.yaml:2:10: `resources.r` already has the URI `skill://a/SKILL.md`"
    ]


async def test_changed_skill_file_changes_list_and_entry(compiled: Compile, tmp_path: Path) -> None:
    directory = skill(tmp_path, "a", **{"x.md": "one"})
    before = compiled("skills: [skills/*]")
    same = compiled("skills: [skills/*]")
    (directory / "x.md").write_text("two")
    after = compiled("skills: [skills/*]")
    assert before.fingerprints == same.fingerprints
    assert before.fingerprints["resources"] != after.fingerprints["resources"]
    assert entry_of(before, "a") == entry_of(same, "a") != entry_of(after, "a")


async def test_secret_in_a_skill_is_masked_with_a_warning(compiled: Compile, tmp_path: Path) -> None:
    skill(tmp_path, "a", HEAD + "hunter2-hunter2\n")
    text = "connections: {c: {base_url: 'http://h', headers: {X-Key: '${env:KEY}'}}}\nskills: [skills/*]"
    catalog = compiled(text, KEY="hunter2-hunter2")
    assert any("contains a secret that is set elsewhere" in each.message for each in catalog.warnings)
    assert "hunter2" not in (await read(catalog, "skill://a/SKILL.md"))["text"]


async def test_enforced_lock_pins_skill_files(tmp_path: Path, services: Services) -> None:
    directory = skill(tmp_path, "a", **{"x.md": "one", "y.md": "one"})
    (tmp_path / "config.yaml").write_text("server: {lock: enforce}\nskills: [skills/*]")

    def served(lock: Lock | None = None) -> Catalog:
        loaded = load(tmp_path / "config.yaml", environ={})
        return compile_catalog(loaded, services=services, plugins=Plugins(), generation=1, lock=lock)

    lock = Lock(path=tmp_path / "mcp-gateway.lock", pins=served().pins)
    before = served(lock)
    assert (await read(before, "skill://a/x.md"))["text"] == "one"
    (directory / "x.md").write_text("two")
    assert (await read(before, "skill://a/y.md"))["text"] == "one"
    with pytest.raises(ExecutionError, match="has changed since it was reviewed"):
        await read(before, "skill://a/x.md")
    after = served(lock)
    assert (after.skills, after.resources) == ({}, {})
    assert [str(each) for each in after.left_out] == [
        "skills.a is not available here: was changed (files) since the lock was written"
    ]


@pytest.mark.parametrize(
    ("target", "is_out"),
    [
        ("a.md", False),
        ("./a.md", False),
        ("a/../b.md", False),
        ("a/../../b.md", True),
        ("..", True),
        ("%2e%2e/b.md", True),
        ("..b.md", False),
        ("/a", True),
        ("#a", False),
        ("mailto:a@b", False),
        ("FILE:///etc", True),
        ("?x=../y", False),
    ],
)
def test_links_outside_the_skill_are_detected(target: str, is_out: object) -> None:
    assert leads_out(target) is is_out
