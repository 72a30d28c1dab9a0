"""`serve` without a configuration file: `--mcp-json`, `--openapi`, `--sqlite` and `-- COMMAND`."""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.typed import Run, started
from tests.fork_launcher import fork_launcher

API = """\
openapi: 3.1.0
info: {title: Shop, version: "1"}
servers: [{url: "https://shop.example"}]
paths:
  /items:
    get: {operationId: list_items, summary: List items., responses: {"200": {description: ok}}}
"""
SECRET = "s3cr3t-value-9"


@pytest.fixture(autouse=True)
def directory(run: Run, tmp_path: Path) -> Path:
    del run  # which has changed the working directory
    small = "tools: {hi: {description: Says hi., content: Hi.}}\n"
    (tmp_path / "small.yaml").write_text(small)
    server = {"command": program(), "args": [*SMALL], "env": {"API_KEY": SECRET}}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"one": server}}))
    (tmp_path / "api.yaml").write_text(API)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.executescript("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
    return tmp_path


SMALL = ("serve", "small.yaml", "--stdio", "--no-watch")


def program() -> str:
    return str(fork_launcher().program)


def sources() -> dict[str, tuple[tuple[str, ...], str]]:
    """Return the words and the expected tool of each source."""
    return {
        "mcp-json": (("--mcp-json", ".mcp.json"), "one_hi"),
        "openapi": (("--openapi", "api.yaml"), "shop_list_items"),
        "sqlite": (("--sqlite", "shop.db"), "find_orders"),
        "command": (("--", program(), *SMALL), "hi"),
    }


def names(run: Run, config: str) -> list[str]:
    tools = json.loads(run("list", config, "tools", "--json").out)
    return [tool["name"] for tool in (tools["tools"] if isinstance(tools, dict) else tools)]


@pytest.mark.parametrize("source", ["mcp-json", "openapi", "sqlite", "command"])
def test_printed_configuration_is_valid_and_has_the_served_tools(run: Run, directory: Path, source: str) -> None:
    words, tool = sources()[source]
    printed = run("serve", "--print-config", *words)
    assert printed.code == 0, printed.hints
    assert SECRET not in printed.out
    (directory / "elsewhere").mkdir()
    (directory / "elsewhere/config.yaml").write_text(printed.out)
    assert run("validate", "elsewhere/config.yaml").code == 0
    assert names(run, "elsewhere/config.yaml") == [tool]
    # The same source, served over stdio, as an upstream of another file.
    args = ["serve", "--stdio", "--no-watch", *words]
    upstream = {"outer": {"command": program(), "args": args, "cwd": str(directory), "prefix": ""}}
    (directory / "outer.yaml").write_text(json.dumps({"upstreams": upstream}))
    assert names(run, "outer.yaml") == [tool]


@pytest.mark.parametrize("source", ["mcp-json", "openapi", "sqlite", "command"])
def test_source_is_served_over_http(run: Run, directory: Path, source: str) -> None:
    words, tool = sources()[source]
    with started("serve", "--http", "127.0.0.1:0", "--no-watch", *words, cwd=directory) as server:
        assert server.stderr is not None
        url = next(event["url"] for line in server.stderr if (event := json.loads(line))["event"] == "listening")
        tools = json.loads(run("list", "tools", "--json", "--url", url).out)
        server.terminate()
        server.wait(60)
    assert [each["name"] for each in (tools["tools"] if isinstance(tools, dict) else tools)] == [tool]


def test_command_receives_only_a_few_variables(run: Run, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_OWN_VARIABLE", "x")
    (directory / "env.yaml").write_text(
        "tools: {names: {description: Names., shell: {command: [env], inherit_env: [MY_OWN_VARIABLE]}}}"
    )
    with started(
        "serve", "--http", "127.0.0.1:0", "--", program(), "serve", "env.yaml", "--stdio", cwd=directory
    ) as server:
        assert server.stderr is not None
        url = next(event["url"] for line in server.stderr if (event := json.loads(line))["event"] == "listening")
        shown = run("call", "names", "--url", url).out
        server.terminate()
        server.wait(60)
    assert "PATH=" in shown
    assert "MY_OWN_VARIABLE" not in shown


def test_tool_of_a_command_can_be_called(run: Run, directory: Path) -> None:
    args = ["serve", "--stdio", "--no-watch", "--", program(), *SMALL]
    upstream = {"outer": {"command": program(), "args": args, "cwd": str(directory), "prefix": ""}}
    (directory / "outer.yaml").write_text(json.dumps({"upstreams": upstream}))
    assert run("call", "outer.yaml", "hi").out == "Hi.\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("small.yaml", "--sqlite", "shop.db"), "--sqlite: cannot be combined with small.yaml"),
        (("small.yaml", "--", "uvx", "x"), "--: cannot be combined with small.yaml"),
        (("--sqlite", "shop.db", "--mcp-json", ".mcp.json"), "--mcp-json: cannot be combined with --sqlite"),
        (("--sqlite", "missing.db"), "missing.db: no such file"),
        (("--print-config",), "--print-config: needs one of"),
        (("--", "uvx", "\udcff"), "\N{REPLACEMENT CHARACTER}: is not valid UTF-8"),
        (("--print-config", "--openapi", "https://u:s3cr3t-value-9@x.example/a"), "--openapi: contains a secret"),
        (("--print-config", "--openapi", "https://x.example/a?api_key=s3cr3t-value-9"), "--openapi: contains a secret"),
    ],
)
def test_wrong_combination_is_rejected(run: Run, words: tuple[str, ...], message: str) -> None:
    result = run("serve", *words)
    assert result.code == 2
    assert result.hints.startswith(message)
    assert SECRET not in result.hints


def test_missing_packages_are_named_with_the_flag(run: Run, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiosqlite", None)  # not installed
    result = run("serve", "--sqlite", str(directory / "shop.db"))
    assert result.code == 2
    assert result.hints == (
        "--sqlite: needs packages that are not installed: pip install 'sqlalchemy[asyncio]' aiosqlite\n"
    )


def test_secrets_of_a_command_are_not_printed(run: Run) -> None:
    tokens = [f"--api-key={SECRET}", "--token", SECRET, f"AUTH_TOKEN={SECRET}", "ghp_" + "a" * 36, "${HOME}"]
    finished = run("serve", "--print-config", "--", "uvx", "mcp-server-time", *tokens)
    printed = finished.out
    assert (finished.code, finished.hints) == (0, "")
    assert SECRET not in printed
    assert "ghp_" not in printed
    assert '"--api-key=${env:API_KEY}", "--token", "${env:TOKEN}", "AUTH_TOKEN=${env:AUTH_TOKEN}"' in printed
    assert '"$${HOME}"' in printed
    assert "  name: mcp_server_time\n" in printed


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        (f"Authorization: Bearer {SECRET}", "Authorization: ${env:AUTHORIZATION}"),
        (f"--header=X-API-Key:{SECRET}", "--header=X-API-Key:${env:X_API_KEY}"),
        (f"Authorization: Basic {SECRET}==", "Authorization: ${env:AUTHORIZATION}"),
        ("Authorization:${AUTH}", "Authorization:$${AUTH}"),  # mcp-remote reads the variable
        ("Accept: text/plain", "Accept: text/plain"),
        ("https://x.example/sse", "https://x.example/sse"),
    ],
)
def test_secrets_in_header_fields_of_a_command_are_not_printed(run: Run, word: str, shown: str) -> None:
    printed = run("serve", "--print-config", "--", "npx", "mcp-remote", "--header", word).out
    assert f'"--header", "{shown}"]' in printed
