"""`--explain`: the explanation matches the call, nothing runs, and secrets are masked."""

import json
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.app.gateway import Gateway
from gateway.cli.dry_run import dry_run
from gateway.cli.explain import explain
from gateway.config.settings import read_settings
from tests.cli.typed import Run

SECRET: Final = 'hunter2/+"hunter2'
RECORDER: Final = f"""#!{sys.executable}
import json, os, sys
names = sorted(set(os.environ) - {{"LC_CTYPE"}} - {{name for name in os.environ if name.startswith("MCP_GATEWAY_")}})
print(json.dumps({{"argv": sys.argv, "directory": os.getcwd(), "environment": names, "stdin": sys.stdin.read()}}))
"""
SHELL: Final = """
tools:
  record:
    description: Record the arguments.
    input:
      words: {type: array, items: {type: string}}
      depth: {type: integer, default: 3}
      note: string?
    shell:
      command: [./recorder, "--depth={{ depth }}", [--note, "{{ note }}"], --, "{{ words }}"]
      cwd: .
      env: {TOKEN: "${env:TOKEN}", DEPTH: "{{ depth }}"}
      stdin: "{{ words | join(' ') }} and\\nmore"
"""


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOKEN", SECRET)
    program = tmp_path / "recorder"
    program.write_text(RECORDER)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_explained_command_is_the_one_that_runs(run: Run, tmp_path: Path, recorder: Path) -> None:
    (tmp_path / "config.yaml").write_text(SHELL)
    words = ["call", "record", 'words:=["a b", "$(c)", "-d"]', "depth=7"]
    ran = json.loads(run(*words).out)
    shown = json.loads(run(*words, "--explain", "--raw").out)
    assert shown["argv"] == ran["argv"] == ["./recorder", "--depth=7", "--", "a b", "$(c)", "-d"]
    assert Path(shown["directory"]) == Path(ran["directory"]) == tmp_path
    # Python sets LC_CTYPE where there is no locale (PEP 538), in the gateway as in the recorder.
    assert [name for name in shown["environment"] if name != "LC_CTYPE"] == ran["environment"]
    assert {"TOKEN", "DEPTH", "PATH"} <= set(shown["environment"])
    assert shown["stdin"] == ran["stdin"]
    assert shown["arguments"] == {"words": ["a b", "$(c)", "-d"], "depth": 7}


def test_explanation_shows_a_command_without_secrets(run: Run, tmp_path: Path, recorder: Path) -> None:
    (tmp_path / "config.yaml").write_text(SHELL)
    finished = run("call", "record", 'words:=["a b"]', "note=x", "--explain")
    assert finished.code == 0
    lines = [line.strip() for line in finished.out.splitlines()]
    assert lines[0] == "record runs a command"
    assert "command      ./recorder --depth=3 --note x -- 'a b'" in lines
    assert SECRET not in finished.out


def test_explained_script_is_not_run_or_kept(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    (tmp_path / "config.yaml").write_text(
        f'tools: {{go: {{input: {{a: integer}}, shell: {{script: "touch {tmp_path}/ran\\n", timeout: 5s}}}}}}'
    )
    shown = json.loads(run("call", "go", "a=1", "--explain", "--raw").out)
    assert shown["script"] == f"touch {tmp_path}/ran\n"
    assert shown["argv"] == ["sh", "-e", "script"]
    assert shown["timeout_seconds"] == 5
    assert {"INPUT_A", "INPUTS_JSON", "INPUTS_FILE"} <= set(shown["environment"])
    assert not (tmp_path / "ran").exists()
    assert not list(scratch.iterdir())
    assert run("call", "go", "a=1").code == 0
    assert (tmp_path / "ran").exists()


HTTP: Final = """
connections:
  api:
    base_url: "BASE"
    headers: {Authorization: "Bearer ${env:TOKEN}", X-Plain: yes, X-Auth-Token: written-into-the-file}
    query: {key: "${env:TOKEN}", api_key: written-too}
    allow_private: true
tools:
  send:
    description: Send it.
    input: {owner: string, id: integer}
    http:
      connection: api
      url: "/repos/{owner}/{id}"
      json: {title: "{{ owner }}", pass: "${env:TOKEN}"}
"""


@pytest.fixture
async def seen() -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    requests: list[dict[str, Any]] = []

    async def handle(request: web.Request) -> web.Response:
        body = await request.text()
        requests.append({"method": request.method, "path": request.raw_path, "headers": request.headers, "body": body})
        return web.json_response({})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    async with TestServer(application) as server:
        yield str(server.make_url("")).rstrip("/"), requests


async def test_explained_request_is_the_sent_request(
    seen: tuple[str, list[dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, requests = seen
    monkeypatch.setenv("TOKEN", SECRET)
    config = tmp_path / "config.yaml"
    config.write_text(HTTP.replace("BASE", base))
    settings = read_settings({"config": str(config), "log_level": "error"})
    params = {"name": "send", "arguments": {"owner": "a/b c", "id": "7"}}
    shown = (await explain(settings, "tools/call", params)).as_json()
    assert not requests
    assert SECRET not in json.dumps(shown)
    assert shown["url"] == f"{base}/repos/a%2Fb%20c/7?key=***&api_key=***"
    assert shown["method"] == "POST"
    assert shown["headers"] == {
        "Authorization": "Bearer ***",
        "X-Plain": "yes",
        "X-Auth-Token": "***",
        "Content-Type": "application/json",
    }
    assert shown["body"] == '{"title":"a/b c","pass":"***"}'
    assert shown["private_addresses"] == "allowed"
    async with Gateway(settings) as gateway:
        await gateway.memory_client().request("tools/call", params)
    [sent] = requests
    assert base + masked(sent["path"]) == shown["url"]
    assert (sent["method"], masked(sent["body"])) == (shown["method"], shown["body"])
    assert shown["headers"].items() <= {name: masked(value) for name, value in sent["headers"].items()}.items()


def masked(text: str) -> str:
    """Replace the secrets of this module in every encoding."""
    forms = (quote(SECRET, safe=""), json.dumps(SECRET)[1:-1], SECRET, "written-too", "written-into-the-file")
    for form in forms:
        text = text.replace(form, "***")
    return text


PLUGIN: Final = """
from pathlib import Path
def startup(): Path("started").touch()
def score(text: str, weights: list[float], deep: bool = True) -> int:
    '''Score.'''
    Path("called").touch()
    return 1
"""


def test_function_is_shown_with_its_arguments(run: Run, tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "scoring.py").write_text(PLUGIN)
    (tmp_path / "config.yaml").write_text('plugins: [plugins]\ntools: {score: {python: "scoring:score"}}')
    shown = json.loads(run("call", "score", "text=x", "weights=[1, 2.5]", "--explain", "--raw").out)
    assert shown["function"] == "scoring:score"
    assert shown["file"] == str(tmp_path / "plugins" / "scoring.py")
    assert shown["arguments"] == {"text": "'x'", "weights": "[1.0, 2.5]", "deep": "True"}
    assert shown["runs"] == "in a thread"
    assert not (tmp_path / "started").exists()
    assert not (tmp_path / "called").exists()


def test_confirmation_is_shown_without_asking(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        'tools: {go: {input: {to: string}, confirm: "Go to {{ to }}?", task: required, requires: {client: [sampling]}, '
        'content: "x"}}'
    )
    assert run("call", "go", "to=Rome").code == 1
    assert json.loads(run("call", "go", "to=Rome", "--explain", "--raw").out)["confirm"] == "Go to Rome?"


def test_file_of_a_resource_is_shown(run: Run, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "my file.md").write_text("x")
    (tmp_path / "config.yaml").write_text('resources: {docs: {files: "docs/*.md"}, one: {uri: "one://x", text: One.}}')
    assert str(tmp_path / "docs" / "my file.md") in run("read", "docs:///my%20file.md", "--explain").out
    assert run("read", "docs:///../config.yaml", "--explain").code == 1
    assert run("read", "one://x", "--explain").out.startswith("one returns text")


PROMPTS: Final = """
plugins: [plugins]
resources:
  state: {uri: "state://{of}", shell: {script: "touch ran"}}
prompts:
  triage:
    arguments: {of: {required: true}, tone: {default: kind}}
    messages:
      - user: "Look at {{ of }}, and be {{ tone }}."
      - user: {resource: "state://{of}"}
      - assistant: {image: picture.png}
  scored: {python: "scoring:score", arguments: {text: {required: true}}}
"""


def test_explained_prompt_reads_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "scoring.py").write_text(PLUGIN.replace(", weights: list[float]", ""))
    (tmp_path / "picture.png").write_bytes(b"x")
    (tmp_path / "config.yaml").write_text(PROMPTS)
    shown = json.loads(run("prompt", "triage", "of=a b", "--explain", "--raw").out)
    assert shown["arguments"] == {"of": "a b", "tone": "kind"}
    assert (shown["messages"], shown["reads"]) == (3, ["state://a%20b", str(tmp_path / "picture.png")])
    assert not (tmp_path / "ran").exists()
    assert json.loads(run("prompt", "scored", "text=x", "--explain", "--raw").out)["function"] == "scoring:score"
    assert not (tmp_path / "called").exists()
    assert run("prompt", "triage", "of=a b").code == 0
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (["prompt", "ask", "--explain"], 1, "missing required arguments: what"),
        (["call", "add", "a=x", "--explain"], 1, "/a must be an integer"),
        (["call", "nothing", "--explain"], 1, "nothing"),
        (["read", "item://1/2", "--explain"], 1, "item://1/2"),
        (["call", "--url", "http://127.0.0.1:1", "add", "--explain"], 2, "cannot be combined with --url"),
    ],
)
def test_explanation_reports_the_error_of_the_call(run: Run, words: list[str], code: int, hint: str) -> None:
    finished = run(*words)
    assert (finished.code, finished.out) == (code, "")
    assert hint in finished.hints


def test_every_backend_has_an_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Path(__file__).parents[2] / "config" / "everything.yaml"
    with dry_run(read_settings({"config": str(config), "log_level": "error"})) as rehearsal:
        catalog = rehearsal.catalog
        definitions = (*catalog.tools.values(), *catalog.resources.values(), *catalog.resource_templates)
        assert len(definitions) > 20
        primitives = (*definitions, *catalog.prompts.values())
        explains = [getattr(getattr(each, "executor", None), "explain", None) for each in primitives]
        assert all(map(callable, explains))
        assert len(catalog.prompts) > 2
