"""A load that takes unchanged entries over from an earlier one finds just what a load of the whole files would find."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.loader import LoadedConfig, load
from gateway.config.reading.entries import NO_LOAD, LoadRecord
from gateway.errors import ConfigError
from gateway.json_types import DocumentPath, Json
from tests.effort import cost
from tests.examples import examples

ENVIRON = {"TOKEN": "a-secret-of-many-letters", "PLACE": "here"}

TOOLS = (
    "description: Fixed.\n    content: [hi]",
    "description: |\n      Text.\n\n      b: looks like an entry\n    content: [hi]",
    'description: "Opened here\n  a: and looks like an entry"\n    content: [hi]',
    'description: "Opened here\n\nb:\n  and like a section"\n    content: [hi]',
    "content: [\n  hi,\n'there']\n    description: Flow.",
    "description: plain text\n      that goes on\n\n      and on\n    content: [hi]",
    "description: ends with line breaks\n    content:\n      - text: |+\n          hi\n\n\n",
    "description: folded >\n    content:\n      - >-\n        hi\n         there\n  # a comment\n# another",
    "description: In ${env:PLACE:-nowhere}.\n    content: [hi]",
    "description: In ${env:NOWHERE}.\n    content: [hi]",
    "shell:\n      command: [run]\n      env: {KEY: '${env:TOKEN}', FILE: '${file:secret.txt}'}",
    "shell:\n      command: [run]\n      env: {API_TOKEN: written-in-plain-text}",
    "shell:\n      command: [run, ghp_0123456789012345678901234567890123456789]",
    "descripton: Misspelt.\n    content: [hi]",
    "description: Without a backend.",
    "content: [hi]\n    content: [ho]",
    "!!map\n    content: [hi]",
    "&x\n    description: Anchored.\n    content: [hi]",
    "&y {description: Anchored., content: [hi]}",
    "<<: *x\n    description: Merged.",
    "<<: {description: Merged in place., content: [hi]}",
    "description: &text Anchored inside.\n    content: [*text]",
    "input: {b: {\n  b: string?}}\n    content: [hi]",
)
SHORT = ("*x", "{content: [hi]}", "{content: [hi],\n  description: Flow.}", "''", "text", "", "[1,\n  b: {a: 1}]")
NASTY = (
    *("", " ", "\t", "#", "---", "...", "%YAML 1.2", "- x", "  - x", "? k", "  ? k", ": v", "}", "]", '"', "'", "  }"),
    *('  "', "    '", "    - |", "    description: |", '    description: "', "    content: [", "    shell: {"),
    *("  <<: *x", "<<: *x", "  &z", "  a: &z", "  *x :", "  'a': {content: [hi]}", '  "b": {content: [hi]}'),
    *("tools:", "tools: &x", "resources:", "tools: |", 'tools: "', "tools: {", "x-notes: |", "x-notes: '", "  a:"),
    *("  a: ''", "  b: {", "   a: 1", " a:", "\tb: 1", "  \tb: 1", "\u2028  a:", "  1: x", "  null: x", "'}", "]}"),
    *("    x: |+", "   c: 1", "include: [more.yaml]", "  c: }", "      }", "  b: {x: 1}}", "x-a: {", "<<: {"),
)

names = st.sampled_from("aabcd")
tools = st.builds(lambda name, body: f"  {name}:\n    {body}\n", names, st.sampled_from(TOOLS))
short_tools = st.builds(lambda name, value: f"  {name}: {value}\n", names, st.sampled_from(SHORT))
entries = st.lists(st.one_of(tools, tools, tools, short_tools, st.just("\n"), st.just("  # comment\n")), max_size=5)
sections = st.builds(
    lambda key, items: f"{key}:\n{''.join(items)}", st.sampled_from(["tools", "tools", "resources", "x-a"]), entries
)
SECTION_OF_TOOLS = "tools:\n" + "".join(f"  {name}:\n    {TOOLS[0]}\n" for name in "efgh")
files = st.lists(st.one_of(sections, st.just(SECTION_OF_TOOLS)), min_size=1, max_size=3).map("".join)
edits = st.lists(
    st.tuples(st.sampled_from(["insert", "delete", "replace", "repeat"]), st.integers(0, 60), st.sampled_from(NASTY)),
    max_size=3,
)
environs = st.sampled_from([ENVIRON, {**ENVIRON, "PLACE": "there"}, {**ENVIRON, "NOWHERE": "x"}, {"PLACE": "here"}])


def edited(text: str, edit: tuple[str, int, str]) -> str:
    kind, number, line = edit
    lines = text.split("\n")
    at = number % len(lines)
    new = {"insert": [line, lines[at]], "delete": [], "replace": [line], "repeat": [lines[at], lines[at]]}[kind]
    return "\n".join([*lines[:at], *new, *lines[at + 1 :]])


def paths_in(value: Json, path: DocumentPath) -> Iterator[DocumentPath]:
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, member in members:
        yield from paths_in(member, (*path, step))


def findings(loaded: LoadedConfig) -> dict[str, Any]:
    """All that others see of a load."""
    document, sources = loaded.document, loaded.sources
    definitions = [(section, name) for section in ("tools", "resources") for name in getattr(document, section)]
    return {
        "document": repr(document),
        "problems": [(str(each), each.source_line) for each in loaded.problems],
        "secrets": loaded.secrets,
        "files": dict(loaded.files),
        "variables": dict(loaded.variables),
        "broken": loaded.broken,
        "is_whole": loaded.is_whole,
        "texts": sources.texts(),
        "places": {path: sources.locate(path) for path in paths_in(sources.written(()), ())},
        "digests": {path: sources.digest(path) for path in definitions},
        "directories": {path: sources.directory(path) for path in definitions},
    }


def loaded_from(
    path: Path, environ: Mapping[str, str], *, earlier: LoadRecord = NO_LOAD
) -> tuple[dict[str, Any], LoadRecord]:
    try:
        loaded = load(path, environ=environ, earlier=earlier)
    except ConfigError as error:
        return {"problems": [(str(each), each.source_line) for each in error.problems]}, NO_LOAD
    return findings(loaded), loaded.record


@examples(400)
@given(
    first=files,
    more=files,
    rounds=st.lists(st.tuples(edits, edits, environs, st.sampled_from(["a", "b-secret"])), min_size=1, max_size=3),
    newline=st.sampled_from(["\n", "\n", "\n", "\r\n"]),
)
def test_taking_unchanged_entries_over_finds_what_reading_all_would_find(
    first: str,
    more: str,
    rounds: list[tuple[list[tuple[str, int, str]], list[tuple[str, int, str]], dict[str, str], str]],
    newline: str,
) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory, "config.yaml")
        texts = [f"include: [more.yaml]\n{first}", more]
        record = NO_LOAD
        for main_edits, more_edits, environ, secret in [([], [], ENVIRON, "a"), *rounds]:
            for edit in main_edits:
                texts[0] = edited(texts[0], edit)
            for edit in more_edits:
                texts[1] = edited(texts[1], edit)
            path.write_text(texts[0], newline=newline)
            Path(directory, "more.yaml").write_text(texts[1], newline=newline)
            Path(directory, "secret.txt").write_text(secret)
            found, after = loaded_from(path, environ, earlier=record)
            assert found == loaded_from(path, environ)[0]
            record = after if after.entries else record  # what was refused is not what the next load begins with


def tool(number: int, text: str = "Fixed.") -> str:
    return f"  tool_{number}:\n    description: {text}\n    content: [hi]\n"


def file_of(*entries: str) -> str:
    return "server: {name: test}\ntools:\n" + "".join(entries) + "prompts:\n  p: {messages: [{user: hi}]}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def test_a_load_does_little_for_entries_that_have_not_changed(path: Path) -> None:
    members = (
        "    input: {a: string, b: {type: integer, default: 1}}\n    shell: {command: [run, '{{ a }}', '{{ b }}']}\n"
    )
    entries = [f"  tool_{number}:\n    description: Fixed.\n{members}" for number in range(100)]
    path.write_text(file_of(*entries))
    first = load(path)
    path.write_text(file_of(*entries[:50], entries[50].replace("Fixed", "Changed"), *entries[51:]))
    assert cost(lambda: load(path, earlier=first.record)) < cost(lambda: load(path)) / 4


SWALLOWED = '  a:\n    description: "open\n{}  c: closes"\n    content: [hi]\n'
"""A quote that is opened before an entry, and closed after it."""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("  a: &x {content: [one]}\n  b: *x\n", "  a: &x {content: [two]}\n  b: *x\n", id="alias"),
        pytest.param(
            "  a:\n    content: [&t one]\n  b:\n    content: [*t]\n",
            "  a:\n    content: [&t two]\n  b:\n    content: [*t]\n",
            id="alias inside",
        ),
        pytest.param(
            "  a: &x {content: [hi]}\n  b:\n    <<: *x\n    description: One.\n",
            "  a: &x {content: [ho]}\n  b:\n    <<: *x\n    description: One.\n",
            id="merged",
        ),
        pytest.param(tool(1), SWALLOWED.format(tool(1)), id="swallowed by a quote"),
        pytest.param(
            tool(1), SWALLOWED.format(tool(1)) + tool(1, "Another."), id="swallowed by a quote, and there once more"
        ),
        pytest.param(tool(1) + tool(2), SWALLOWED.format(tool(1) + tool(2)) + tool(3), id="two swallowed"),
        pytest.param(tool(1) + tool(2), tool(1) + tool(2) + tool(1), id="twice"),
        pytest.param(tool(1) + tool(2), tool(1) + "  b: {}\n" + tool(2) + tool(1), id="twice, and apart"),
        pytest.param(tool(1), tool(1) + "tools:\n" + tool(1), id="section twice"),
        pytest.param(tool(1), tool(1) + "resources:\n" + tool(1), id="in another section"),
        pytest.param(tool(1), "  a: {content: [\n" + tool(1) + "  ]}\n", id="in a flow sequence"),
        pytest.param(tool(1), "    a: {content: [hi]}\n" + tool(1), id="less indented than the first"),
        pytest.param(tool(1), "  a: |\n" + tool(1), id="after a block scalar"),
        pytest.param(tool(1), tool(1) + "   # more\n    tags: [x]\n", id="goes on"),
        pytest.param("  a:\n    content: [hi]", "  a:\n    content: [hi]\n      \tho", id="goes on after the end"),
    ],
)
def test_an_edit_around_an_entry_is_found(path: Path, before: str, after: str) -> None:
    path.write_text(f"tools:\n{before}")
    _, record = loaded_from(path, ENVIRON)
    path.write_text(f"tools:\n{after}")
    assert loaded_from(path, ENVIRON, earlier=record)[0] == loaded_from(path, ENVIRON)[0]


@pytest.mark.parametrize(
    "text",
    [
        file_of(tool(1)),
        f"# A comment.\n\n{file_of(tool(1))}",
        f"---\n{file_of(tool(1))}",
        file_of(tool(1)).replace("\n", "\r\n"),
        ("resources:\n" + "  # commented out\n" * 200 + file_of(tool(1))).replace("\n", "\r\n"),
        file_of("\n    # deeper\n", tool(1), "# less deep\n"),
        file_of("  2nd.tool-b:\n    content: [hi]\n"),
        file_of(tool(1).replace("Fixed.", "${env:PLACE}")),
        "tools: # all\n        a:\n          content: [hi]\nversion: 1\nprompts:\n p: {messages: [{user: hi}]}",
    ],
)
def test_entries_of_ordinary_files_are_known_again(path: Path, text: str) -> None:
    path.write_text(text, newline="")
    first = load(path, environ=ENVIRON)
    second = load(path, environ=ENVIRON, earlier=first.record)
    known = list(second.record.entries.values())
    assert len(known) == 2
    assert all(one is other for one, other in zip(known, first.record.entries.values(), strict=True))


def test_an_entry_that_moves_to_another_line_is_the_same_and_knows_its_place(path: Path) -> None:
    path.write_text(file_of(tool(1), tool(2)))
    first = load(path)
    path.write_text(file_of("  # new\n", tool(2), tool(1)))
    second = load(path, earlier=first.record)
    assert second.document.tools["tool_1"] is first.document.tools["tool_1"]
    location, line = second.sources.locate(("tools", "tool_1", "content", 0))
    assert (location and (location.line, location.column), line) == ((9, 15), "    content: [hi]")


@pytest.mark.parametrize(
    ("entry", "environ"),
    [
        ("  a:\n    description: In ${env:PLACE}.\n    content: [hi]\n", {"PLACE": "there"}),
        ("  a:\n    description: In ${env:PLACE:-nowhere}.\n    content: [hi]\n", {}),
        ("  a: {shell: {command: [run], env: {KEY: '${env:TOKEN}'}}}\n", {"TOKEN": "another-long-secret"}),
    ],
)
def test_an_entry_is_read_anew_when_a_variable_that_it_names_has_changed(
    path: Path, entry: str, environ: dict[str, str]
) -> None:
    path.write_text(file_of(entry, tool(1)))
    first = load(path, environ=ENVIRON)
    same, changed = (load(path, environ=each, earlier=first.record) for each in ({**ENVIRON}, environ))
    assert same.document.tools["a"] is first.document.tools["a"]
    assert (same.secrets, same.variables) == (first.secrets, first.variables)
    assert repr(changed.document) == repr(load(path, environ=environ).document) != repr(first.document)
    assert changed.document.tools["tool_1"] is first.document.tools["tool_1"]


def test_the_same_text_in_another_directory_is_another_entry(path: Path) -> None:
    other = path.parent / "other" / "config.yaml"
    other.parent.mkdir()
    for each in (path, other):
        each.write_text(file_of("  a: {shell: {command: [run], env: {KEY: '${file:secret}'}}}\n"))
        (each.parent / "secret").write_text(f"the secret of {each.parent.name}")
    record = load(path).record
    assert load(other, earlier=record).secrets == {"the secret of other"}


def test_an_entry_whose_file_is_seen_from_another_root_has_another_digest(path: Path) -> None:
    included = path.parent / "sub" / "more.yaml"
    included.parent.mkdir()
    included.write_text(file_of(tool(1)).replace("server: {name: test}\n", ""))
    path.write_text("include: [sub/more.yaml]\n")
    before = load(path)
    after = load(included.parent, earlier=before.record)
    fresh = load(included.parent)
    name = ("tools", "tool_1")
    assert after.sources.digest(name) == fresh.sources.digest(name) != before.sources.digest(name)
