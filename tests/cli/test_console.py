"""Output on a terminal (colours, control sequences) and in a pipe."""

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.console import Console, say
from gateway.cli.execution import report
from gateway.cli.results import Piece, pieces_of, save, show_raw, show_tool_result
from gateway.errors import ConfigError, ErrorCode, ExecutionError, RpcError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(environ: Mapping[str, str]) -> tuple[Console, io.StringIO]:
    stream = Terminal()
    return Console(stream, environ), stream


def test_only_a_terminal_gets_colour() -> None:
    console, _ = on_terminal({"TERM": "xterm"})
    assert console.styled("x", "red") == "\x1b[31mx\x1b[0m"
    assert Console(io.StringIO(), {"TERM": "xterm"}).styled("x", "red") == "x"


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_disabled(environ: dict[str, str]) -> None:
    console, _ = on_terminal(environ)
    assert console.styled("x", "red") == "x"


def test_server_text_cannot_control_the_terminal() -> None:
    console, stream = on_terminal({})
    console.foreign("a\x1b[2Jb\x1b]0;title\x07c\x9b1md\te\n\r")
    assert stream.getvalue() == "abcd\te\n"


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "xterm"}, {"TERM": "dumb"}])
def test_lines_cannot_control_the_terminal(environ: dict[str, str]) -> None:
    console, stream = on_terminal(environ)
    console.line(f"{console.styled('error:', 'red')} a\x1b[2Jb\x1b]0;title\x07c\x9b1md\u202ee\rf\ng\U000e0041")
    assert stream.getvalue() == f"{console.styled('error:', 'red')} abcd\\u202eef\ng\\U000e0041\n"


@pytest.mark.parametrize(
    "error",
    [RpcError(ErrorCode.INVALID_PARAMS, "a\x1b[2Jb", "c\x1b]0;title\x07d"), ExecutionError("a\x1b[2Jb (c\x9b1md)")],
)
def test_server_error_cannot_control_the_terminal(error: Exception) -> None:
    console, stream = on_terminal({"NO_COLOR": "1"})
    assert report(error, console, ()) == 1
    assert stream.getvalue() == "error: ab (cd)\n"


def test_json_result_cannot_control_the_terminal() -> None:
    console, stream = on_terminal({})
    show_raw({"text": "a\x9b2Jb\u202ec"}, console)
    assert json.loads(stream.getvalue()) == {"text": "ab\u202ec"}
    assert "\u202e" not in stream.getvalue()


def test_pipe_gets_server_text_unchanged() -> None:
    stream = io.StringIO()
    Console(stream).foreign("a\x1b[2Jb")
    assert stream.getvalue() == "a\x1b[2Jb\n"


def test_columns_are_aligned_and_truncated_at_the_terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((40, 20)))
    console, stream = on_terminal({"NO_COLOR": "1"})
    console.table([("a", "x y", "short"), ("long-name", "z", "word " * 20)])
    first, second = stream.getvalue().splitlines()
    assert first == "a          x y  short"
    assert len(second) == 40
    assert second.endswith("…")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (True, "yes"), ([], "none"), (["a", 1], "a, 1"), ({"a": False}, "a no"), ({}, "none"), (1.5, "1.5")],
)
def test_status_values_are_words(value: object, text: str) -> None:
    assert say(value) == text


RESULT: dict[str, Any] = {
    "content": [{"type": "text", "text": '{"a":[1]}'}],
    "structuredContent": {"a": [1]},
}


def shown(result: dict[str, Any], stream: io.StringIO) -> tuple[str, str]:
    hints = io.StringIO()
    show_tool_result(result, out=Console(stream, {"NO_COLOR": "1"}), hints=Console(hints))
    return stream.getvalue(), hints.getvalue()


def test_structured_content_is_shown_once_and_readably_on_a_terminal() -> None:
    assert shown(RESULT, Terminal())[0] == '{\n  "a": [\n    1\n  ]\n}\n'
    noted = {**RESULT, "content": [*RESULT["content"], {"type": "text", "text": "A note."}]}
    assert shown(noted, Terminal())[0].startswith('A note.\n{\n  "a"')


def test_structured_content_is_one_line_in_a_pipe() -> None:
    assert shown(RESULT, io.StringIO())[0] == '{"a":[1]}\n'


def test_binary_content_is_not_printed() -> None:
    out, hints = shown({"content": [{"type": "image", "data": "AAEC", "mimeType": "image/png"}]}, io.StringIO())
    assert out == ""
    assert "image/png, 3 bytes" in hints
    assert "--output" in hints


def test_only_one_binary_can_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="contains 2 files, but only one can be saved"):
        save([(b"1", "image/png"), (b"2", "image/png")], tmp_path / "x", hints=Console(io.StringIO()))


@pytest.mark.parametrize(
    ("block", "piece"),
    [
        ({"type": "resource", "resource": {"uri": "a:b", "text": "x"}}, ("x", "")),
        ({"uri": "a:b", "blob": "AAEC", "mimeType": "image/gif"}, (b"\0\1\2", "image/gif")),
        ({"type": "resource_link", "uri": "a:b", "name": "n"}, ("n: a:b", "")),
        ({"type": "new", "x": 1}, ('{"type": "new", "x": 1}', "")),
    ],
)
def test_every_kind_of_content_is_printed(block: dict[str, Any], piece: Piece) -> None:
    assert pieces_of([block]) == [piece]


def test_bidirectional_controls_are_escaped() -> None:
    stream = Terminal()
    console = Console(stream, {})
    console.foreign("a\u202eb\u200bc\n")
    console.table([["x\u2066y", "z"]])
    assert stream.getvalue().splitlines() == ["a\\u202eb\\u200bc", "\x1b[1mx\\u2066y\x1b[0m  z"]
