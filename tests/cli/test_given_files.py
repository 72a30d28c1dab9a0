"""Files as arguments: `photo=@path` on the command line, and `{file: …}` in tests."""

import json
from pathlib import Path

import pytest

from tests.cli.typed import Run

FILE = """
tools:
  look:
    description: Look at files.
    input:
      photo: {type: file, max_size: 8B, required: false}
      photos: {type: array, items: {type: file}, required: false}
      text: {type: string, required: false}
    content: "{{ photo.name if photo }} {{ photos | length if photos }} {{ text }}"
    tests:
      - {name: given, with: {photo: {file: a b.png}}, expect: {text: {contains: a b.png}}}
      - {name: listed, with: {photos: [{file: a b.png}, {file: large}]}, expect: {text: {contains: "2"}}}
      - {name: large, with: {photo: {file: large}}, expect: {error: "at most 8B, was 9B"}}
      - {name: missing, with: {photo: {file: missing}}, expect: {error: true}}
"""


@pytest.fixture(autouse=True)
def _files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(FILE)
    (tmp_path / "a b.png").write_bytes(b"1")
    (tmp_path / "large").write_bytes(b"123456789")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["photo=@{folder}/a b.png"], "a b.png"),
        (["photos=@{folder}/large"], "1"),
        (["photos=@{folder}/large", "photos=@{folder}/a b.png"], "2"),
        (["text=@ada"], "@ada"),
        (["photo=@{folder}/large"], "/photo must be at most 8B, was 9B"),
        (["photo=@{folder}/missing"], "cannot be read: No such file or directory"),
        (["photos=@{folder}/large", "photos=@{folder}/missing"], "cannot be read: No such file or directory"),
        (["photo=@{folder}"], "cannot be read: Is a directory"),
        (["photo=@"], "cannot be read: "),
        (["--json", '{{"photo": "@a\\u0000"}}'], "cannot be read: embedded null byte"),
        (["photo=@/dev/zero"], "photo=@/dev/zero: cannot be read: it is larger than 256 MiB"),
    ],
)
def test_file_is_read_if_the_input_is_a_file(run: Run, tmp_path: Path, words: list[str], said: str) -> None:
    finished = run("call", "look", *(word.format(folder=tmp_path) for word in words))
    assert said in finished.out + finished.hints
    assert (finished.code == 0) is ("must be" not in said and "cannot" not in said)


def test_can_pass_files(run: Run) -> None:
    finished = run("test", "--json")
    verdicts = {each["name"]: (each["grade"], each["reason"]) for each in json.loads(finished.out)}
    assert {name for name, (grade, _) in verdicts.items() if grade == "passed"} == {"given", "listed", "large"}
    assert "missing cannot be read: No such file or directory" in verdicts["missing"][1]


def test_nesting_of_arguments_is_limited(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("tools: {say: {description: d, input: {a: {}}, content: ok}}\n")
    done = run("call", "say", "--json", '{"a": ' + "[" * 300 + "]" * 300 + "}")
    assert done.code == 1
    assert "nested more than 64 levels deep (limits.request_depth)" in done.hints
