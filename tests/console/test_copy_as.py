"""Copied commands and tests of the Call page make the same call."""

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gateway import exact_json
from gateway.cli import main
from gateway.json_types import Json
from gateway.wire.revisions import LATEST_MODERN
from tests.cli.typed import started
from tests.console.node_program import node_program
from tests.programs import need

HERE: Final = Path(__file__).parent
SECONDS: Final = 120
SCHEMA: Final = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "region": {"type": "string", "x-mcp-header": "Region"}},
    "additionalProperties": True,
}
CONFIG: Final = f"""\
tools:
  -given:
    description: The arguments, in base64, because texts of results lose their controls.
    input_schema: {json.dumps(SCHEMA)}
    shell: {{script: 'base64 -w 0 "$INPUTS_FILE"'}}
"""
VALUES: Final[dict[str, dict[str, Json]]] = {
    "nothing": {},
    "quotes": {"text": """it's "quoted" $HOME `id` \\ !! *""", "region": "l'été"},
    "lines": {"text": "first\nsecond\n\n  third\\n", "region": " padded "},
    "unicode": {"text": "ü 😀 \u202e\u00a0\u2028", "naïve 键": "ok"},
    "controls": {"text": "a\tb\x00\x07\x1b[31m\x7f", "region": "a\r\nInjected: yes"},
    "dashes": {"text": "--raw", "-x": "-y", "--url": "http://example.com"},
    "names": {"a=b": 1, "k:": 2, "k@": 3, "@k": "@file", "with space": "x", ":": 4, "": 5},
    "nested": {"object": {"a": [1, {"b": None}], "c": {}}, "list": [[], "x", True], "text": "[1]"},
    "numbers": {
        "large": 9007199254740993,
        "unsigned": 2**64 - 1,
        "half": 0.5,
        "power": 1e300,
        "no": False,
        "null": None,
    },
    "YAML": {
        "text": "${HOME} ${env:HOME} $${x} {{ text }} #",
        "a: b": "- c",
        "yes": "no",
        "~": "~",
        "{": "}",
        "? ": "|\n >",
    },
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "config.yaml").write_text(CONFIG)
    with started("serve", "config.yaml", "--http", "127.0.0.1:0", "--log-format", "json", cwd=folder) as server:
        assert server.stderr is not None
        events = (json.loads(line) for line in server.stderr)
        yield next(event["url"] for event in events if event["event"] == "listening")
        server.terminate()
        server.wait(SECONDS)


@pytest.fixture(scope="module")
def copies(url: str) -> dict[str, dict[str, str]]:
    """The copied forms of each call."""
    requests = {
        case: {"name": "-given", "values": values, "url": url, "schema": SCHEMA, "result": result_of(values)}
        for case, values in VALUES.items()
    }
    done = subprocess.run(
        [node_program(), HERE / "write_copies.mjs", LATEST_MODERN],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    forms: dict[str, dict[str, str]] = json.loads(done.stdout)
    return forms


def result_of(values: dict[str, Json]) -> Json:
    return {"content": [{"type": "text", "text": base64.b64encode(exact_json.dumps(values)).decode()}]}


def given(text: str) -> Json:
    """Return the arguments that the tool received, according to its result."""
    return exact_json.loads(base64.b64decode(text))


def in_shell(text: str) -> str:
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("case", VALUES)
def test_copied_command_calls_with_the_same_arguments(
    case: str, copies: dict[str, dict[str, str]], capfd: pytest.CaptureFixture[str]
) -> None:
    words = in_shell(f"mcp_gateway() {{ printf '%s\\0' \"$@\"; }}; {copies[case]['command'].replace('-', '_', 1)}")
    assert main(words.rstrip("\n").split("\0")[:-1]) == 0
    assert given(capfd.readouterr().out) == VALUES[case]


@pytest.mark.parametrize("case", VALUES)
def test_copied_curl_command_calls_with_the_same_arguments(case: str, copies: dict[str, dict[str, str]]) -> None:
    need("curl")
    answer = json.loads(in_shell(copies[case]["curl"]))
    assert given(answer["result"]["content"][0]["text"]) == VALUES[case]


def test_copied_tests_expect_the_recorded_result(
    copies: dict[str, dict[str, str]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    entries = "".join(forms["test"].removeprefix("    tests:\n") for forms in copies.values())
    (tmp_path / "config.yaml").write_text(f"{CONFIG}    tests:\n{entries}")
    assert main(["test", str(tmp_path / "config.yaml")]) == 0
    assert f"{len(VALUES)} passed" in capfd.readouterr().err


def test_copied_test_fails_for_another_result(copies: dict[str, dict[str, str]], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG + copies["quotes"]["test"].replace("quoted", "changed", 1))
    assert main(["test", str(tmp_path / "config.yaml")]) == 1
