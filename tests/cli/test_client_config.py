"""`mcp-gateway client-config`: configurations work without changes, and contain no keys."""

import base64
import json
import os
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urljoin, urlsplit

import pytest
import yaml

from gateway.cli.commands.client_config import _variable_for
from gateway.client_configs.clients import CLIENTS
from tests.cli.typed import Run, started
from tests.fork_server import FORKED
from tests.messages import initialize_request, legacy_request

KEY = "hunter2-hunter2"


@contextmanager
def serving(folder: Path, text: str) -> Iterator[str]:
    (folder / "served.yaml").write_text(text)
    with started("serve", "served.yaml", "--http", "127.0.0.1:0", cwd=folder) as server:
        assert server.stderr is not None
        events = (json.loads(line) for line in server.stderr)
        yield next(event["url"] for event in events if event["event"] == "listening")
        server.terminate()
        server.wait(20)


PARSE: dict[str, Callable[[str], Any]] = {"codex": tomllib.loads, "goose": yaml.safe_load}
"""Parsers of client files that are not JSON."""
SECTIONS = {"vscode": "servers", "codex": "mcp_servers", "goose": "extensions", "zed": "context_servers"}


def parsed(client: str, text: str) -> Any:
    """Parse the configuration of a client."""
    return PARSE.get(client, json.loads)(text)


PLACES = {
    "claude": ".mcp.json",
    "claude-desktop": "claude_desktop_config.json",
    "cline": "~/.cline/data/settings/cline_mcp_settings.json",
    "codex": "~/.codex/config.toml",
    "cursor": "~/.cursor/mcp.json",
    "gemini": "~/.gemini/settings.json",
    "goose": "~/.config/goose/config.yaml",
    "jetbrains": "~/.junie/mcp/mcp.json",
    "vscode": ".vscode/mcp.json",
    "windsurf": "~/.codeium/windsurf/mcp_config.json",
    "zed": "~/.config/zed/settings.json",
}


def test_client_configuration_starts_the_server(
    run: Run, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    commands = set()
    for client, place in PLACES.items():
        finished = run("client-config", client)
        assert finished.code == 0
        assert place in finished.hints
        entry = parsed(client, finished.out)[SECTIONS.get(client, "mcpServers")]["small"]
        commands.add((entry.get("command") or entry["cmd"], *entry["args"]))
    [command] = commands  # equal for all clients, so that one server is sufficient
    assert Path(command[0]).is_absolute()
    assert str(tmp_path / "config.yaml") in command
    done = subprocess.run(
        command,
        cwd=tmp_path_factory.mktemp("elsewhere"),
        input=json.dumps(initialize_request()) + "\n",
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
    "claude-desktop": {name: f"<{name}>" for name in ("API_TOKEN", "TEAM", "API_STAGE", "LICENCE", "PROFILE")},
    "cline": {name: f"${{env:{name}}}" for name in ("API_TOKEN", "TEAM", "API_STAGE", "LICENCE", "PROFILE")},
    "cursor": {name: f"${{env:{name}}}" for name in ("API_TOKEN", "TEAM", "API_STAGE", "LICENCE", "PROFILE")},
    "jetbrains": {name: f"<{name}>" for name in ("API_TOKEN", "TEAM", "API_STAGE", "LICENCE", "PROFILE")},
    "vscode": {
        "API_TOKEN": "${input:API_TOKEN}",
        "TEAM": "${env:TEAM}",
        "API_STAGE": "${input:API_STAGE}",
        "LICENCE": "${env:LICENCE}",
        "PROFILE": "${env:PROFILE}",
    },
    "gemini": {name: f"${{{name}}}" for name in ("API_TOKEN", "TEAM", "API_STAGE", "LICENCE", "PROFILE")},
}


@pytest.mark.parametrize("client", NAMED_IN_ENV)
def test_variables_use_the_notation_of_the_client(
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
    assert "Remove those that you do not set: TEAM, LICENCE, PROFILE" in finished.hints
    assert not [value for value in (*values.values(), "a default") if value in finished.out + finished.hints]


def test_unset_variable_is_reported(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.yaml").write_text(READS_VARIABLES)
    monkeypatch.delenv("API_TOKEN", raising=False)
    monkeypatch.setenv("API_STAGE", "live")
    finished = run("client-config", "claude")
    assert finished.code == 0
    assert json.loads(finished.out)["mcpServers"]["ops"]["env"]["API_TOKEN"] == "${API_TOKEN}"
    assert "The file was not checked, because these variables are not set: API_TOKEN\n" in finished.hints


def forked(entry: dict[str, Any]) -> list[str]:
    """Return the command of a client as a fork, which is faster."""
    words = entry["args"]
    assert "serve" in words
    return [FORKED, *words[words.index("serve") :]]


def test_filled_in_variables_reach_the_server(run: Run, tmp_path: Path) -> None:
    """Clients set optional variables to empty values. These count as unset."""
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
        forked(entry),
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


def test_required_key_uses_the_notation_of_the_client(run: Run, tmp_path: Path) -> None:
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


def test_claude_code_is_another_name_of_claude(run: Run) -> None:
    assert run("client-config", "claude-code").out == run("client-config", "claude").out


def test_open_server_needs_no_key(run: Run, tmp_path: Path) -> None:
    with serving(tmp_path, "tools: {t: {content: x}}") as url:
        assert entry_of(run, "cursor", url.removesuffix("/mcp")) == {"url": url, "inputs": None}
        assert "headers" not in entry_of(run, "vscode", url)


@pytest.mark.parametrize(("listen", "shown"), [("{path: /ops}", ""), ("{allowed_hosts: [tools.example.com]}", "mcp")])
def test_url_of_another_server_is_reported(run: Run, tmp_path: Path, listen: str, shown: str) -> None:
    with serving(tmp_path, f"listen: {listen}\ntools: {{t: {{content: x}}}}") as url:
        finished = run("client-config", "claude", "--url", urljoin(url, f"/{shown}"))
        right = run("client-config", "claude", "--url", url)
    assert finished.code == 0
    assert "The response of /mcp is not from an MCP server, or the server rejects this machine." in finished.hints
    assert ("is not from an MCP server" in right.hints) is ("allowed_hosts" in listen)


def test_unreachable_server_is_reported_and_configured(run: Run) -> None:
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
def test_variable_name_is_valid_in_a_shell(name: str, variable: str) -> None:
    assert _variable_for(name) == variable


def test_key_instead_of_variable_name_is_rejected_and_not_printed(run: Run) -> None:
    finished = run("client-config", "claude", "--url", "http://127.0.0.1:9", "--key-from", KEY)
    assert (finished.code, finished.out) == (2, "")
    assert finished.hints.startswith("--key-from: expected the name of an environment variable")
    assert KEY not in finished.hints


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["notepad"], "invalid choice: 'notepad'"),
        (["claude", "nothing.yaml"], "nothing.yaml"),
        (["claude", "--key-from", "OPS_API_KEY"], "--key-from: requires --url"),
        (["claude", "config.yaml", "--url", "http://h"], "--url: cannot be combined with config.yaml"),
    ],
)
def test_invalid_combinations_are_rejected(run: Run, words: list[str], hint: str) -> None:
    finished = run("client-config", *words)
    assert (finished.code, finished.out) == (2, "")
    assert hint in finished.hints


@pytest.mark.parametrize("url", ["http://[", "http://h:x", "http://h:99999", "http://"])
def test_invalid_url_option_is_rejected(run: Run, url: str) -> None:
    finished = run("client-config", "claude", "--url", url)
    assert (finished.code, finished.out) == (1, "")
    assert f"{url}: expected a URL such as http://127.0.0.1:8000/mcp" in finished.hints


def test_view_is_part_of_the_command_or_url(run: Run, tmp_path: Path) -> None:
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
    assert "unknown view `suport`; did you mean `support`?" in finished.hints
    listed = run("list", "views.yaml", "tools", "--view", "support")
    assert listed.out.startswith("hi")
    assert run("call", "views.yaml", "hi", "--view", "support").out == "Hi.\n"


def test_stdio_serves_a_view(run: Run, tmp_path: Path) -> None:
    (tmp_path / "views.yaml").write_text(
        "tools: {hi: {description: Says hi., content: [{text: Hi.}]}, ho: {description: Ho., content: [{text: Ho.}]}}\n"
        "views: {support: {include: {tools: [hi]}, instructions: For support.}}\n"
    )
    messages = [initialize_request(), legacy_request("tools/list", request_id=2)]
    [entry] = json.loads(run("client-config", "claude", "views.yaml", "--view", "support").out)["mcpServers"].values()
    done = subprocess.run(
        forked(entry),
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
    missing = subprocess.run(  # not in this process, because it would exit
        [FORKED, "serve", "views.yaml", "--stdio", "--view", "nobody"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert missing.returncode == 2
    assert "unknown view `nobody`" in missing.stderr
    assert run("serve", "views.yaml", "--view", "support").code == 2


VARIABLES = ["API_TOKEN", "TEAM", "API_STAGE", "LICENCE", "PROFILE"]


@pytest.mark.parametrize(("client", "key"), [("codex", "env_vars"), ("goose", "env_keys"), ("zed", None)])
def test_client_that_inherits_variables_by_name_gets_their_names(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str, key: str | None
) -> None:
    (tmp_path / "config.yaml").write_text(READS_VARIABLES)
    for name in ("API_TOKEN", "API_STAGE", "PROFILE"):
        monkeypatch.setenv(name, KEY)
    finished = run("client-config", client)
    entry = parsed(client, finished.out)[SECTIONS[client]]["ops"]
    assert entry.get(key) == (None if key is None else VARIABLES)
    assert "env" not in entry
    assert KEY not in finished.out + finished.hints


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("codex", {"url": "URL", "bearer_token_env_var": "MY_KEY"}),
        (
            "cline",
            {"type": "streamableHttp", "url": "URL", "headers": {"Authorization": "Bearer ${env:MY_KEY}"}},
        ),
        ("jetbrains", {"url": "URL", "headers": {"Authorization": "Bearer <MY_KEY>"}}),
        ("gemini", {"httpUrl": "URL", "headers": {"Authorization": "Bearer ${MY_KEY}"}}),
        ("windsurf", {"serverUrl": "URL", "headers": {"Authorization": "Bearer ${env:MY_KEY}"}}),
        ("zed", {"url": "URL", "headers": {"Authorization": "Bearer <MY_KEY>"}}),
        (
            "goose",
            {
                "name": "ops",
                "type": "streamable_http",
                "enabled": True,
                "timeout": 300,
                "uri": "URL",
                "headers": {"Authorization": "Bearer ${MY_KEY}"},
                "env_keys": ["MY_KEY"],
            },
        ),
    ],
)
def test_url_and_key_are_written_at_the_clients_keys(run: Run, client: str, expected: dict[str, Any]) -> None:
    url = "https://127.0.0.1:9/ops/mcp"
    finished = run("client-config", client, "--url", url, "--name", "ops", "--key-from", "MY_KEY")
    entry = parsed(client, finished.out)[SECTIONS.get(client, "mcpServers")]["ops"]
    assert entry == {key: url if value == "URL" else value for key, value in expected.items()}


def test_install_link_contains_the_same_configuration(run: Run) -> None:
    words = ("--url", "https://127.0.0.1:9/ops/mcp", "--name", "ops & co", "--key-from", "MY_KEY")
    link = urlsplit(run("client-config", "cursor", *words, "--link").out.strip())
    assert (link.scheme, link.netloc, link.path) == ("cursor", "anysphere.cursor-deeplink", "/mcp/install")
    query = parse_qs(link.query, strict_parsing=True)
    snippet = json.loads(run("client-config", "cursor", *words).out)
    assert {query["name"][0]: json.loads(base64.b64decode(query["config"][0]))} == snippet["mcpServers"]

    link = urlsplit(run("client-config", "vscode", *words, "--link").out.strip())
    assert (link.scheme, link.path) == ("vscode", "mcp/install")
    snippet = json.loads(run("client-config", "vscode", *words).out)
    assert (
        json.loads(unquote(link.query))
        == {"name": "ops & co", "inputs": snippet["inputs"]} | snippet["servers"]["ops & co"]
    )

    refused = run("client-config", "codex", *words, "--link")
    assert (refused.code, refused.out) == (2, "")
    assert "Available for: cursor, vscode" in refused.hints


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    return path


IN_SETTINGS = [name for name, client in CLIENTS.items() if client.url_steps]


@pytest.mark.parametrize("client", IN_SETTINGS)
def test_steps_are_printed_for_clients_that_add_urls_in_their_settings(run: Run, client: str) -> None:
    url = "https://127.0.0.1:9/ops/mcp"
    words = ("client-config", client, "--url", url, "--name", "ops")
    finished = run(*words)
    assert finished.code == 0
    lines = finished.out.splitlines()
    assert [line.partition(".")[0] for line in lines] == [str(number) for number in range(1, len(lines) + 1)]
    assert any("ops" in line and line.endswith(url) for line in lines)
    assert "{" not in finished.out
    refused = run(*words, "--write", "--yes")
    assert (refused.code, refused.out) == (2, "")
    assert "adds servers with a URL in its settings. Omit `--write`" in refused.hints


def test_steps_name_the_variable_of_the_key(run: Run) -> None:
    words = ("--url", "https://127.0.0.1:9/mcp", "--key-from", "MY_KEY")
    assert "Bearer, with the value of MY_KEY" in run("client-config", "open-webui", *words).out
    assert "cannot send API keys" in run("client-config", "chatgpt", *words).out


@pytest.mark.parametrize("client", ["chatgpt", "open-webui"])
def test_clients_that_start_no_servers_need_a_url(run: Run, client: str) -> None:
    refused = run("client-config", client)
    assert (refused.code, refused.out) == (2, "")
    assert "does not start servers. Use --url" in refused.hints


def test_file_of_claude_desktop_is_changed(run: Run, home: Path) -> None:
    assert run("client-config", "claude-desktop", "--write", "--yes").code == 0
    [file] = home.rglob("claude_desktop_config.json")
    assert list(json.loads(file.read_text())["mcpServers"]) == ["small"]


@pytest.mark.parametrize("client", [name for name in CLIENTS if name not in IN_SETTINGS])
def test_client_file_is_created_and_changed(run: Run, home: Path, tmp_path: Path, client: str) -> None:
    place = CLIENTS[client].file
    file = home / place.removeprefix("~/") if place.startswith("~") else tmp_path / place
    words = (client, "--url", "https://127.0.0.1:9/one", "--write", "--yes")
    made = run("client-config", *words, "--name", "one")
    assert made.code == 0, made.hints
    shown = run("client-config", client, "--url", "https://127.0.0.1:9/one", "--name", "one").out
    assert parsed(client, file.read_text()) == parsed(client, shown)
    assert file.stat().st_mode & 0o077 == 0
    assert run("client-config", *words, "--name", "two").code == 0
    again = run("client-config", *words, "--name", "one")
    assert "already contains this server" in again.hints
    section = SECTIONS.get(client, "mcpServers")
    assert list(parsed(client, file.read_text())[section]) == ["one", "two"]
    assert list(parsed(client, file.with_name(file.name + ".bak").read_text())[section]) == ["one"]


def test_inputs_are_added_to_those_of_the_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / ".vscode/mcp.json"
    file.parent.mkdir()
    file.write_text('{"inputs": [{"type": "promptString", "id": "THEIRS"}]}')
    words = ("vscode", "--url", "https://127.0.0.1:9/mcp", "--key-from", "OURS", "--write", "--yes")
    for name in ("one", "two"):
        assert run("client-config", *words, "--name", name).code == 0
    written = json.loads(file.read_text())
    assert [each["id"] for each in written["inputs"]] == ["THEIRS", "OURS"]
    assert list(written["servers"]) == ["one", "two"]
    file.write_text('{"inputs": {}}')
    assert "`inputs` is not a list" in run("client-config", *words).hints
    assert file.read_text() == '{"inputs": {}}'


def test_file_is_not_changed_without_confirmation(run: Run, home: Path) -> None:
    refused = run("client-config", "cursor", "--write")
    assert refused.code == 2
    assert '+    "small": {' in refused.out
    assert "`--yes` to write without asking" in refused.hints
    assert list(home.iterdir()) == []


def test_symbolic_link_and_mode_are_kept(run: Run, home: Path) -> None:
    dotfiles = home / "dotfiles.json"
    dotfiles.write_text("{}")
    dotfiles.chmod(0o640)
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.symlink_to(dotfiles)
    assert run("client-config", "cursor", "--write", "--yes").code == 0
    assert file.is_symlink()
    assert list(json.loads(dotfiles.read_text())["mcpServers"]) == ["small"]
    assert dotfiles.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("client", ["cursor", "codex", "goose"])
def test_crlf_line_ends_are_kept(run: Run, home: Path, client: str) -> None:
    file = home / CLIENTS[client].file.removeprefix("~/")
    words = ("client-config", client, "--url", "https://127.0.0.1:9/one", "--write", "--yes", "--name")
    assert run(*words, "one").code == 0
    former = file.read_bytes().replace(b"\n", b"\r\n")
    file.write_bytes(former)
    assert run(*words, "two").code == 0
    changed = file.read_bytes()
    assert changed.count(b"\n") == changed.count(b"\r\n") > former.count(b"\n")
    assert file.with_name(file.name + ".bak").read_bytes() == former


@pytest.mark.parametrize("broken", ["{", "[]", '{"mcpServers": []}', '{"a": 1, "a": 2}', "\xff", "{'a': 1}", "{} {}"])
def test_unreadable_client_file_is_not_changed(run: Run, home: Path, broken: str) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_bytes(broken.encode("latin-1"))
    refused = run("client-config", "cursor", "--write", "--yes")
    assert refused.code == 2
    assert "~/.cursor/mcp.json: was not changed: " in refused.hints
    assert file.read_bytes() == broken.encode("latin-1")
    assert [each.name for each in file.parent.iterdir()] == ["mcp.json"]
