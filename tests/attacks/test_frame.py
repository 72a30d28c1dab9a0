"""The test framework detects each kind of successful attack."""

import http.client
from dataclasses import replace
from pathlib import Path

import pytest

from tests.attacks.seeds import SECRETS
from tests.attacks.tap import Scanner
from tests.attacks.target import Plan, Target, attacking

PLAN = Plan(
    file="""
    tools:
      read:
        description: Read any file.
        input: {path: string}
        shell: {command: [cat, "--", "{{ path }}"]}
      leave:
        description: Make the payload_file.
        shell: {command: [touch, "@payload_file@"]}
      echo:
        description: Repeat a text.
        input: {text: string}
        content: [{text: "{{ text }}"}]
    """
)


def test_seeded_tools_work_without_leaks(target: Target) -> None:
    assert target.client.text("seeded_command") == " ".join(
        str(len(SECRETS[name].encode())) for name in ("env in an environment", "file", "file of lines")
    )
    assert "127.0.0.1" in target.client.refusal("seeded_request")
    assert "***" in target.client.refusal("seeded_echo")


def test_read_of_an_outside_file_is_detected(tmp_path: Path) -> None:
    with attacking(PLAN, tmp_path) as target:
        target.client.text("read", {"path": str(target.canary.file)})
        with pytest.raises(AssertionError, match="canary"):
            target.assert_unharmed()
        target.scanner.found.clear()


def test_leaked_secret_is_detected(tmp_path: Path) -> None:
    plan = replace(PLAN, environment={"MCP_GATEWAY_SECRET_KEY": "another key, so that this one is not masked"})
    with attacking(plan, tmp_path) as target:
        target.client.text("echo", {"text": SECRETS["signing key"]})
        with pytest.raises(AssertionError, match="signing key"):
            target.assert_unharmed()
        target.scanner.found.clear()


def test_executed_payload_is_detected(tmp_path: Path) -> None:
    with attacking(PLAN, tmp_path) as target:
        target.client.text("leave")
        with pytest.raises(AssertionError, match="payload"):
            target.assert_unharmed()
        target.canary.payload_file.unlink()


def test_connection_to_the_canary_is_detected(tmp_path: Path) -> None:
    with attacking(PLAN, tmp_path) as target:
        connection = http.client.HTTPConnection("127.0.0.1", target.canary.port)
        connection.request("GET", "/stolen")
        assert connection.getresponse().read().decode() == target.canary.content
        connection.close()
        with pytest.raises(AssertionError, match="GET /stolen"):
            target.assert_unharmed()
        target.canary.reached.clear()


def test_leaked_session_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with attacking(PLAN, tmp_path) as target, target.client.session():
        monkeypatch.setattr("tests.attacks.target.TIMEOUT_SECONDS", 0.5)
        with pytest.raises(AssertionError, match="sessions"):
            target.assert_unharmed()
        monkeypatch.undo()


def test_killed_daemon_is_detected(tmp_path: Path) -> None:
    served = attacking(PLAN, tmp_path)
    target = served.__enter__()
    target.process.kill()
    target.process.wait()
    with pytest.raises(AssertionError, match="ended"):
        target.assert_unharmed()
    with pytest.raises(AssertionError):
        served.__exit__(None, None, None)


def test_split_marker_is_detected() -> None:
    scanner = Scanner([("secret", b"correct horse")])
    kept = b""
    for byte in b"a correct horse.":
        kept = scanner.scan(kept, bytes([byte]))
    assert scanner.found
