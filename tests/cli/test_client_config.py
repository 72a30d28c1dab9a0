"""`mcp-gateway client-config`: what is pasted works as it is, wherever the client starts it, and holds no key."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from gateway.authoring.client_config.command import _variable_for
from tests.cli.typed import Run, started

KEY = "hunter2-hunter2"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@contextmanager
def serving(folder: Path, text: str) -> Iterator[str]:
    (folder / "served.yaml").write_text(text)
    with started("serve", "served.yaml", "--http", "127.0.0.1:0", cwd=folder) as server:
        assert server.stderr is not None
        events = (json.loads(line) for line in server.stderr)
        yield next(event["url"] for event in events if event["event"] == "listening")
        server.terminate()
        server.wait(20)


@pytest.mark.parametrize(
    ("client", "key", "place"),
    [
        ("claude", "mcpServers", ".mcp.json"),
        ("cursor", "mcpServers", "~/.cursor/mcp.json"),
        ("vscode", "servers", ".vscode/mcp.json"),
    ],
)
def test_what_a_client_would_start_starts_from_anywhere(
    run: Run, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, client: str, key: str, place: str
) -> None:
    finished = run("client-config", client)
    assert finished.code == 0
    assert place in finished.hints
    entry = json.loads(finished.out)[key]["small"]
    assert Path(entry["command"]).is_absolute()
    assert str(tmp_path / "config.yaml") in entry["args"]
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        cwd=tmp_path_factory.mktemp("elsewhere"),
        input=json.dumps(INITIALIZE) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[0])["result"]["serverInfo"]["name"] == "small"


READS_VARIABLES = """\
server: {name: ops}
connections:
  api:
    base_url: https://api.example.com
    headers: {Authorization: "Bearer ${env:API_TOKEN}", X-Team: "${env:TEAM:-a default}", X-Home: "${env:HOME}"}
tools:
  one: {description: One., http: {connection: api, url: "/${env:API_STAGE}/one"}}
  two:
    description: Two.
    requires: {env: [LICENCE]}
    shell: {command: [env], inherit_env: [PROFILE, NOT_SET_ANYWHERE]}
"""
NAMED_IN_ENV = {
    "claude": {
        "API_TOKEN": "${API_TOKEN}",
        "TEAM": "${TEAM:-}",
        "API_STAGE": "${API_STAGE}",
        "LICENCE": "${LICENCE:-}",
        "PROFILE": "${PROFILE:-}",
    },
    "cursor": {name: f"${{env:{name}}}" for name in ("API_TOKEN", "TEAM", "API_STAGE", "LICENCE", "PROFILE")},
    "vscode": {
        "API_TOKEN": "${input:API_TOKEN}",
        "TEAM": "${env:TEAM}",
        "API_STAGE": "${input:API_STAGE}",
        "LICENCE": "${env:LICENCE}",
        "PROFILE": "${env:PROFILE}",
    },
}


@pytest.mark.parametrize("client", NAMED_IN_ENV)
def test_what_the_file_reads_of_the_environment_is_named_in_the_client_s_own_notation(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    (tmp_path / "config.yaml").write_text(READS_VARIABLES)
    values = {"API_TOKEN": KEY, "TEAM": "my-team-of-mine", "API_STAGE": "live-stage", "PROFILE": "profile-of-mine"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    finished = run("client-config", client)
    assert finished.code == 0
    snippet = json.loads(finished.out)
    assert (snippet.get("mcpServers") or snippet["servers"])["ops"]["env"] == NAMED_IN_ENV[client]
    asked = {question["id"]: question["password"] for question in snippet.get("inputs", [])}
    assert asked == ({"API_TOKEN": True, "API_STAGE": False} if client == "vscode" else {})
    assert "leave out what you do not set: TEAM, LICENCE, PROFILE" in finished.hints
    assert not [value for value in (*values.values(), "a default") if value in finished.out + finished.hints]


def test_a_variable_that_is_not_set_here_may_be_set_where_the_client_runs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text(READS_VARIABLES)
    monkeypatch.delenv("API_TOKEN", raising=False)
    monkeypatch.setenv("API_STAGE", "live")
    finished = run("client-config", "claude")
    assert finished.code == 0
    assert json.loads(finished.out)["mcpServers"]["ops"]["env"]["API_TOKEN"] == "${API_TOKEN}"
    assert "Not set here, so that the file could not be checked: API_TOKEN\n" in finished.hints


def test_what_the_client_fills_in_is_what_the_server_takes(run: Run, tmp_path: Path) -> None:
    """An empty value, as a client leaves it of what is not set, is as good as none."""
    text = 'tools: {t: {description: T., shell: {command: [echo, "${env:WORD:-none}", "${env:NUMBER}"]}}}'
    (tmp_path / "config.yaml").write_text(text)
    entry = json.loads(run("client-config", "claude").out)["mcpServers"]["mcp-gateway"]
    assert entry["env"] == {"WORD": "${WORD:-}", "NUMBER": "${NUMBER}"}
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "arguments": {}, "_meta": meta}}
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        env={"PATH": os.environ["PATH"], "WORD": "", "NUMBER": "7"},
        input=json.dumps(call) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[0])["result"]["content"] == [{"type": "text", "text": "none 7\n"}]


def entry_of(run: Run, client: str, url: str, *words: str) -> dict[str, Any]:
    finished = run("client-config", client, "--url", url, "--name", "ops", *words)
    assert finished.code == 0
    snippet = json.loads(finished.out)
    entry: dict[str, Any] = (snippet.get("mcpServers") or snippet["servers"])["ops"]
    return {**entry, "inputs": snippet.get("inputs")}


def test_a_server_that_wants_a_key_gets_one_in_the_client_s_own_notation(run: Run, tmp_path: Path) -> None:
    with serving(tmp_path, f"auth: {{api_keys: {{a: {{secret: {KEY}}}}}}}\ntools: {{t: {{content: x}}}}") as url:
        claude = entry_of(run, "claude", url)
        cursor = entry_of(run, "cursor", url)
        vscode = entry_of(run, "vscode", url)
        other = entry_of(run, "cursor", url, "--key-from", "MY_KEY")
    assert claude == {
        "type": "http",
        "url": url,
        "headers": {"Authorization": "Bearer ${OPS_API_KEY}"},
        "inputs": None,
    }
    assert cursor == {"url": url, "headers": {"Authorization": "Bearer ${env:OPS_API_KEY}"}, "inputs": None}
    assert vscode["type"] == "http"
    assert vscode["headers"] == {"Authorization": "Bearer ${input:OPS_API_KEY}"}
    [asked] = vscode["inputs"]
    assert (asked["type"], asked["id"], asked["password"]) == ("promptString", "OPS_API_KEY", True)
    assert other["headers"] == {"Authorization": "Bearer ${env:MY_KEY}"}


def test_a_server_that_wants_none_gets_none(run: Run, tmp_path: Path) -> None:
    with serving(tmp_path, "tools: {t: {content: x}}") as url:
        assert entry_of(run, "cursor", url.removesuffix("/mcp")) == {"url": url, "inputs": None}
        assert "headers" not in entry_of(run, "vscode", url)


@pytest.mark.parametrize(("listen", "shown"), [("{path: /ops}", ""), ("{allowed_hosts: [tools.example.com]}", "mcp")])
def test_a_url_at_which_no_such_server_answers_is_told_apart(run: Run, tmp_path: Path, listen: str, shown: str) -> None:
    with serving(tmp_path, f"listen: {listen}\ntools: {{t: {{content: x}}}}") as url:
        finished = run("client-config", "claude", "--url", urljoin(url, f"/{shown}"))
        right = run("client-config", "claude", "--url", url)
    assert finished.code == 0
    assert "What answers there now is no MCP server at /mcp, or not for this machine." in finished.hints
    assert ("What answers there" in right.hints) is ("allowed_hosts" in listen)


def test_a_server_that_is_not_there_is_no_hindrance(run: Run) -> None:
    finished = run("client-config", "claude", "--url", "https://127.0.0.1:9/ops/mcp")
    assert finished.code == 0
    assert json.loads(finished.out)["mcpServers"] == {
        "127.0.0.1": {"type": "http", "url": "https://127.0.0.1:9/ops/mcp"}
    }
    assert "--key-from VARIABLE" in finished.hints


@pytest.mark.parametrize(
    ("name", "variable"),
    [("ops", "OPS_API_KEY"), ("127.0.0.1", "MCP_127_0_0_1_API_KEY"), ("Über-tools 2", "BER_TOOLS_2_API_KEY")],
)
def test_a_variable_is_one_that_a_shell_can_set(name: str, variable: str) -> None:
    assert _variable_for(name) == variable


def test_a_key_in_place_of_the_name_of_its_variable_is_refused_and_not_repeated(run: Run) -> None:
    finished = run("client-config", "claude", "--url", "http://127.0.0.1:9", "--key-from", KEY)
    assert (finished.code, finished.out) == (2, "")
    assert finished.hints.startswith("--key-from: expected the name of a variable")
    assert KEY not in finished.hints


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["notepad"], "invalid choice: 'notepad'"),
        (["claude", "nothing.yaml"], "nothing.yaml"),
        (["claude", "--key-from", "OPS_API_KEY"], "--key-from: goes with --url"),
        (["claude", "config.yaml", "--url", "http://h"], "a client has one of them"),
    ],
)
def test_what_cannot_be_is_said(run: Run, words: list[str], hint: str) -> None:
    finished = run("client-config", *words)
    assert (finished.code, finished.out) == (2, "")
    assert hint in finished.hints


def test_a_view_is_what_the_client_starts_or_asks(run: Run, tmp_path: Path) -> None:
    (tmp_path / "views.yaml").write_text(
        "tools: {hi: {description: Says hi., content: [{text: Hi.}]}}\nviews: {support: {include: {tools: [hi]}}}\n"
    )
    finished = run("client-config", "claude", "views.yaml", "--view", "support")
    [(name, entry)] = json.loads(finished.out)["mcpServers"].items()
    assert name == "mcp-gateway-support"
    assert entry["args"][-3:] == ["--stdio", "--view", "support"]
    finished = run("client-config", "claude", "--url", "http://127.0.0.1:9/ops/mcp", "--view", "support")
    [(name, entry)] = json.loads(finished.out)["mcpServers"].items()
    assert (name, entry["url"]) == ("127.0.0.1-support", "http://127.0.0.1:9/ops/mcp/support")
    finished = run("client-config", "claude", "views.yaml", "--view", "suport")
    assert finished.code == 2
    assert "there is no view `suport`; did you mean `support`?" in finished.hints
    listed = run("list", "views.yaml", "tools", "--view", "support")
    assert listed.out.startswith("hi")
    assert run("call", "views.yaml", "hi", "--view", "support").out == "Hi.\n"


def test_stdio_serves_a_view(run: Run, tmp_path: Path) -> None:
    (tmp_path / "views.yaml").write_text(
        "tools: {hi: {description: Says hi., content: [{text: Hi.}]}, ho: {description: Ho., content: [{text: Ho.}]}}\n"
        "views: {support: {include: {tools: [hi]}, instructions: For support.}}\n"
    )
    messages = [INITIALIZE, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}]
    [entry] = json.loads(run("client-config", "claude", "views.yaml", "--view", "support").out)["mcpServers"].values()
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        input="".join(json.dumps(each) + "\n" for each in messages),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    out = done.stdout
    initialized, listed = map(json.loads, out.splitlines())
    assert initialized["result"]["instructions"] == "For support."
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["hi"]
    missing = subprocess.run(  # not in this process, which it would end
        [sys.executable, "-m", "gateway", "serve", "views.yaml", "--stdio", "--view", "nobody"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert missing.returncode == 2
    assert "there is no view `nobody`" in missing.stderr
    assert run("serve", "views.yaml", "--view", "support").code == 2
