"""Responses of `call` to input requests, from flags and on a terminal."""

from pathlib import Path

import pytest

from tests.cli.terminal import TERMINAL, Terminal
from tests.cli.typed import Run

CONFIG = """\
plugins: [plugins]
tools:
  delete: {description: Deletes., input: {file: string}, confirm: "Delete {{ file }}?", content: deleted}
  order: {python: "order:order"}
  page: {python: "order:page"}
  later: {python: "order:order", task: required}
  samples: {python: "order:sampled"}
  labels: {python: "order:labels"}
"""
PLUGIN = """\
from gateway.plugin import Context

FORM = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 1, "description": "Number of items"},
        "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "gift": {"type": "boolean", "default": False},
    },
    "required": ["count"],
}

async def order(context: Context) -> str:
    answer = await context.elicit("form", "How many?", FORM)
    return f"{answer.action} {answer.content}"

async def page(context: Context) -> str:
    return (await context.elicit_url("page", "Sign in", "https://example.com/in")).action

LABELS = {
    "type": "object",
    "properties": {
        "labels": {
            "type": "array",
            "items": {"anyOf": [{"const": "a", "title": "Alpha"}, {"const": "b", "title": "b"}]},
        },
        "note": {"type": "string"},
    },
}

async def labels(context: Context) -> str:
    return str((await context.elicit("form", "Which?", LABELS)).content)

async def sampled(context: Context) -> str:
    return (await context.sample("poem", "Write a poem", max_tokens=10)).text
"""


@pytest.fixture
def folder(run: Run, tmp_path: Path) -> Path:
    del run  # changes the directory
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/order.py").write_text(PLUGIN)
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["delete", "file=a", "--yes"], "deleted\n"),
        (["page", "--yes"], "accept\n"),
        (["order", "--answer", "count=3"], "accept {'count': 3, 'colour': 'red', 'gift': False}\n"),
        (["later", "--answer", "count=3"], "accept {'count': 3, 'colour': 'red', 'gift': False}\n"),
        (
            ["order", "--answer", "count:=2", "--answer", "colour=blue", "--answer", "gift=yes"],
            "accept {'count': 2, 'colour': 'blue', 'gift': True}\n",
        ),
    ],
)
def test_flags_answer_questions_without_a_terminal(run: Run, folder: Path, words: list[str], out: str) -> None:
    del folder
    finished = run("call", *words)
    assert (finished.code, finished.out) == (0, out), finished.hints


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (["delete", "file=a"], 1, "Pass --yes to confirm"),
        (["later"], 1, "--answer field=value"),
        (["order", "--yes"], 1, "The call asks for `count`. Pass --answer count=VALUE"),
        (["delete", "file=a", "--answer", "x=1"], 1, "Pass --yes"),
        (["order", "--answer", "count=many"], 2, '--answer count: must be an integer, was "many"'),
        (["order", "--answer", "count=0"], 2, "--answer count: must be at least 1"),
        (["samples", "--yes"], 1, "capability sampling"),
    ],
)
def test_missing_or_invalid_answer_is_rejected(run: Run, folder: Path, words: list[str], code: int, hint: str) -> None:
    del folder
    finished = run("call", *words)
    assert (finished.code, finished.out) == (code, "")
    assert hint in finished.hints


def test_form_can_be_filled_in_on_a_terminal(folder: Path) -> None:
    terminal = Terminal(folder, "call", "order", environ=TERMINAL)
    for prompt, text in (
        ("count: ", "0\n"),
        ("must be at least 1, was 0\r\ncount: ", "4\n"),
        ("colour: ", "\n"),
        ("gift: ", "yes\n"),
    ):
        terminal.read_until(prompt)
        terminal.type(text)
    assert terminal.ended() == 0
    assert "accept {'count': 4, 'colour': 'red', 'gift': True}" in terminal.shown
    assert "(one of red, blue; default: red)" in terminal.shown


def test_list_is_filled_in_and_optional_field_is_left_empty(folder: Path) -> None:
    terminal = Terminal(folder, "call", "labels", environ=TERMINAL)
    terminal.read_until("(one of a (Alpha), b; optional)\r\nlabels: ")
    terminal.type("a, b\n")
    terminal.read_until("note: ")
    terminal.type("\n")
    assert terminal.ended() == 0
    assert "{'labels': ['a', 'b']}" in terminal.shown


@pytest.mark.parametrize(("text", "code", "shown"), [("y\n", 0, "deleted"), ("\n", 1, "The user declined")])
def test_confirmation_is_requested_on_a_terminal(folder: Path, text: str, code: int, shown: str) -> None:
    terminal = Terminal(folder, "call", "delete", "file=a", environ=TERMINAL)
    terminal.read_until("Delete a?\r\nConfirm? [y/N] ")
    terminal.type(text)
    assert terminal.ended() == code
    assert shown in terminal.shown


def test_end_of_input_declines_a_form(folder: Path) -> None:
    terminal = Terminal(folder, "call", "order", environ=TERMINAL)
    terminal.read_until("count: ")
    terminal.type("\x04")
    assert terminal.ended() == 1
    assert "decline None" in terminal.shown
