"""Calls as a caller: `--as`, the key `caller` of tests, and `--explain`."""

import json
from pathlib import Path
from typing import Final

import pytest

from tests.cli.typed import Run

ISSUER: Final = "https://login.example.com"
CONFIG: Final = f"""
auth:
  api_keys: {{ci: {{sha256: "{"ab" * 32}", scopes: [deploy]}}}}
  oauth:
    issuer: {ISSUER}
    audience: tools
    roles: {{scopes: {{admins: [deploy], "*": [member]}}}}
tools:
  who:
    description: Says who calls.
    content: "{{{{ caller.subject }}}} {{{{ caller.claims.team | default('-') }}}} {{{{ caller.scopes | join(' ') }}}}"
    tests:
      - {{name: ann, caller: {{sub: ann, team: red, groups: [admins]}}, expect: {{text: ann red deploy member}}}}
      - {{name: key, caller: {{sub: ci}}, expect: {{text: ci - deploy}}}}
      - {{name: nobody, caller: {{sub: ann, iss: "https://other.example.com"}}, expect: {{error: must be an issuer}}}}
  deploy:
    description: Deploys.
    access: {{scopes: [deploy]}}
    content: done
  team:
    description: Shows the team.
    shell: {{command: [echo, "{{{{ caller.claims.team }}}}"]}}
resources:
  mine: {{uri: "note:///mine", text: "of {{{{ caller.subject }}}}"}}
prompts:
  greet: {{messages: [{{user: "Greet {{{{ caller.subject }}}}"}}]}}
"""


@pytest.fixture
def ann(run: Run, tmp_path: Path) -> str:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "ann.yaml").write_text("{sub: ann, team: red, groups: [admins]}\n")
    (tmp_path / "bob.json").write_text('{"sub": "bob"}')
    return "ann.yaml"


def test_tools_resources_and_prompts_run_as_the_caller(run: Run, ann: str) -> None:
    assert run("call", "who", "--as", ann).out == "ann red deploy member\n"
    assert run("call", "who", "--as", "bob.json").out == "bob - member\n"
    assert run("read", "note:///mine", "--as", ann).out.strip() == "of ann"
    assert "Greet ann" in run("prompt", "greet", "--as", ann).out


def test_access_is_enforced(run: Run, ann: str) -> None:
    assert run("call", "deploy", "--as", ann).out == "done\n"
    refused = run("call", "deploy", "--as", "bob.json")
    assert (refused.code, refused.out) == (1, "")


def test_explanation_shows_the_facts_of_the_caller(run: Run, ann: str) -> None:
    shown = json.loads(run("call", "team", "--as", ann, "--explain", "--raw").out)
    assert shown["argv"] == ["echo", "red"]
    assert shown["from_caller"] == {"caller.claims.team": "red"}
    assert "from the caller  caller.claims.team: red" in run("call", "team", "--as", ann, "--explain").out
    without = run("call", "team", "--as", "bob.json", "--explain")
    assert "has no claim `team`" in without.hints


def test_tests_run_as_their_caller(run: Run, ann: str) -> None:
    assert ann
    done = run("test", "who")
    assert "✓ ann" in done.out
    assert "✓ key" in done.out
    # A caller whom the file would not accept fails the test.
    assert "✗ nobody" in done.out
    assert done.code == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[ann]", "expected claims with a `sub`"),
        ("{team: red}", "expected claims with a `sub`"),
        ("", "expected claims with a `sub`"),
        ("{sub: ann, iss: 'https://other.example.com'}", f"`iss` must be an issuer of `auth.oauth`: {ISSUER}"),
        ("{sub: [", "who.yaml"),
    ],
)
def test_file_without_auth_is_an_error(run: Run, ann: str, tmp_path: Path, content: str, expected: str) -> None:
    assert ann
    (tmp_path / "who.yaml").write_text(content)
    done = run("call", "who", "--as", "who.yaml")
    assert done.code != 0
    assert expected in done.hints


def test_as_flag_requires_a_file_with_auth(run: Run, ann: str, tmp_path: Path) -> None:
    assert "requires a file" in run("call", "who", "--as", ann, "--url", "http://127.0.0.1:1").hints
    (tmp_path / "open.yaml").write_text("tools: {who: {description: W., content: [{text: x}]}}")
    assert "`auth` is not set" in run("call", "open.yaml", "who", "--as", ann).hints
    keys = "auth: {api_keys: {ann: {secret: key-of-ann-0123456789}}}\n"
    (tmp_path / "keys.yaml").write_text(keys + (tmp_path / "open.yaml").read_text())
    (tmp_path / "token.yaml").write_text(f"{{sub: ann, iss: '{ISSUER}'}}")
    (tmp_path / "holder.yaml").write_text("{sub: ann}")
    assert "`iss` requires `auth.oauth`" in run("call", "keys.yaml", "who", "--as", "token.yaml").hints
    assert run("call", "keys.yaml", "who", "--as", "holder.yaml").code == 0
    assert "no-such-file.yaml" in run("call", "who", "--as", "no-such-file.yaml").hints
