"""`mcp-gateway test`: calls, stub responses, results and exit codes."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.app.gateway import Gateway
from gateway.cli.commands.test.running import Grade, run_tests
from gateway.config.settings import read_settings
from tests.cli.typed import Run


def verdicts_of(run: Run, folder: Path, text: str, *words: str) -> dict[str, str]:
    """Return the result of each test by name, with its reason."""
    (folder / "config.yaml").write_text(text)
    finished = run("test", "--json", *words)
    listed = json.loads(finished.out)
    assert finished.code == int(any(verdict["grade"] == "failed" for verdict in listed))
    return {each["name"]: f"{each['grade']} {each['reason']}".strip() for each in listed}


def test_text_matches_whole_part_or_pattern(run: Run, tmp_path: Path) -> None:
    text = """
tools:
  say:
    input: {word: string}
    content: "Say {{ word }}.\\n\\n"
    tests:
      - {name: whole, with: {word: hello}, expect: {text: Say hello.}}
      - {name: other, with: {word: hello}, expect: {text: Say hello}}
      - {name: part, with: {word: hello}, expect: {text: {contains: hell}}}
      - {name: no part, with: {word: hello}, expect: {text: {contains: Hell}}}
      - {name: pattern, with: {word: hello}, expect: {text: {matches: "hel+o\\\\.$"}}}
      - {name: no pattern, with: {word: hello}, expect: {text: {matches: "^hello"}}}
      - {name: anything, with: {word: hello}}
"""
    assert verdicts_of(run, tmp_path, text) == {
        "whole": "passed",
        "other": "failed the text is different",
        "part": "passed",
        "no part": "failed the text does not contain 'Hell'",
        "pattern": "passed",
        "no pattern": "failed the text does not match ^hello",
        "anything": "passed",
    }


def test_error_passes_only_if_expected(run: Run, tmp_path: Path) -> None:
    text = """
tools:
  add:
    input: {a: integer}
    shell: {script: 'test "$INPUT_A" -gt 0 || { echo too small >&2; exit 3; }; echo $INPUT_A'}
    tests:
      - {name: any, with: {a: 0}, expect: {error: true}}
      - {name: named, with: {a: 0}, expect: {error: too small}}
      - {name: misnamed, with: {a: 0}, expect: {error: too large}}
      - {name: misfit, with: {a: x}, expect: {error: /a must be an integer}}
      - {name: unexpected, with: {a: 0}, expect: {text: "0"}}
      - {name: unspoken, with: {a: 0}}
      - {name: missed, with: {a: 1}, expect: {error: true}}
"""
    assert verdicts_of(run, tmp_path, text) == {
        "any": "passed",
        "named": "passed",
        "misnamed": "failed the error does not contain 'too large'",
        "misfit": "passed",
        "unexpected": "failed failed",
        "unspoken": "failed failed",
        "missed": "failed expected an error, but the call succeeded",
    }


def test_json_comparison_ignores_order_and_true_is_not_one(run: Run, tmp_path: Path) -> None:
    text = """
tools:
  figures:
    shell: {command: [echo, '{"a": [1, true], "b": null}']}
    output: {format: json}
    tests:
      - {name: equal, expect: {json: {b: null, a: [1, true]}}}
      - {name: less, expect: {json: {a: [1, true]}}}
      - {name: like, expect: {json: {b: null, a: [true, 1]}}}
  words:
    shell: {command: [echo, "3"]}
    tests:
      - {name: text, expect: {json: 3}}
  prose:
    shell: {command: [echo, hello]}
    tests:
      - {name: prose, expect: {json: 3}}
"""
    assert verdicts_of(run, tmp_path, text) == {
        "equal": "passed",
        "less": "failed the JSON is different",
        "like": "failed the JSON is different",
        "text": "passed",
        "prose": "failed expected JSON, but received text",
    }


async def test_stub_response_replaces_the_request(tmp_path: Path) -> None:
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"title": "real"})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    async with TestServer(application) as server:
        config = tmp_path / "config.yaml"
        (tmp_path / "answer.json").write_text('{"title": "of a file"}')
        config.write_text(
            f"""
connections: {{api: {{base_url: "{server.make_url("")}", allow_private: true}}}}
tools:
  get:
    input: {{id: integer}}
    http: {{connection: api, url: "/items/{{id}}", cache: 60s}}
    output: {{select: "{{title: title}}"}}
    tests:
      - {{name: json, with: {{id: 1}}, http: {{json: {{title: here, more: 1}}}}, expect: {{json: {{title: here}}}}}}
      - {{name: again, with: {{id: 1}}, http: {{json: {{title: another}}}}, expect: {{json: {{title: another}}}}}}
      - {{name: file, with: {{id: 1}}, http: {{file: answer.json}}, expect: {{json: {{title: of a file}}}}}}
      - {{name: no file, with: {{id: 1}}, http: {{file: nothing.json}}, expect: {{error: true}}}}
      - {{name: status, with: {{id: 1}}, http: {{status: 500}}, expect: {{error: HTTP 500}}}}
      - {{name: refused, with: {{id: x}}, http: {{json: {{}}}}, expect: {{error: /id}}}}
      - {{name: real, with: {{id: 5}}, expect: {{json: {{title: real}}}}}}
"""
        )
        settings = read_settings({"config": str(config), "log_level": "error"})
        verdicts = {verdict.name: verdict async for verdict in run_tests(settings)}
    assert {name: verdict.grade for name, verdict in verdicts.items()} == {
        **dict.fromkeys(("json", "again", "file", "status", "refused", "real"), Grade.PASSED),
        "no file": Grade.FAILED,
    }, verdicts
    assert "nothing.json cannot be read" in verdicts["no file"].reason
    assert asked == ["/items/5"]


@pytest.mark.parametrize("fields", ["method: POST, body: y", "pages: {next: next, max: 3}"])
async def test_stub_response_replaces_https_servers(tmp_path: Path, fields: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f'tools: {{get: {{http: {{url: "https://no-such-host.invalid/x", {fields}}},'
        " tests: [{http: {json: [1]}, expect: {json: [1]}}]}}"
    )
    settings = read_settings({"config": str(config), "log_level": "error"})
    assert [verdict.grade async for verdict in run_tests(settings)] == [Grade.PASSED]


def test_confirmations_are_skipped_and_other_questions_fail(run: Run, tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "curious.py").write_text(
        "from gateway.plugin import Context\n"
        "async def ask(context: Context) -> str:\n"
        "    '''Ask.'''\n"
        "    return (await context.elicit('name', 'Who?', {'type': 'object', 'properties': {}})).action\n"
    )
    text = """
plugins: [plugins]
tools:
  go:
    input: {to: string}
    confirm: "Go to {{ to }}?"
    content: "Went to {{ to }}."
    tests: [{name: goes, with: {to: Rome}, expect: {text: Went to Rome.}}]
  work:
    confirm: Work?
    task: required
    shell: {script: echo done}
    tests: [{name: works, expect: {text: done}}]
  ask:
    python: "curious:ask"
    tests: [{name: asks}]
"""
    assert verdicts_of(run, tmp_path, text) == {
        "goes": "passed",
        "works": "passed",
        "asks": "failed requires user input other than a confirmation, which tests cannot provide",
    }


def test_plugin_output_is_not_part_of_the_report(run: Run, tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "house.py").write_text(
        "started = []\ndef startup(): started.append(1); print('noise')\ndef count() -> int:\n    return len(started)\n"
    )
    text = 'plugins: [plugins]\ntools: {count: {python: "house:count", tests: [{name: one, expect: {text: "1"}}]}}'
    assert verdicts_of(run, tmp_path, text) == {"one": "passed"}


TWO = """
tools:
  get_a: {content: a, tests: [{expect: {text: a}}]}
  get_b: {content: b, tests: [{expect: {text: c}}]}
  absent: {content: c, requires: {commands: [no-such-command-here]}, tests: [{}]}
"""


def test_tools_are_chosen_by_name_or_glob(run: Run, tmp_path: Path) -> None:
    assert verdicts_of(run, tmp_path, TWO, "get_a") == {"test 1": "passed"}
    (tmp_path / "other.yaml").write_text(TWO)
    assert len(json.loads(run("test", "--json", "other.yaml", "get_*").out)) == 2
    finished = run("test", "get_c")
    assert finished.code == 2
    assert "get_c: the file contains no tool with this name; did you mean `get_a`?" in finished.hints.replace(
        "get_b", "get_a"
    )


def test_difference_is_shown(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(TWO)
    finished = run("test")
    assert finished.code == 1
    lines = [line.rpartition(" (")[0] or line for line in finished.out.splitlines()]
    assert lines == [
        "get_a",
        "  ✓ test 1",
        "get_b",
        "  ✗ test 1: the text is different",
        "      - c",
        "      + b",
        "absent",
        "  – test 1: the command no-such-command-here is not on PATH",
    ]
    assert finished.hints.startswith("1 passed, 1 failed, 1 skipped in ")


def test_junit_report_is_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        TWO.replace("content: b, tests: [{", 'content: "b\\u0001", output: {raw: true}, tests: [{name: "n\\u0001", ')
    )
    unwritten = run("test", "--junit", "nowhere/report.xml")
    assert (unwritten.code, "get_b" in unwritten.out) == (2, True)
    assert "nowhere/report.xml: cannot be written: No such file or directory" in unwritten.hints
    assert run("test", "--junit", "report.xml").code == 1
    suite = ET.parse(tmp_path / "report.xml").getroot()
    assert suite.attrib["tests"] == "3"
    assert [(case.get("classname"), [child.tag for child in case]) for case in suite] == [
        ("get_a", []),
        ("get_b", ["failure"]),
        ("absent", ["skipped"]),
    ]


def test_hint_without_tests(run: Run) -> None:
    finished = run("test")
    assert (finished.code, finished.out) == (0, "")
    assert "under `tests:` of a tool" in finished.hints


async def test_tests_are_invisible_to_clients(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("tools: {say: {content: a, tests: [{expect: {text: a}}]}}")
    async with Gateway(read_settings({"config": str(config), "log_level": "error"})) as gateway:
        [tool] = (await gateway.memory_client().request("tools/list"))["tools"]
        assert "tests" not in json.dumps(tool)


@pytest.mark.parametrize(
    ("tests", "hint"),
    [
        ("[{expect: {}}]", "needs an expectation: one of `text`, `json`, `error`"),
        ("[{expect: {text: a, json: 1}}]", "has `text` and `json`, but only one is allowed"),
        ("[{expect: {error: false}}]", "expected true, or a part of the error text"),
        ("[{expect: {text: 404}}]", "got the number 404; quote it"),
        ('[{expect: {text: {matches: "("}}}]', "is not a regular expression"),
        ("[{expect: {text: {}}}]", "needs a form: one of `is`, `contains`, `matches`"),
        ("[{http: {json: 1}}]", "has tests with `http`, which require an `http` backend"),
        ("[{wiht: {}}]", "did you mean `with`?"),
    ],
)
def test_invalid_test_is_reported(run: Run, tmp_path: Path, tests: str, hint: str) -> None:
    (tmp_path / "config.yaml").write_text(f"tools: {{say: {{content: a, tests: {tests}}}}}")
    finished = run("validate")
    assert finished.code == 2
    assert hint in finished.out
