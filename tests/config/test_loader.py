"""The loader: includes, merging, locations, and robustness against unusual files."""

import glob
import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gateway.config.loader import LoadedConfig, load
from gateway.config.models.definitions import PromptHead
from gateway.config.reading import file_pattern
from gateway.config.reading.file_pattern import FilePattern
from gateway.config.reading.source_file import MAX_FILE_BYTES
from gateway.errors import ConfigError, Problem, Severity
from tests.examples import examples
from tests.programs import linux_only

TOOL: Final = "{shell: {command: [df]}}"


def write(directory: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return directory / "config.yaml"


def loaded(directory: Path, files: Mapping[str, str | bytes]) -> LoadedConfig:
    config = load(write(directory, files), environ={})
    config.raise_errors()
    return config


def problems_of(path: Path) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        load(path, environ={}).raise_errors()
    return caught.value.problems


def shown(path: Path) -> list[str]:
    directory = path if path.is_dir() else path.parent
    return [str(problem).replace(f"{directory}{os.sep}", "") for problem in problems_of(path)]


# Files and their order.


def test_includes_are_read_in_order_of_names(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        {
            "config.yaml": f"tools: {{main: {TOOL}}}\ninclude: [z/*.yaml, a/*.yml]\nserver: {{name: x}}\n",
            "z/two.yaml": f"tools: {{z-two: {TOOL}}}\n",
            "z/one.yaml": f"include: [deeper/*.yaml]\ntools: {{z-one: {TOOL}}}\n",
            "z/deeper/x.yaml": f"tools: {{deeper: {TOOL}}}\n",
            "z/notes.txt": "not: [yaml",
            "z/.hidden.yaml": "not: [yaml",
            "a/one.yml": f"tools: {{a-one: {TOOL}}}\n",
        },
    )
    assert list(config.document.tools) == ["main", "a-one", "z-one", "deeper", "z-two"]


def test_file_included_twice_is_read_once(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        {
            "config.yaml": "include: [a.yaml, b.yaml]\n",
            "a.yaml": "include: [common.yaml]\n",
            "b.yaml": "include: [common.yaml]\n",
            "common.yaml": f"tools: {{t: {TOOL}}}\n",
        },
    )
    assert list(config.document.tools) == ["t"]


def test_glob_without_matches_is_allowed(tmp_path: Path) -> None:
    config = loaded(tmp_path, {"config.yaml": f"include: [tools.d/*.yaml]\ntools: {{t: {TOOL}}}\n"})
    assert config.globs == (FilePattern(tmp_path / "tools.d", "*.yaml"),)
    assert tmp_path / "tools.d" in config.directories


@pytest.mark.parametrize("directory", ["a[1]", "b*", "c?"])
@pytest.mark.parametrize("given", ["config.yaml", ""])
def test_wildcards_in_directory_names_are_literal(tmp_path: Path, directory: str, given: str) -> None:
    folder = tmp_path / directory
    written = {
        "config.yaml": "include: [t/*.yaml, ./t/../u/**/x.yaml, u/v/../literal.yaml]\nprompt_files: [t/*.md]\n",
        "t/a.yaml": f"tools: {{a: {TOOL}}}\n",
        "u/v/x.yaml": f"tools: {{x: {TOOL}}}\n",
        "u/literal.yaml": f"tools: {{l: {TOOL}}}\n",
        "t/p.md": "Hello",
    }
    for name, text in written.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    config = load(folder / given, environ={})
    assert not config.problems
    assert set(config.document.tools) == {"a", "x", "l"}
    assert set(config.document.prompts) == {"p"}
    assert config.trees == {folder / "u"}
    assert {folder, folder / "t", folder / "u"} <= config.directories
    assert all(path.is_relative_to(folder) for path in config.directories)


def test_directory_is_read_as_all_its_files(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "b.yaml": f"tools: {{b: {TOOL}}}\n",
            "a.yml": f"tools: {{a: {TOOL}}}\n",
            "main.yaml": f"server: {{name: whole}}\ninclude: [a.yml]\ntools: {{m: {TOOL}}}\n",
            "notes.md": "# not read",
        },
    )
    config = load(tmp_path, environ={})
    config.raise_errors()
    assert list(config.document.tools) == ["a", "b", "m"]
    assert config.document.server.name == "whole"
    assert config.root == tmp_path
    assert FilePattern(tmp_path, "*.yaml") in config.globs


def test_one_file_of_a_directory_can_have_main_sections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"a.yaml": "server: {name: one}\n", "b.yaml": "server: {name: two}\nlisten: {sse: false}\n"})
    assert shown(tmp_path) == ["b.yaml:1:1: server: `server` is defined twice, first at a.yaml:1:1"]


def test_directory_without_files_is_an_error(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path)
    assert problem.message == "no *.yaml or *.yml file in this directory"


def test_include_cycle_is_reported_with_its_files(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        {
            "config.yaml": "include: [x/a.yaml]\n",
            "x/a.yaml": "include: [../b.yaml]\n",
            "b.yaml": "include: [config.yaml]\n",
        },
    )
    assert shown(main) == [
        "b.yaml:1:11: include: a file includes itself: config.yaml → x/a.yaml → b.yaml → config.yaml"
    ]


def test_include_cycle_through_a_link_is_detected(tmp_path: Path) -> None:
    main = write(tmp_path, {"config.yaml": "include: [other.yaml]\n"})
    (tmp_path / "other.yaml").symlink_to(main)
    assert "includes itself" in problems_of(main)[0].message


def test_duplicate_names_across_files_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main = write(
        tmp_path,
        {
            "config.yaml": "include: [more.yaml]\nprompt_files: [p/*.md]\nprompts: {triage: {messages: [{user: a}]}}\n"
            f"tools: {{triage: {TOOL}}}\n",
            "more.yaml": f"connections: {{c: {{base_url: 'https://x'}}}}\ntools: {{triage: {TOOL}, u: {TOOL}}}\n",
            "p/triage.md": "Hello",
        },
    )
    assert shown(main) == [
        "more.yaml:2:9: tools.triage: `triage` is defined twice, first at config.yaml:4:9",
        "p/triage.md:1:1: prompts.triage: `triage` is defined twice, first at config.yaml:3:11",
    ]


def test_duplicate_name_shows_both_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"server: {{name: x}}\ntools: {{a: {TOOL}}}\n"
    write(tmp_path, {"sub/a.yaml": text, "sub/b.yaml": text})
    monkeypatch.chdir(tmp_path)
    messages = [problem.message for problem in problems_of(tmp_path / "sub")]
    assert messages == [
        "`server` is defined twice, first at sub/a.yaml:1:1",
        "`a` is defined twice, first at sub/a.yaml:2:9",
    ]


def test_empty_sections_are_ignored(tmp_path: Path) -> None:
    config = loaded(tmp_path, {"config.yaml": "server:\ntools:\ninclude:\nplugins:\nx-note: 1\n"})
    assert config.document.tools == {}
    assert config.document.server.name == "mcp-gateway"


# Invalid files.


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "1:1: the file is empty"),
        (b"# only a comment\n", "1:1: the file is empty"),
        (b"tools:\n  a\xff: 1\n", "2:4: is not UTF-8 (byte 0xff)"),
        ("tools: {}\n".encode("utf-16"), "1:1: is not UTF-8 (byte 0xff)"),
        (b"tools: {}\n\x00", "2:1: YAML syntax: the control character U+0000 is not allowed. Write it as an escape"),
        (b"#" * (MAX_FILE_BYTES + 1), "1:1: is larger than 10 MiB"),
    ],
)
def test_file_that_is_not_a_configuration_is_explained(tmp_path: Path, content: bytes, message: str) -> None:
    assert shown(write(tmp_path, {"config.yaml": content})) == [f"config.yaml:{message}"]


def test_special_files_are_rejected_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.yaml")
    assert shown(tmp_path / "fifo.yaml") == ["fifo.yaml:1:1: is not a regular file"]
    assert shown(tmp_path / "missing.yaml") == [
        "missing.yaml: no such file. Create one with `mcp-gateway init`, or pass a file"
    ]
    (problem,) = problems_of(Path("/dev/zero"))
    assert problem.message == "is not a regular file"


def test_link_loops_and_invalid_names_are_reported(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    main = write(
        tmp_path,
        {"config.yaml": f'include: [loop.yaml, "a\\0.yaml", "{"n" * 300}.yaml", folder.yaml]\ntools: {{}}\n'},
    )
    (tmp_path / "folder.yaml").mkdir()
    reasons = [problem.message.rpartition(": ")[2] for problem in problems_of(main)]
    assert sorted(reasons) == [
        "a path cannot contain NUL",
        "file name too long",
        "is a directory",
        "too many levels of symbolic links",
    ]


def test_pattern_skips_links_that_form_a_loop(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert FilePattern(tmp_path, "*/*.yaml").found() == []


def test_empty_included_file_is_a_warning(tmp_path: Path) -> None:
    config = loaded(tmp_path, {"config.yaml": "include: [a.yaml]\n", "a.yaml": "# later\n"})
    (warning,) = config.problems
    assert (warning.severity, warning.message) == (Severity.WARNING, "the file is empty")


@linux_only
def test_reading_closes_all_files(tmp_path: Path) -> None:
    main = write(tmp_path, {"config.yaml": "include: [a.yaml, d.yaml]\n", "a.yaml": "x: [\n"})
    (tmp_path / "d.yaml").mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        problems_of(main)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# Prompt files.


def test_markdown_file_becomes_a_prompt(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        {
            "config.yaml": "prompt_files: [prompts/*.md]\n",
            "prompts/triage.md": "---\ndescription: Work through an alert.\narguments:\n  service: Its name\n---\n\n"
            "# Alert\n\nLook at {{ service }}, in ${HOME}.\n",
            "prompts/plain.md": "Hello\r\nthere\r\n",
        },
    )
    assert list(config.document.prompts) == ["plain", "triage"]
    triage = config.document.prompts["triage"]
    assert triage.description == "Work through an alert."
    assert triage.arguments["service"].description == "Its name"
    assert triage.messages is not None
    (message,) = triage.messages
    assert message.role == "user"
    assert [block.text for block in message.blocks] == ["# Alert\n\nLook at {{ service }}, in ${HOME}."]
    plain = config.document.prompts["plain"].messages
    assert plain is not None
    assert plain[0].blocks[0].text == "Hello\r\nthere"


def test_errors_in_markdown_files_are_located(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        {
            "config.yaml": "prompt_files: [p/*.md, missing.md, p.txt]\n",
            "p/a.md": "---\ndescription: A\ntitel: B\n---\nHello\n",
            "p/b.md": "---\narguments: [\n---\nHello\n",
            "p/c.md": "---\ndescription: C\n",
            "p/d.md": "---\ndescription: D\n---\n\n",
            "p/e.md": "---\nmessages: []\n---\nHello\n",
            "p/f.md": "---\n- a\n---\nHello\n",
        },
    )
    allowed = ", ".join(PromptHead.model_fields)
    assert shown(main) == [
        "config.yaml:1:24: prompt_files: missing.md: no such file",
        "config.yaml:1:36: prompt_files: expected *.md, got p.txt",
        "p/a.md:3:1: prompts.a.titel: unknown key; did you mean `title`?",
        "p/b.md:3:1: prompts.b: YAML syntax: expected a value",
        "p/c.md:1:1: prompts.c: the front matter that starts here is not closed by `---`",
        "p/d.md:5:1: prompts.d: has no text for the message",
        f"p/e.md:2:1: prompts.e.messages: unknown key (allowed: {allowed})",
        "p/f.md:2:1: prompts.f: front matter must be a mapping (`key: value`)",
    ]


# Locations.


def test_every_node_can_be_located(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        {
            "config.yaml": "include: [sub/more.yaml]\nplugins: [here]\ntools:\n  a:\n    shell:\n      command: [df]\n",
            "sub/more.yaml": "plugins: [there]\ntools:\n  b:\n    description: B\n    shell: {command: [df, -h]}\n"
            "prompt_files: ['*.md']\n",
            "sub/hello.md": "---\ntitle: T\n---\n\nHello {{ x }}\n",
        },
    )

    def where(*path: str | int) -> tuple[str, str]:
        location, line = config.sources.locate(path)
        assert location is not None
        return str(location).removeprefix(f"{tmp_path}/"), line

    assert where("tools", "a") == ("config.yaml:4:3", "  a:")
    assert where("tools", "a", "shell", "command", 0) == ("config.yaml:6:17", "      command: [df]")
    assert where("tools", "a", "shell", "cwd") == ("config.yaml:5:5", "    shell:")
    assert where("tools", "b", "description") == ("sub/more.yaml:4:18", "    description: B")
    assert where("tools", "b", "output", "select") == ("sub/more.yaml:3:3", "  b:")
    assert where("plugins", 0) == ("config.yaml:2:11", "plugins: [here]")
    assert where("plugins", 1) == ("sub/more.yaml:1:11", "plugins: [there]")
    assert where("prompts", "hello", "title") == ("sub/hello.md:2:8", "title: T")
    assert where("prompts", "hello", "messages", 0, "user", 0) == ("sub/hello.md:5:1", "Hello {{ x }}")
    assert config.sources.locate(("limits",)) == (None, "")
    assert config.sources.directory(("tools", "a", "shell", "cwd")) == tmp_path
    assert config.sources.directory(("tools", "b", "shell", "cwd")) == tmp_path / "sub"
    assert config.sources.directory(("plugins", 1)) == tmp_path / "sub"
    assert config.sources.directory(("prompts", "hello")) == tmp_path / "sub"
    assert config.sources.directory(("limits",)) == tmp_path
    assert config.document.plugins == ["here", "there"]


def test_requested_files_are_watched(tmp_path: Path) -> None:
    files = {
        "config.yaml": "include: [a.yaml]\nprompt_files: ['*.md']\n",
        "a.yaml": "tools: {t: {shell: {command: [a, '${file:keys/one}', '${file:keys/gone}']}}}\n",
        "p.md": "Hello",
        "keys/one": "secret",
    }
    config = load(write(tmp_path, files), environ={})
    secret = tmp_path / "keys/one"
    assert config.files[secret]
    assert {path: digest for path, digest in config.files.items() if path != secret} == {
        **{tmp_path / name: sha256(content.encode()).hexdigest() for name, content in files.items() if "/" not in name},
        tmp_path / "keys/gone": "",
    }
    assert {tmp_path, tmp_path / "keys"} <= config.directories


# Partial results.


def test_invalid_definition_is_omitted(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        {
            "config.yaml": """\
server: {nmae: x}
connections: {api: {base_url: 5}}
x-anchor: &invalid {command: [df, *gone]}
tools:
  good: {shell: {command: [df]}}
  typo: {descripton: x, shell: {command: [df]}}
  late: {timeout: soon, rate_limit: 1/s, colour: red, shell: {command: [df], progress: loud}}
  token: {shell: {command: [df], env: {TOKEN: "${env:MISSING}"}}}
  wrong: {shell: df}
  anchored: {shell: *invalid}
"""
        },
    )
    config = load(main, environ={})
    assert list(config.document.tools) == ["good"]
    assert [problem.path for problem in config.problems] == [
        "server.nmae",
        "connections.api.base_url",
        "x-anchor.command.1",
        "tools.typo.descripton",
        "tools.late.timeout",
        "tools.late.rate_limit",
        "tools.late.colour",
        "tools.late.shell.progress",
        "tools.token.shell.env.TOKEN",
        "tools.wrong.shell",
    ]
    assert config.is_hidden("connections", "api")
    assert config.is_hidden("tools", "typo")
    assert config.is_hidden("server")
    assert not config.is_hidden("tools", "good")
    assert not config.is_hidden("connections", "other")


def test_unreadable_file_can_hide_any_definition(tmp_path: Path) -> None:
    main = write(tmp_path, {"config.yaml": f"include: [a.yaml]\ntools: {{t: {TOOL}}}\n"})
    config = load(main, environ={})
    assert list(config.document.tools) == ["t"]
    assert config.is_hidden("connections", "github")


def test_invalid_yaml_can_hide_the_names_in_its_text(tmp_path: Path) -> None:
    broken = "connections: {github: {base_url: [}\n"
    main = write(tmp_path, {"config.yaml": f"include: [a.yaml]\ntools: {{t: {TOOL}}}\n", "a.yaml": broken})
    config = load(main, environ={})
    assert config.is_hidden("connections", "github")
    assert not config.is_hidden("connections", "gitlab")
    assert not config.is_hidden("plugins")


def test_compiler_problems_mask_secrets(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        {
            "config.yaml": "tools: {t: {timeout: soon, shell: {command: [df, '${file:key}']}}}\n",
            "key": "hunter2-hunter2",
        },
    )
    problems = load(main, environ={}).start_problems()
    problems.at("tools", "t", "shell").error("cannot run hunter2-hunter2")
    with pytest.raises(ConfigError) as caught:
        problems.raise_errors()
    assert [problem.message.partition(" ")[0] for problem in caught.value.problems] == ["expected", "cannot"]
    assert "hunter2" not in str(caught.value)


# Arbitrary files.


def found(path: Path) -> tuple[Problem, ...]:
    """Load a text. Fail the test on any error except `ConfigError`."""
    try:
        return load(path, environ={}).problems
    except ConfigError as error:
        return error.problems


_any_text = st.text(st.characters(codec="utf-8"), max_size=200)
_schema = json.loads((Path(__file__).parents[2] / "config" / "schema.json").read_text())
_keys = st.sampled_from(
    sorted({name for each in (_schema, *_schema["$defs"].values()) for name in each.get("properties", ())})
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _any_text | _keys,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=20,
)


@examples(150)
@given(text=_any_text | st.dictionaries(_keys, _json, min_size=1).map(repr))
def test_any_text_loads_or_raises_config_error(tmp_path: Path, text: str) -> None:
    main = write(tmp_path, {"config.yaml": text.encode()})
    for problem in found(main):
        assert problem.location is not None
        assert "\n" not in problem.message


@examples(50)
@given(data=st.binary(max_size=100))
def test_any_bytes_load_or_raise_config_error(tmp_path: Path, data: bytes) -> None:
    for problem in found(write(tmp_path, {"config.yaml": data})):
        assert problem.location is not None


def test_thousand_tools_load_quickly(tmp_path: Path) -> None:
    tools = "".join(
        f"  tool_{number}:\n    description: Number {number}.\n    input: {{path: string, depth: integer?}}\n"
        f'    shell: {{command: [du, "--max-depth={{{{ depth }}}}", "--", "{{{{ path }}}}"], timeout: 5m}}\n'
        for number in range(1000)
    )
    main = write(tmp_path, {"config.yaml": f"tools:\n{tools}"})
    started = time.process_time()
    config = load(main, environ={})
    assert len(config.document.tools) == 1000
    assert time.process_time() - started < 3  # a tenth of that on an idle machine


# Patterns.


@pytest.fixture
def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with more files than a pattern may search. The limit is lowered for the test."""
    monkeypatch.setattr(file_pattern, "MOST_ENTRIES", 1000)
    for folder in (tmp_path / "many" / str(number) for number in range(12)):
        folder.mkdir(parents=True)
        for number in range(90):
            (folder / str(number)).touch()
    return tmp_path


@pytest.mark.parametrize("section", ["include", "prompt_files"])
def test_pattern_over_the_file_system_is_rejected(crowded: Path, section: str) -> None:
    suffix = "yaml" if section == "include" else "md"
    main = write(crowded, {"config.yaml": f"{section}: ['many/**/*.{suffix}', '/**/nothing.{suffix}']\n"})
    config = load(main, environ={})
    with pytest.raises(ConfigError) as caught:
        config.raise_errors()
    texts = [problem.message for problem in caught.value.problems]
    assert len(texts) == 2
    assert all("searches more than 1,000 files and directories" in text for text in texts)
    assert config.globs == ()
    assert config.trees == frozenset()


NAMES: Final = st.sampled_from(["a", "b", ".h", "x.yaml", "y.yaml", ".z.yaml"])
STEPS: Final = st.sampled_from(["**", "*", "*.yaml", "a", "b", "..", ".*", "?", "[ab]", "x.yaml"])


@given(
    files=st.lists(st.lists(NAMES, min_size=1, max_size=4), max_size=8),
    links=st.lists(st.tuples(NAMES, st.sampled_from([".", "a", "b", "nowhere"])), max_size=1),
    steps=st.lists(STEPS, min_size=1, max_size=4).filter(lambda steps: steps.count("**") < 3),
)
@example(files=[["b"]], links=[], steps=["b", "**"])
@examples(150)
def test_pattern_matches_like_glob(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[str]], links: list[tuple[str, str]], steps: list[str]
) -> None:
    """With links in a cycle, a file has many paths. It is found once."""
    assume(not links or steps.count("**") < 2)  # the reference follows the cycle forty times
    folder = tmp_path_factory.mktemp("pattern") / "here"
    folder.mkdir()
    for names in files:
        with suppress(OSError):
            folder.joinpath(*names[:-1]).mkdir(parents=True, exist_ok=True)
            folder.joinpath(*names).touch()
    for name, target in links:
        with suppress(OSError):
            (folder / name).symlink_to(target)
    pattern = FilePattern(folder, "/".join(steps))
    expected = glob.glob(pattern.pattern, root_dir=folder, recursive=True)  # noqa: PTH207 - the reference
    found = pattern.found()
    assert len(found) == len(set(found))
    named = (each for each in expected if not each.endswith("/"))  # `b/**` finds `b/`, also where that is a file
    assert _files(found) == _files(Path(os.path.normpath(folder / each)) for each in named)


@pytest.mark.parametrize("pattern", ["**/x.yaml", "*/**/x.yaml"])
def test_directory_with_several_names_is_found_by_its_first_name(tmp_path: Path, pattern: str) -> None:
    """The order of directory entries depends on the file system."""
    write(tmp_path, {"a/x.yaml": ""})
    for number in range(20):
        (tmp_path / f"link-{number}").symlink_to("a")
    assert FilePattern(tmp_path, pattern).found() == [tmp_path / "a" / "x.yaml"]


def _files(paths: Iterable[Path]) -> set[Path]:
    return {path.resolve() for path in paths if path.is_file()}
