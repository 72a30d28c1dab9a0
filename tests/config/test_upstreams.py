"""Models of `upstreams:`, including entries copied from client configurations."""

import json
from pathlib import Path

import pytest

from gateway.config.loader import LoadedConfig, load
from gateway.config.models.definition_keys import Access, narrowed


def loaded(directory: Path, text: str, **files: str) -> LoadedConfig:
    for name, content in files.items():
        (directory / f"{name}.json").write_text(content, encoding="utf-8")
    (directory / "config.yaml").write_text(text, encoding="utf-8")
    return load(directory / "config.yaml", environ={"TOKEN": "s3cret-token-of-mine"})


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("{url: 'https://x', type: http}", "http"),
        ("{url: 'https://x', type: streamable-http}", "http"),
        ("{url: 'https://x', transport: streamable_http}", "http"),
        ("{url: 'https://x', transport: streamableHttp}", "http"),
        ("{url: 'https://x', type: sse}", "sse"),
        ("{url: 'https://x'}", None),
        ("{command: x, type: stdio}", "stdio"),
        ("{command: x}", "stdio"),
    ],
)
def test_transport_names_of_clients_are_accepted(tmp_path: Path, written: str, kind: str | None) -> None:
    config = loaded(tmp_path, f"upstreams: {{a: {written}}}")

    assert not config.problems
    assert config.document.upstreams["a"].kind == kind


def test_relative_paths_of_an_http_upstream_are_resolved(tmp_path: Path) -> None:
    auth = "{client_credentials: {token_url: 'https://x/t', client_id: a, private_key: key.pem}}"
    config = loaded(
        tmp_path, f"upstreams: {{a: {{url: 'https://x', tls: {{ca: ca.pem}}, auth: {auth}, forward_headers: [X-A]}}}}"
    )

    assert not config.problems
    upstream = config.document.upstreams["a"]
    assert upstream.forward_headers == ["X-A"]
    assert upstream.tls is not None
    assert (upstream.tls.ca, upstream.tls.cert) == (str(tmp_path / "ca.pem"), None)
    assert upstream.auth is not None
    assert upstream.auth.client is not None
    assert upstream.auth.client.private_key == str(tmp_path / "key.pem")


def test_override_can_only_narrow_the_access_of_an_upstream() -> None:
    access, override = Access(scopes=["a", "b"], visible=True), Access(scopes=["b", "c"])
    assert narrowed(access, override) == Access(scopes=["a", "b", "c"])
    assert narrowed(access, None) == narrowed(None, access) == access


@pytest.mark.parametrize("written", ["{command: [npx, -y], args: [pkg, 1]}", "{command: npx, args: [-y, pkg, 1]}"])
def test_upstream_command_is_text_or_a_list(tmp_path: Path, written: str) -> None:
    assert loaded(tmp_path, f"upstreams: {{a: {written}}}").document.upstreams["a"].argv == ("npx", "-y", "pkg", "1")


def test_servers_of_client_files_are_added_to_upstreams(tmp_path: Path) -> None:
    servers = {
        "web": {"type": "http", "url": "https://x", "headers": {"Authorization": "Bearer ${TOKEN}"}, "timeout": 60000},
        "old": {"command": "x", "disabled": True},
        "gemini": {"httpUrl": "https://y"},
        "windsurf": {"serverUrl": "https://z"},
    }
    more = {"code": {"command": "${PROGRAM:-npx}", "prefix": ""}}

    config = loaded(
        tmp_path,
        "upstreams: {own: {command: x}}\nmcp_json: [a.json, b.json]",
        a=json.dumps({"mcpServers": servers}, indent="\t"),
        b=json.dumps({"servers": more, "inputs": []}),
    )

    upstreams = config.document.upstreams
    assert list(upstreams) == ["own", "web", "gemini", "windsurf", "code"]
    assert (upstreams["gemini"].url, upstreams["windsurf"].url) == ("https://y", "https://z")
    assert upstreams["web"].headers == {"Authorization": "Bearer s3cret-token-of-mine"}
    assert config.redactor.text("s3cret-token-of-mine") != "s3cret-token-of-mine"
    assert (upstreams["code"].argv, upstreams["code"].prefix) == (("npx",), "")
    assert [str(each).partition(": ")[2] for each in config.problems] == [
        "upstreams.web.timeout: `timeout` is a setting of the client and is ignored"
    ]


@pytest.mark.parametrize("has_escapes", [True, False])
def test_client_file_can_contain_any_json_text(tmp_path: Path, has_escapes: bool) -> None:  # noqa: FBT001
    # `json.dumps` escapes the first characters as surrogate pairs (RFC 8259 §7). The literal backslashes stay.
    text = "😀𝒳 \\ud83d\\ude00 \x7f\x85\u2028\u2029\ufeff\uffff"
    servers = {"mcpServers": {"a": {"command": "x", "args": [text]}}}
    config = loaded(tmp_path, "mcp_json: [a.json]", a=json.dumps(servers, ensure_ascii=has_escapes))
    assert not config.problems
    assert config.document.upstreams["a"].argv == ("x", text)


@pytest.mark.parametrize("half", ["\\ud83d", "\\ude00\\ud83d", "\\ud83d\\\\ude00"])
def test_unpaired_surrogate_in_a_client_file_is_an_error(tmp_path: Path, half: str) -> None:
    config = loaded(tmp_path, "mcp_json: [a.json]", a=f'{{"mcpServers": {{"a": {{"command": "x{half}"}}}}}}')
    [problem] = config.problems
    assert str(problem).startswith(f"{tmp_path}/a.json:1:36: mcp_json: JSON syntax: ")
    assert problem.message.endswith("surrogate in string")


def test_upstream_kinds_can_be_disabled(tmp_path: Path) -> None:
    upstream = loaded(tmp_path, "upstreams: {a: {command: x, prompts: false, tools: true}}").document.upstreams["a"]

    assert (upstream.prompts.include, upstream.tools.include) == ([], ["*"])


def test_upstream_sandbox_accepts_read_and_write(tmp_path: Path) -> None:
    text = "upstreams: {a: {command: x, sandbox: {write: [/srv], read: [/data]}}}"
    sandbox = loaded(tmp_path, text).document.upstreams["a"].sandbox

    assert sandbox is not None
    assert (sandbox.writable, sandbox.readable) == (["/srv"], ["/data"])


@pytest.mark.parametrize("content", ["{}", '{"mcpServers": {}}', '{"servers": {}, "inputs": []}'])
def test_client_file_without_servers_is_allowed(tmp_path: Path, content: str) -> None:
    config = loaded(tmp_path, "mcp_json: [a.json]", a=content)

    assert not config.problems
    assert not config.document.upstreams
