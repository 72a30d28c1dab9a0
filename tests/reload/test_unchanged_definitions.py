"""A reload takes over what has not changed as it is, and compiles anew whatever could have come out otherwise."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.catalog.primitives import Primitive
from gateway.reload.pipeline import ReloadPipeline
from tests.certificates import Authority
from tests.reload.pipelines import opened, refused, reload

FILE = """\
plugins: [plugins]
prompt_files: [prompts/*.md]
connections:
  api: {base_url: "https://api.example.com"}
  other: {base_url: "https://other.example.com"}
tools:
  plain: {description: Fixed., content: [hi]}
  env: {description: "In ${env:PLACE:-nowhere}.", content: [hi]}
  api: {description: Asks., http: {connection: api, url: /a}}
  other: {description: Asks., http: {connection: other, url: /b}}
  command: {description: Runs., shell: {command: [./run.sh]}}
  limited: {description: Runs., shell: {command: ["true"], limits: {cpu: 1s}}}
  confined: {description: Reads., input: {path: {type: string, within: data}}, content: ["{{ path }}"]}
  function: {description: Calls., python: "words:say"}
  vague: {description: Takes., input: {data: string}, content: ["{{ data }}"]}
resources:
  text: {uri: "test://text", text: hi}
  file: {uri: "test://file", file: note.txt}
  docs: {files: "docs/*.md"}
"""
OF_PYTHON = {"function"}
OF_DIRECTORIES = {"docs"}
"""Always compiled anew: every file is a primitive."""

ALL = {
    *("plain", "env", "api", "other", "command", "limited", "confined", "function", "vague"),
    *("text", "file", "docs", "ask"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("plugins", "prompts", "docs", "data", "other-data", "bin"):
        (tmp_path / name).mkdir()
    (tmp_path / "config.yaml").write_text(FILE)
    (tmp_path / "plugins" / "words.py").write_text("def say() -> str:\n    'Says.'\n    return 'one'\n")
    (tmp_path / "prompts" / "ask.md").write_text("---\ndescription: Asks.\n---\nWhat?\n")
    (tmp_path / "docs" / "a.md").write_text("a")
    (tmp_path / "note.txt").write_text("note")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "link").symlink_to("data")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path


def primitives(pipeline: ReloadPipeline) -> dict[tuple[str, str], Primitive]:
    return {(each.name, type(each).__name__): each for each in pipeline.store.current.primitives()}


async def anew_after(pipeline: ReloadPipeline, change: Callable[[], object]) -> set[str]:
    """Reload after a change, and return the names of those that are other objects now."""
    before = primitives(pipeline)
    change()
    await reload(pipeline)
    after = primitives(pipeline)
    assert before.keys() == after.keys()
    return {name for name, kind in after if after[name, kind] is not before[name, kind]} - OF_DIRECTORIES


def edit(folder: Path, old: str, new: str, *, name: str = "config.yaml") -> Callable[[], object]:
    text = (folder / name).read_text()
    assert old in text
    return lambda: (folder / name).write_text(text.replace(old, new))


def replaced_link(folder: Path) -> None:
    (folder / "next").symlink_to("other-data")
    (folder / "next").rename(folder / "link")


@pytest.mark.parametrize(
    ("old", "new", "anew"),
    [
        ("tools:\n", "# A comment moves all lines.\ntools:\n", set()),
        ("Fixed.", "Changed.", {"plain"}),
        ("[hi]}\n  env", "[ho]}\n  env", {"plain"}),
        ("In ${env:PLACE:-nowhere}.", "In nowhere.", {"env"}),
        ("In ${env:PLACE:-nowhere}.", "In ${env:ELSEWHERE:-nowhere}.", {"env"}),
        ("api.example.com", "new.example.com", {"api"}),
        ("connections:\n", "defaults: {timeout: 5s}\nconnections:\n", ALL - OF_DIRECTORIES),
        ("connections:\n", "server: {instructions: Other.}\nconnections:\n", set()),
        ("connections:\n", "server: {name: other}\nconnections:\n", ALL - OF_DIRECTORIES),
        ("cpu: 1s", "cpu: 2s", {"limited"}),
        ("plain: {description: Fixed., ", "plain: {description: Fixed., access: {scopes: [a]}, ", {"plain"}),
        ("text: hi}", "text: ho}", {"text"}),
    ],
)
async def test_what_an_edit_does_not_concern_stays_the_same_object(
    folder: Path, old: str, new: str, anew: set[str]
) -> None:
    if "access" in new:
        edit(folder, "tools:\n", "auth: {api_keys: {k: {secret: abcdefghijklmnopqrstuvwxyz, scopes: [a]}}}\ntools:\n")()
    async with opened(folder / "config.yaml") as pipeline:
        assert await anew_after(pipeline, edit(folder, old, new)) == anew


async def test_a_rule_of_access_concerns_the_definitions_that_it_fits(folder: Path) -> None:
    rule = '{match: {name: "a*"}, scopes: [a]}'
    auth = f"auth: {{api_keys: {{k: {{secret: abcdefghijklmnopqrstuvwxyz, scopes: [a]}}}}, rules: [{rule}]}}\n"
    edit(folder, "tools:\n", f"{auth}tools:\n")()
    async with opened(folder / "config.yaml") as pipeline:
        assert await anew_after(pipeline, edit(folder, '"a*"', '"o*"')) == {"api", "ask", "other"}


async def test_a_variable_of_the_environment_concerns_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands inherit what of it they may, and find their programs by it."""
    async with opened(folder / "config.yaml") as pipeline:
        assert await anew_after(pipeline, lambda: monkeypatch.setenv("PLACE", "town")) == ALL - OF_DIRECTORIES
        found = pipeline.store.current.tool("env")
        assert found is not None
        assert found.definition["description"] == "In town."


async def test_a_rotated_secret_concerns_all(folder: Path) -> None:
    """Whatever masks secrets was made with it."""
    (folder / "token").write_text("hunter2-hunter2")
    edit(folder, '"https://other.example.com"', '"https://other.example.com", headers: {X-Key: "${file:token}"}')()
    async with opened(folder / "config.yaml") as pipeline:
        assert await anew_after(pipeline, lambda: None) == set()
        rotated = await anew_after(pipeline, lambda: (folder / "token").write_text("tr0ub4dor-tr0ub4dor"))
        assert rotated == ALL - OF_DIRECTORIES


async def test_code_of_a_plugin_concerns_what_calls_it(folder: Path) -> None:
    async with opened(folder / "config.yaml") as pipeline:
        assert await anew_after(pipeline, edit(folder, "'one'", "'two'", name="plugins/words.py")) == OF_PYTHON


async def test_code_of_a_plugin_that_is_still_used_stays_loaded(folder: Path) -> None:
    async with opened(folder / "config.yaml") as pipeline:
        assert await anew_after(pipeline, edit(folder, "Fixed.", "Changed.")) == {"plain"}
        assert "plugin shutdown" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_a_prompt_file_concerns_its_prompt(folder: Path) -> None:
    async with opened(folder / "config.yaml") as pipeline:
        assert await anew_after(pipeline, edit(folder, "What?", "Which?", name="prompts/ask.md")) == {"ask"}


async def test_a_directory_that_lies_elsewhere_now_concerns_what_it_confines(folder: Path) -> None:
    edit(folder, "within: data", "within: link")()
    async with opened(folder / "config.yaml") as pipeline:
        assert await anew_after(pipeline, lambda: replaced_link(folder)) == {"confined"}


async def test_a_file_concerns_the_resource_that_serves_it(folder: Path) -> None:
    async with opened(folder / "config.yaml") as pipeline:
        assert await anew_after(pipeline, lambda: (folder / "note.txt").write_text("another note")) == {"file"}


async def test_a_program_that_comes_first_on_the_path_concerns_what_is_run_by_it(folder: Path) -> None:
    def install() -> None:
        (folder / "bin" / "prlimit").write_text("#!/bin/sh\n")
        (folder / "bin" / "prlimit").chmod(0o755)

    async with opened(folder / "config.yaml") as pipeline:
        assert await anew_after(pipeline, install) == {"limited"}


async def test_warnings_about_what_is_taken_over_have_the_lines_of_now(folder: Path) -> None:
    async with opened(folder / "config.yaml") as pipeline:
        (before,) = pipeline.store.current.warnings
        assert before.path == "tools.vague.input.data"
        assert await anew_after(pipeline, edit(folder, "tools:\n", "\n\ntools:\n")) == set()
        (after,) = pipeline.store.current.warnings
        assert before.location is not None
        assert after.location is not None
        assert (after.message, after.location.line) == (before.message, before.location.line + 2)


async def test_a_program_that_anybody_may_change_is_warned_of_though_its_tool_is_the_same(folder: Path) -> None:
    async with opened(folder / "config.yaml") as pipeline:
        assert await anew_after(pipeline, lambda: (folder / "run.sh").chmod(0o757)) == set()
        assert [each.path for each in pipeline.store.current.warnings] == [
            "tools.command.shell.command",
            "tools.vague.input.data",
        ]


async def test_what_was_refused_in_between_is_not_what_is_compared_with(folder: Path) -> None:
    async with opened(folder / "config.yaml") as pipeline:
        before = primitives(pipeline)
        edit(folder, "content: [hi]}\n  env", 'content: ["{{ nothing }}"]}\n  env')()
        assert len(await refused(pipeline)) == 1
        (folder / "config.yaml").write_text(FILE)
        assert await anew_after(pipeline, lambda: None) == set()
        assert primitives(pipeline)["plain", "Tool"] is before["plain", "Tool"]


async def test_a_renewed_certificate_concerns_what_shows_it(folder: Path) -> None:
    authority = Authority()
    (folder / "ca.pem").write_text(authority.pem)
    edit(folder, '"https://other.example.com"', '"https://other.example.com", tls: {ca: ca.pem}')()
    async with opened(folder / "config.yaml") as pipeline:
        assert await anew_after(pipeline, lambda: None) == set()
        renewed = Authority("another").pem
        assert await anew_after(pipeline, lambda: (folder / "ca.pem").write_text(renewed)) == {"other"}
