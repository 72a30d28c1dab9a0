"""Commands with upstreams: validate --connect, lock, plan, call --explain, test."""

import json
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.certificates import Authority
from tests.fork_server import FORKED
from tests.upstreams.test_failures import odd

SECONDS: Final = 60


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FORKED, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tests = "tests: [{name: works, expect: {text: {contains: did work}}}]"
    entry = f"{odd('good')}, tools: {{include: [work, none_*], override: {{work: {{{tests}}}}}}}"
    (tmp_path / "config.yaml").write_text(f"upstreams:\n  odd: {{{entry}}}\n", encoding="utf-8")
    return tmp_path


def test_validate_connects_only_with_the_option(folder: Path) -> None:
    (folder / "wrong.yaml").write_text("upstreams: {a: {connection: nowhere}, b: {url: 'ftp://x'}}\n", encoding="utf-8")
    (folder / "name.yaml").write_text("upstreams: {my server: {command: x}, a b: {command: x, tools: false}}\n")

    alone, connected = run(folder, "validate", "config.yaml"), run(folder, "validate", "--connect", "config.yaml")

    assert "is valid" in alone.stderr
    assert "`none_*` does not match any of the upstream's tools" in connected.stdout
    assert run(folder, "validate", "name.yaml").stdout.count("cannot start a tool name") == 1
    assert "unknown connection `nowhere`" in run(folder, "validate", "wrong.yaml").stdout


def test_files_of_a_connection_are_relative_to_the_file_with_the_connection(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "ca.pem").write_text(Authority().pem, encoding="utf-8")
    connection = "connections: {api: {base_url: 'https://mcp.example.com', tls: {ca: ca.pem}}}"
    (tmp_path / "other" / "connections.yaml").write_text(connection, encoding="utf-8")
    upstreams = "include: [other/connections.yaml]\nupstreams: {api: {connection: api, url: mcp}}\n"
    (tmp_path / "config.yaml").write_text(upstreams, encoding="utf-8")
    assert "is valid" in run(tmp_path, "validate", "config.yaml").stderr


def test_validate_reports_unreachable_upstreams(folder: Path) -> None:
    (folder / "away.yaml").write_text("upstreams: {away: {command: /no/such/program}}\n", encoding="utf-8")

    validated = run(folder, "validate", "--connect", "--json", "away.yaml")

    shown = json.loads(validated.stdout)
    assert [(each["path"], each["severity"]) for each in shown] == [("upstreams.away", "warning")]
    assert (Path(shown[0]["file"]).name, shown[0]["line"], shown[0]["column"]) == ("away.yaml", 1, 19)
    assert "cannot be reached: the program" in shown[0]["message"]
    assert validated.stderr == ""  # the warning replaces the log


@pytest.mark.parametrize("words", [("serve", "--http", "127.0.0.1:0"), ("validate", "--connect"), ("call", "x")])
def test_invalid_file_starts_no_upstream(folder: Path, words: tuple[str, ...]) -> None:
    entries = 'a: {command: [touch, started]}, b: {url: "http://127.0.0.1:1/mcp", allow_private: true}'
    (folder / "wrong.yaml").write_text(f"upstreams: {{{entries}}}\ntools: {{x: {{content: x, tme: 1}}}}\n")

    finished = run(folder, words[0], "wrong.yaml", *words[1:])

    assert finished.returncode == 2
    assert "tools.x.tme: unknown key" in finished.stdout + finished.stderr
    assert not (folder / "started").exists()


def test_lock_contains_definitions_of_upstreams(folder: Path) -> None:
    assert run(folder, "lock").returncode == 0
    assert "odd_work" in (folder / "mcp-gateway.lock").read_text(encoding="utf-8")
    assert run(folder, "lock", "--check").returncode == 0


def test_plan_lists_tools_of_upstreams(folder: Path) -> None:
    (folder / "new.yaml").write_text(f"upstreams:\n  odd: {{{odd('good')}}}\n", encoding="utf-8")

    assert "odd_grow" in run(folder, "plan", "new.yaml", "config.yaml").stdout


def test_plan_reports_both_places_of_a_duplicate_name(folder: Path) -> None:
    entry = f"{{{odd('good')}, prefix: same_}}"
    (folder / "new.yaml").write_text(f"upstreams:\n  one: {entry}\n  two: {entry}\n", encoding="utf-8")

    shown = run(folder, "plan", "new.yaml", "config.yaml")
    told = json.loads(run(folder, "plan", "--json", "new.yaml", "config.yaml").stdout)["warnings"]

    new = folder / "new.yaml"
    doubled = f"{new}:3:8: upstreams.two: the tool `same_work` is not offered: `upstreams.one` ({new}:2:8)"
    assert doubled in shown.stderr
    assert any(doubled in warning for warning in told)


def test_call_explain_and_test_commands_support_upstreams(folder: Path) -> None:
    assert "calls `work` of the upstream odd" in run(folder, "call", "odd_work", "--explain").stdout
    tested = run(folder, "test")
    assert (tested.returncode, "✓ works" in tested.stdout) == (0, True), tested
