"""Configuration files of MCP clients: JSON with comments, keys of other clients, and disabled servers."""

import json
from pathlib import Path
from typing import Final

import pytest

from gateway.config.loader import LoadedConfig, load
from gateway.config.models.upstreams import Upstream

RUN: Final = '"command": "x"'


def loaded(directory: Path, text: str, name: str = ".mcp.json", **environ: str) -> LoadedConfig:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    (directory / "config.yaml").write_text(f"mcp_json: [{name}]")
    return load(directory / "config.yaml", environ=environ)


def upstreams(directory: Path, text: str, name: str = ".mcp.json", **environ: str) -> dict[str, Upstream]:
    config = loaded(directory, text, name, **environ)
    assert not [each for each in config.problems if each.severity.value == "error"]
    return dict(config.document.upstreams)


@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"a": {%s} /*, "old": {%s} */, // "old": {%s},\n}}',
        '\ufeff// head: {"old": {%s}}\r\n{"servers": {"a": {%s},},}\r// tail {%s}',
        '{"mcpServers": {"a"\n:\n{%s,\t"args": ["https://x//y", "/* no */"]}}, "//": {"old": {%s}}, "_old": {%s}}',
        '{"mcpServers": {"a": {%s}, "_old": {%s}, "//old": {%s}, "_comment": "old"}}',
    ],
)
def test_commented_out_servers_are_ignored(tmp_path: Path, text: str) -> None:
    assert list(upstreams(tmp_path, text % (RUN, RUN, RUN))) == ["a"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("mcpServers:\n  a: {command: x}\n", "1:1"),
        ("{'mcpServers': {}}", "1:2"),
        ('{"mcpServers": {"a": {"command": x}}}', "1:34"),
        ('{"mcpServers": {},\n , "a": 1}', "2:2"),
        ('{"mcpServers": {}}\n{}', "2:1"),
        ('{"mcpServers": {} # no\n}', "1:19"),
        ('{\n /* {"mcpServers": {}}', "2:2"),
        ('{"mcpServers": {}}\n/*/', "2:1"),
        ('{"mcpServers": {"a": {"command": "x\\q"}}}', "1:36"),
        ('{"mcpServers": {"a": {"command": "x\n"}}}', "1:36"),
        ('{"mcpServers": {"a": {"command": "x}}}', "1:39"),
        ('{"mcpServers": {"a": {"timeout": NaN}}}', "1:34"),
        ('{"mcpServers": {"a": [1,,2]}}', "1:25"),
        ('{"mcpServers": {"a" {}}}', "1:21"),
        ('{"mcpServers": {"a": {}', "1:24"),
        ('{"a":' * 100 + "1" + "}" * 100, "1:326"),
    ],
)
def test_invalid_json_is_an_error_at_its_position(tmp_path: Path, text: str, place: str) -> None:
    [problem] = loaded(tmp_path, text).problems
    assert str(problem).startswith(f"{tmp_path}/.mcp.json:{place}: mcp_json: JSON syntax: ")
    assert problem.severity.value == "error"


@pytest.mark.parametrize(
    "off",
    [
        '{"mcpServers": {"a": {%s}, "b": {%s, "disabled": true}}}',
        '{"mcpServers": {"a": {%s, "disabled": false}, "b": {%s, "enabled": false}}}',
        '{"servers": {"a": {%s, "enabled": true, "isActive": true}, "b": {%s, "isActive": false}}}',
        '{"mcp": {"excluded": ["b"]}, "mcpServers": {"a": {%s}, "b": {%s}}}',
        '{"mcp": {"allowed": ["a"]}, "mcpServers": {"a": {%s}, "b": {%s}}}',
        '{"mcpServers": {"a": {%s, "disabled": "no"}, "b": {%s, "disabled": 1}}}',
        '{"mcpServers": {"a": {%s, "Enabled": "yes"}, "b": {%s, "Enabled": 0}}}',
        '{"disabledMcpServers": ["b"], "mcpServers": {"a": {%s}, "b": {%s}}}',
        '{"mcp": {"servers": {"a": {%s}}}, "mcpServers": {"b": {%s, "disabled": true}}}',
        '{"mcp": {"a": {"type": "local", "command": ["x"]}, "b": {%s, "enabled": false}, "c": {%s, "disabled": true}}}',
    ],
)
def test_disabled_servers_are_skipped(tmp_path: Path, off: str) -> None:
    assert list(upstreams(tmp_path, off % (RUN, RUN))) == ["a"]


@pytest.mark.parametrize(
    ("keys", "include", "exclude"),
    [
        ({"disabledTools": ["b"], "autoApprove": ["c"], "alwaysAllow": []}, ["*"], ["b"]),
        ({"excludeTools": ["b"], "disabledTools": ["c"]}, ["*"], ["b", "c"]),
        ({"includeTools": ["a"], "excludeTools": ["b"], "trust": True}, ["a"], ["b"]),
        ({"tools": ["a"]}, ["a"], []),
        ({"tools": ["*"]}, ["*"], []),
        ({"enabledTools": []}, [], []),
        ({"tools": {"include": ["a*"], "exclude": ["d"]}, "disabledTools": ["b"]}, ["a*"], ["d", "b"]),
    ],
)
def test_disabled_tools_are_excluded(tmp_path: Path, keys: object, include: object, exclude: object) -> None:
    assert isinstance(keys, dict)
    tools = upstreams(tmp_path, json.dumps({"mcpServers": {"a": {"command": "x", **keys}}}))["a"].tools
    assert (tools.include, tools.exclude) == (include, exclude)


def test_keys_of_other_clients_are_translated(tmp_path: Path) -> None:
    found = upstreams(
        tmp_path,
        """{
        "context_servers": {"zed": {"source": "custom", "command": {"path": "x", "args": ["y"], "env": {"A": "b"}}}},
        "mcp": {
            "code": {"type": "local", "command": ["x", "y"], "environment": {"A": "b"}, "enabled": true},
            "web": {"type": "remote", "url": "https://x", "enabled": true, "headers": {"A": "b"}},
            "timeout": 5
        },
        "mcpServers": {
            "cline": {"url": "https://x", "transportType": "streamableHttp", "command": "", "args": null, "env": {}},
            "old": {"transport": {"type": "stdio", "command": "x", "args": ["y"]}, "env": {"A": "b", "B": null}},
            "cursor": {"url": "https://x", "auth": {"CLIENT_ID": "a"}, "roots": [], "timeout": 60},
        }}""",
    )
    assert {name: (each.argv, each.env, each.url, each.kind) for name, each in found.items()} == {
        "cline": ((), {}, "https://x", "http"),
        "old": (("x", "y"), {"A": "b"}, None, "stdio"),
        "cursor": ((), {}, "https://x", None),
        "zed": (("x", "y"), {"A": "b"}, None, "stdio"),
        "code": (("x", "y"), {"A": "b"}, None, "stdio"),
        "web": ((), {}, "https://x", None),
    }


@pytest.mark.parametrize("name", [".vscode/mcp.json", ".kiro/settings/mcp.json", "mcp.json"])
def test_client_variables_are_interpolated(tmp_path: Path, name: str) -> None:
    text = """{"servers": {"a": {"command": "${workspaceFolder}/x",
        "args": ["${userHome}", "${workspaceFolderBasename}", "${env:A}", "${B:-d}", "a${/}b"],
        "env": {"TOKEN": "${input:my-token}"}}}}"""
    [upstream] = upstreams(tmp_path, text, name, A="1", INPUT_MY_TOKEN="t0ken-of-mine").values()
    assert upstream.argv == (f"{tmp_path}/x", str(Path.home()), tmp_path.name, "1", "d", "a/b")
    assert (upstream.env, upstream.cwd) == ({"TOKEN": "t0ken-of-mine"}, str(tmp_path))


def test_env_file_is_merged_and_watched(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("export A='one long secret' # comment\nB=b\nC=${HOME}\nD\n")
    text = '{"servers": {"a": {"command": "x", "envFile": "${workspaceFolder}/.env", "env": {"B": "mine"}}}}'
    config = loaded(tmp_path, text, ".vscode/mcp.json")
    assert not config.problems
    assert config.document.upstreams["a"].env == {"A": "one long secret", "B": "mine", "C": "${HOME}"}
    assert config.redactor.text("one long secret") != "one long secret"
    assert tmp_path / ".env" in config.files


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (
            '{"command": "${input:gh-token}"}',
            "1:36: upstreams.bad.command: `${input:gh-token}` prompts the user of a client, which ",
        ),
        ('{"command": "x", "args": "-y"}', "1:49: upstreams.bad.args: expected a list"),
        ('{"url": "${UNSET}"}', "1:32: upstreams.bad.url: the variable UNSET is not set"),
        ('{"command": "x", "envFile": "none.env"}', "1:52: upstreams.bad.env: none.env: no such file"),
        ('{"command": "x", "url": "https://x"}', "1:41: upstreams.bad: has "),
        ('{"url": "not a URL"}', "1:25: upstreams.bad: `url` must be a URL such as https://example.com/mcp"),
        ('{"url": "https://x/{TENANT}/mcp"}', "1:25: upstreams.bad: `url` must be a URL such as"),
        ('{"url": "wss://x", "type": "websocket"}', "1:51: upstreams.bad.type: "),
        (
            '{"command": "x", "command": "y"}',
            "1:41: upstreams.bad.command: `command` is written twice, first in line 1",
        ),
        ('{"settings": {}}', "1:17: upstreams.bad: needs a server: one of `command`, `url`"),
        ("[]", "1:17: upstreams.bad: expected a JSON object; this server is skipped"),
        ('"${x"', "1:17: upstreams.bad: expected a JSON object; this server is skipped"),
    ],
)
def test_invalid_server_is_skipped_with_a_warning(tmp_path: Path, bad: str, problem: str) -> None:
    config = loaded(tmp_path, f'{{"mcpServers": {{"bad": {bad}, "good": {{{RUN}}}}}}}')
    assert list(config.document.upstreams) == ["good"]
    assert str(config.problems[0]).startswith(f"{tmp_path}/.mcp.json:{problem}")
    assert {each.severity.value for each in config.problems} == {"warning"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"servers": {"a": {%s}}, "mcpServers": {"a": {%s}}}', "upstreams.a: `a` is defined twice, first in line 1"),
        ('{"servers": {"a": {%s}}, "servers": {"b": {%s}}}', "mcp_json: `servers` is written twice, first in line 1"),
    ],
)
def test_duplicate_servers_and_sections_are_reported(tmp_path: Path, text: str, problem: str) -> None:
    [found] = loaded(tmp_path, text % (RUN, RUN)).problems
    assert f"{found.path}: {found.message}" == problem


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("Internet Search (Tavily)", "Internet_Search_Tavily_"),
        ("@21st-dev/magic", "21st-dev_magic_"),
        ("io.github/x", "io_github_x_"),
        ("a.b", None),
        ("天气", None),
    ],
)
def test_name_that_cannot_start_tool_names_gets_a_prefix(tmp_path: Path, name: str, prefix: str | None) -> None:
    config = loaded(tmp_path, json.dumps({"mcpServers": {name: {"command": "x"}}}))
    assert config.document.upstreams[name].prefix == prefix
    assert any(f"`prefix` is `{prefix}`" in each.message for each in config.problems) is (prefix is not None)


def test_misspelt_key_is_reported_with_a_suggestion(tmp_path: Path) -> None:
    text = (
        '{"mcpServers": {"a": {"url": "https://x", "header": {}, "version": "1", "timeout": 5}, "b": {"comand": "x"}}}'
    )
    messages = [problem.message for problem in loaded(tmp_path, text).problems]
    ignored = "is a setting of the client and is ignored"
    assert messages[:3] == [
        f"`header` {ignored}; did you mean `headers`?",
        f"`version` {ignored}",
        f"`timeout` {ignored}",
    ]
    assert f"`comand` {ignored}; did you mean `command`?" in messages


def test_server_at_a_private_address_can_be_allowed(tmp_path: Path) -> None:
    text = '{"mcpServers": {"a": {"url": "http://127.0.0.1:1/mcp", "allow_private": ["127.0.0.1"]}}}'
    assert upstreams(tmp_path, text)["a"].allow_private == ["127.0.0.1"]
