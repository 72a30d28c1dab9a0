"""`--env-file FILE`: variables for the configuration, without replacing those of the environment."""

import json
import os
from pathlib import Path

import pytest

from tests.cli.typed import Run

CONFIG = """\
tools:
  show:
    description: Show the variables.
    content: "${env:PLAIN} ${env:QUOTED} ${env:EXPORTED} ${env:SET}"
"""
VARIABLES = """\
# comment
PLAIN=plain # comment

export EXPORTED='$PLAIN ${PLAIN}'
QUOTED="two words # here"
SET=from the file
EMPTY=
"""
NAMES = ("PLAIN", "QUOTED", "EXPORTED", "SET", "EMPTY", "BROKEN", "TOKEN", "MCP_GATEWAY_CONFIG")


@pytest.fixture(autouse=True)
def directory(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    del run  # which has changed the working directory
    for name in NAMES:
        # With only the second call, the variable would remain after the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "new.yaml").write_text(CONFIG)
    (tmp_path / ".env").write_text(VARIABLES)
    return tmp_path


def test_environment_overrides_variables_of_the_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SET", "from the environment")
    result = run("call", "--env-file", ".env", "show")
    assert result.out == "plain two words # here $PLAIN ${PLAIN} from the environment\n"


@pytest.mark.parametrize(
    "words",
    [
        ("validate", "--strict"),
        ("list",),
        ("call", "show"),
        ("test",),
        ("plan", "new.yaml", "config.yaml"),
        ("lock",),
    ],
)
def test_commands_that_load_a_configuration_accept_the_flag(run: Run, words: tuple[str, ...]) -> None:
    assert run(*words, "--env-file", ".env").code == 0


def test_file_is_not_read_without_the_flag(run: Run) -> None:
    result = run("validate")
    assert result.code == 2
    assert "PLAIN" in result.out


def test_settings_can_be_in_the_file(run: Run, directory: Path) -> None:
    (directory / "config.yaml").rename(directory / "other.yaml")
    (directory / ".env").write_text(VARIABLES + "MCP_GATEWAY_CONFIG=other.yaml\n")
    assert run("validate", "--env-file", ".env").code == 0


def test_malformed_lines_are_named_by_number_and_not_shown(run: Run, directory: Path) -> None:
    lines = ["A=1", "", "", "s3cr3t-one", "export", "B=2", "=s3cr3t-two", "C='s3cr3t-three", "D=s3cr3t\0four", ""]
    (directory / ".env").write_text("\n".join(lines))
    result = run("validate", "--env-file", ".env")
    assert result.code == 2
    assert [number for number in range(1, 10) if f".env:{number}:" in result.hints] == [4, 5, 7, 8, 9]
    assert "expected NAME=value" in result.hints
    assert "s3cr3t" not in result.hints + result.out
    assert "B" not in os.environ


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "cannot read other.env: No such file"), (b"A=\xff\xfes3cr3t", "is not UTF-8 text")]
)
def test_unreadable_file_is_an_error(run: Run, directory: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (directory / "other.env").write_bytes(content)
    result = run("call", "show", "--env-file", "other.env")
    assert result.code == 2
    assert reason in result.hints
    assert "s3cr3t" not in result.hints


def test_byte_order_mark_and_windows_line_endings_are_accepted(run: Run, directory: Path) -> None:
    (directory / ".env").write_bytes(b"\xef\xbb\xbf" + VARIABLES.replace("\n", "\r\n").encode())
    result = run("call", "show", "--env-file", ".env", "--raw")
    assert json.loads(result.out)["content"][0]["text"] == "plain two words # here $PLAIN ${PLAIN} from the file"
