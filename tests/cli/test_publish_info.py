"""`mcp-gateway publish-info`: valid `server.json` files, and errors for servers that registries reject."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gateway import __version__
from tests.cli.typed import Run
from tests.published_schemas import SERVER_JSON, check

KEY = "hunter2-hunter2-hunter2"
TOOLS = "tools: {greet: {description: Says hello., content: Hello.}}\n"
SERVER = f"server: {{name: Ops tools, version: 1.2.3, title: Ops, description: Looks after machines.}}\n{TOOLS}"
PUBLIC = f"listen: {{public_url: https://tools.example.com/ops}}\n{SERVER}"


def published(run: Run, text: str, *words: str) -> dict[str, Any]:
    Path("config.yaml").write_text(text)
    finished = run("publish-info", "config.yaml", *words)
    assert finished.code == 0, finished.hints
    document: dict[str, Any] = json.loads(Path("server.json").read_text())
    check(document, SERVER_JSON)
    return document


def test_server_is_named_by_its_domain_with_its_remotes(run: Run) -> None:
    document = published(run, PUBLIC, "--repository", "https://github.com/ada/ops")
    assert document == {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "com.example.tools/Ops-tools",
        "version": "1.2.3",
        "description": "Looks after machines.",
        "title": "Ops",
        "repository": {"url": "https://github.com/ada/ops", "source": "github"},
        "remotes": [
            {"type": "streamable-http", "url": "https://tools.example.com/ops/mcp"},
            {"type": "sse", "url": "https://tools.example.com/ops/sse"},
        ],
    }


@pytest.mark.parametrize(
    ("auth", "required"),
    [
        (f"api_keys: {{ci: {{secret: {KEY}}}}}", True),
        (f"api_keys: {{ci: {{secret: {KEY}}}}}, oauth: {{issuer: https://idp.example.com}}", False),
        ("oauth: {issuer: https://idp.example.com}", None),
    ],
    ids=["keys", "both", "oauth"],
)
def test_key_is_declared_as_a_secret_and_never_written(run: Run, auth: str, *, required: bool | None) -> None:
    document = published(run, f"auth: {{{auth}}}\n{PUBLIC}")
    assert KEY not in json.dumps(document)
    for remote in document["remotes"]:
        if required is None:  # the client signs in by itself
            assert "headers" not in remote
            continue
        (header,) = remote["headers"]
        assert (header["name"], header["value"]) == ("Authorization", "Bearer {api_key}")
        variable = header["variables"]["api_key"]
        assert (header["isRequired"], variable["isRequired"], variable["isSecret"]) == (required, required, True)


@pytest.mark.parametrize(
    ("server", "words", "name"),
    [
        ("name: ops, website_url: https://www.example.org/tools", (), "org.example/ops"),
        ("name: ops, website_url: https://github.com/ada/ops", (), "io.github.ada/ops"),
        ("name: com.acme/ops, website_url: https://example.org", (), "com.acme/ops"),
        ("name: ops, website_url: https://bücher.example", (), "example.xn--bcher-kva/ops"),
        ("name: 'Übersicht!'", (), "com.example.tools/bersicht"),
        ("name: ops", ("--name", "io.github.ada/tools"), "io.github.ada/tools"),
        ("name: ops", ("--view", "desk"), "com.example.tools/ops-desk"),
    ],
)
def test_name_uses_the_first_known_domain(run: Run, server: str, words: tuple[str, ...], name: str) -> None:
    head = "listen: {public_url: https://tools.example.com, sse: false}\nviews: {desk: {}}\n"
    document = published(run, f"{head}server: {{{server}}}\n{TOOLS}", *words)
    assert document["name"] == name
    path = "/mcp/desk" if "--view" in words else "/mcp"
    assert [remote["url"] for remote in document["remotes"]] == [f"https://tools.example.com{path}"]


def test_texts_are_shortened_and_icons_left_out(run: Run) -> None:
    icons = "[{src: https://example.com/a.png, sizes: 48x48}, {src: 'data:image/png;base64,AA=='}]"
    head = "listen: {public_url: https://tools.example.com}\n"
    document = published(
        run, f"{head}server: {{name: ops, icons: {icons}, description: {'word ' * 40}, title: {'t' * 120}}}\n{TOOLS}"
    )
    assert document["description"].endswith("word…")
    assert len(document["title"]) == 100
    assert "icons" not in document
    assert document["version"] == __version__


def test_packages_are_the_daemon_and_a_bundle(run: Run) -> None:
    text = SERVER.replace("Hello.}}", "Hello.}, ask: {description: Asks., http: {url: 'https://a.example.com', ")
    text = text.rstrip() + 'headers: {X-Key: "${env:OPS_KEY:-none}"}}}}\n'
    Path("config.yaml").write_text(text)
    assert run("bundle", "config.yaml", "-o", "ops.mcpb").code == 0
    url = "https://github.com/ada/ops/releases/download/v1/ops.mcpb"
    document = published(
        run, text, "--name", "io.github.ada/ops", "--pypi", "--bundle", "ops.mcpb", "--bundle-url", url
    )
    assert "remotes" not in document
    bundle, daemon = document["packages"]
    assert bundle["fileSha256"] == hashlib.sha256(Path("ops.mcpb").read_bytes()).hexdigest()
    assert (bundle["registryType"], bundle["identifier"], bundle["version"]) == ("mcpb", url, "1.2.3")
    assert (daemon["identifier"], daemon["version"], daemon["runtimeHint"]) == (
        "mcp-gateway-daemon",
        __version__,
        "uvx",
    )
    words = [each.get("value") or each.get("name") or each["valueHint"] for each in daemon["packageArguments"]]
    assert words == ["serve", "config", "--stdio"]
    assert [(each["name"], each["isSecret"]) for each in daemon["environmentVariables"]] == [("OPS_KEY", True)]


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        (SERVER, (), "listen.public_url: is not set"),
        (PUBLIC.replace("tools.example.com", "localhost"), (), "listen.public_url: is https://localhost/ops"),
        (PUBLIC.replace("tools.example.com", "10.0.0.7"), (), "server.name: needs a reversed domain"),
        (PUBLIC, ("--name", "ops"), "--name: expected a name under a reversed domain"),
        (PUBLIC, ("--repository", "ada/ops"), "--repository: expected a URL"),
        (PUBLIC, ("--repository", "https://[x"), "--repository: expected a URL"),
        (PUBLIC, ("--bundle", "ops.mcpb"), "--bundle: must be used together with --bundle-url"),
        (
            PUBLIC,
            ("--bundle", "config.yaml", "--bundle-url", "https://example.com/a"),
            "config.yaml: is not an MCP bundle",
        ),
        (PUBLIC, ("--bundle", "none", "--bundle-url", "https://example.com/a"), "none: cannot be read"),
        (PUBLIC, ("--view", "desks"), "--view: unknown view `desks`"),
        (PUBLIC, ("-o", "no/server.json"), "no/server.json: cannot be written"),
        (PUBLIC + "extra: 1\n", (), "config.yaml:"),
    ],
)
def test_unlistable_server_is_rejected(run: Run, text: str, words: tuple[str, ...], told: str) -> None:
    Path("config.yaml").write_text(text)
    finished = run("publish-info", "config.yaml", *words)
    assert finished.code == 2
    assert told in finished.hints
    assert not Path("server.json").exists()


def test_document_can_be_printed(run: Run) -> None:
    Path("config.yaml").write_text(PUBLIC)
    finished = run("publish-info", "config.yaml", "-o", "-")
    check(json.loads(finished.out), SERVER_JSON)
    assert not Path("server.json").exists()


def test_schema_rejects_invalid_documents(run: Run) -> None:
    document = published(run, PUBLIC)
    for change in ({"name": "ops"}, {"description": "x" * 101}, {"website": "https://example.com"}, {"version": 1}):
        with pytest.raises(jsonschema.ValidationError):
            check({**document, **change}, SERVER_JSON)
