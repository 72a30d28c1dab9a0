"""`mcp-gateway plan`: changes and affected clients, compared with a file or a server, with masked secrets."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.typed import Run, started

SECRET: Final = "hunter2-hunter2"
OLD: Final = """\
server: {name: small}
auth:
  api_keys:
    reader: {secret: "${env:KEY}", scopes: [ops.read]}
    writer: {secret: "${env:KEY}-w", scopes: [ops.read, ops.write]}
connections:
  api: {base_url: "https://api.example.com", headers: {Authorization: "Bearer ${env:KEY}"}, timeout: 5s}
tools:
  usage:
    description: Largest directories.
    input: {path: string}
    shell: {command: [du, -h, --, "{{ path }}"], timeout: 90s}
    access: {scopes: [ops.read]}
  fetch: {description: Fetch., http: {connection: api, url: /x}}
  old: {description: Old., content: old}
prompts:
  ask: {messages: [{user: What?}]}
"""


@pytest.fixture
def plan(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the plan from `OLD` to a text, as JSON."""
    monkeypatch.setenv("KEY", SECRET)
    (tmp_path / "config.yaml").write_text(OLD)

    def plan(text: str, *words: str) -> Any:
        (tmp_path / "new.yaml").write_text(text)
        finished = run("plan", "new.yaml", "--json", *words)
        assert finished.code == 0, finished.hints
        assert SECRET not in finished.out + finished.hints
        return json.loads(finished.out)

    return plan


def changes_of(plan: Any) -> dict[str, str]:
    return {f"{change['sign']} {change['place']}": change["what"] for change in plan["changes"]}


def test_same_file_has_no_changes(plan: Any) -> None:
    assert plan(OLD + "x-note: only a comment\n# and another\n") == {
        "changes": [],
        "effects": {},
        "restart_required": [],
        "breaking": [],
    }


def test_changes_list_keys_and_difference(plan: Any) -> None:
    found = plan(
        OLD.replace("[du, -h,", "[du, -k,")
        .replace("timeout: 90s", "timeout: 2m")
        .replace("description: Largest directories.", "description: |\n      Largest directories\n      under a path.")
        .replace("api.example", "api2.example")
    )
    assert changes_of(found) == {
        "~ connections.api": "base_url",
        "~ tools.usage": "description, shell.command, shell.timeout",
    }
    lines = found["changes"][1]["difference"]
    assert {"-description: Largest directories.", "+description: |", "+  under a path."} <= set(lines)
    assert {"-  - -h", "+  - -k", "-  timeout: 90s", "+  timeout: 2m"} <= set(lines)


def test_added_and_removed_definitions_are_listed(plan: Any) -> None:
    text = OLD.replace(
        "  old: {description: Old., content: old}", "  new: {description: New., content: x, aliases: [old]}"
    )
    found = plan(text.partition("prompts:")[0])
    assert changes_of(found) == {
        "+ tools.new": "new",
        "- tools.old": "removed",
        "- prompts.ask": "removed",
    }


def test_gains_and_losses_are_listed_per_key(plan: Any) -> None:
    found = plan(
        OLD.replace("access: {scopes: [ops.read]}", "access: {scopes: [ops.write]}").replace(
            "  old:", "  fresh: {description: F., content: f, access: {scopes: [ops.write]}}\n  old:"
        )
    )
    assert found["effects"] == {
        "key reader": {"gains": [], "loses": ["tools.usage"], "announced": ["tools"]},
        "key writer": {"gains": ["tools.fresh"], "loses": [], "announced": ["tools"]},
    }


def test_hidden_change_is_not_announced(plan: Any) -> None:
    found = plan(OLD.replace("-h", "-k"))
    assert list(changes_of(found)) == ["~ tools.usage"]
    assert found["effects"] == {}


def test_auth_rule_affects_matching_callers(plan: Any) -> None:
    found = plan(OLD.replace("auth:\n", "auth:\n  rules: [{match: {kind: prompts}, scopes: [ops.write]}]\n"))
    assert found["effects"] == {"key reader": {"gains": [], "loses": ["prompts.ask"], "announced": ["prompts"]}}


def test_restart_required_is_reported(plan: Any) -> None:
    found = plan(OLD + "listen: {http: 127.0.0.1:9000}\nlimits: {sampling: {per_call: 3}}\n")
    assert found["restart_required"] == ["listen"]
    assert list(changes_of(found)) == ["+ listen", "+ limits"]


def test_limits_read_by_each_call_need_no_restart(plan: Any) -> None:
    looked_up = "rate_limit: 5/second, concurrency: 3, queue: 4, sampling: {per_call: 3}"
    assert plan(OLD + f"limits: {{{looked_up}}}\n")["restart_required"] == []
    assert plan(OLD + f"limits: {{{looked_up}, sessions: 7}}\n")["restart_required"] == ["limits"]


@pytest.mark.parametrize(
    ("section", "edited", "place"),
    [
        ("audit: {file: calls.log}", "audit: {file: calls.log, arguments: full}", "audit"),
        (
            "upstreams: {hub: {url: 'http://127.0.0.1:9/mcp'}}",
            "upstreams: {hub: {url: 'http://127.0.0.1:9/'}}",
            "upstreams.hub",
        ),
        (
            "openapi: {shop: {document: shop.json, refresh: 5m}}",
            "openapi: {shop: {document: shop.json, refresh: 6m}}",
            "openapi.shop",
        ),
    ],
)
def test_edit_outside_definitions_is_a_change(run: Run, tmp_path: Path, section: str, edited: str, place: str) -> None:
    info = '"info": {"title": "Shop", "version": "1"}'
    (tmp_path / "shop.json").write_text(
        f'{{"openapi": "3.1.0", {info}, "servers": [{{"url": "http://x"}}], "paths": {{}}}}'
    )
    for name, text in (("config.yaml", section), ("new.yaml", edited)):
        (tmp_path / name).write_text(f"tools: {{say: {{description: Say., content: x}}}}\n{text}\n")
    finished = run("plan", "new.yaml", "--json", "--exit-code")
    assert [change["place"] for change in json.loads(finished.out)["changes"]] == [place], finished.hints
    assert finished.code == 1


def test_unavailable_definitions_are_listed_with_reason(plan: Any) -> None:
    found = plan(OLD.replace("description: Old.,", "description: Old., requires: {commands: [no-such-command]},"))
    assert changes_of(found) == {
        "~ tools.old": "requires; is not available: the command no-such-command is not on PATH"
    }
    assert found["effects"]["key reader"]["loses"] == ["tools.old"]


def test_plugin_code_change_is_listed(run: Run, tmp_path: Path) -> None:
    for folder, result in (("old", 1), ("new", 2)):
        for name, returned in (("count", result), ("same", 0)):
            plugins = tmp_path / folder / name
            plugins.mkdir(parents=True)
            (plugins / f"{name}.py").write_text(f"def {name}() -> str:\n    '''Count.'''\n    return '{returned}'\n")
        (tmp_path / folder / "config.yaml").write_text(
            'plugins: [count, same]\ntools: {count: {python: "count:count", cache: 5s}, same: {python: "same:same"}}\n'
            'prompts: {ask: {python: "count:count"}}'
        )
    finished = run("plan", "new/config.yaml", "old/config.yaml")
    assert finished.out.splitlines() == [
        "~ tools.count  the plugin code",
        "~ prompts.ask  the plugin code",
    ]
    assert finished.hints == "2 changed; no client's lists change\n"


def test_plan_prints_changes_and_affected_clients(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("tools: {a: {description: A., content: a}, b: {description: B., content: b}}")
    (tmp_path / "new.yaml").write_text("tools: {a: {description: Aa., content: a}, c: {description: C., content: c}}")
    finished = run("plan", "new.yaml", "--exit-code")
    assert finished.code == 1
    lines = finished.out.splitlines()
    assert lines[:3] == ["~ tools.a  description", "    -description: A.", "    +description: Aa."]
    assert lines[lines.index("Affected clients") :] == [
        "Affected clients",
        "  everybody",
        "    + tools.c",
        "    - tools.b",
        "    is notified that tools changed",
    ]
    assert finished.hints == "1 added, 1 changed, 1 removed; 1 breaking\n"
    assert run("plan", "config.yaml", "config.yaml").code == 2
    (tmp_path / "same.yaml").write_text((tmp_path / "config.yaml").read_text())
    same = run("plan", "same.yaml", "--exit-code")
    assert (same.code, same.out, same.hints) == (0, "", "no changes\n")


def test_breaking_changes_are_listed_and_fail_on_request(plan: Any, run: Run, tmp_path: Path) -> None:
    new = OLD.replace("{path: string}", "{path: integer}").replace("  old: {description: Old., content: old}\n", "")
    new = new.replace("access: {scopes: [ops.read]}", "access: {scopes: [ops.write]}")
    assert plan(new)["breaking"] == [
        {"place": "tools.usage", "what": "no longer available to key reader"},
        {"place": "tools.usage", "what": "the type of `path` changed from string to integer"},
        {"place": "tools.old", "what": "removed"},
    ]
    (tmp_path / "new.yaml").write_text(new)
    shown = run("plan", "new.yaml")
    assert shown.code == 0
    lines = shown.out.splitlines()
    at = lines.index("Breaking changes")
    assert lines[at + 2 : at + 4] == [
        "  tools.usage  the type of `path` changed from string to integer",
        "  tools.old    removed",
    ]
    assert shown.hints == "1 changed, 1 removed; 3 breaking\n"
    assert run("plan", "new.yaml", "--exit-code").code == 1
    assert run("plan", "new.yaml", "--exit-code", "--fail-on", "breaking").code == 3
    assert run("plan", "new.yaml", "--json", "--fail-on", "breaking").code == 3


def test_change_that_breaks_no_client_passes(plan: Any) -> None:
    text = OLD.replace("{path: string}", "{path: string, depth: integer?}").replace(
        "  old: {", "  newer: {aliases: [old], "
    )
    found = plan(text, "--fail-on", "breaking")  # which must exit with 0
    assert found["breaking"] == []
    assert len(found["changes"]) == 3


@pytest.mark.parametrize(("new", "old"), [("tools: [", "{}"), ("{}", "tools: [")])
def test_plan_rejects_invalid_files(run: Run, tmp_path: Path, new: str, old: str) -> None:
    (tmp_path / "new.yaml").write_text(new)
    (tmp_path / "old.yaml").write_text(old)
    finished = run("plan", "new.yaml", "old.yaml")
    assert (finished.code, finished.out) == (2, "")
    assert ("new.yaml:2" if "[" in new else "old.yaml:2") in finished.hints


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a server for `config.yaml`."""
    (tmp_path / "config.yaml").write_text(
        "tools: {send: {description: Send., shell: {command: [echo], env: {TOKEN: '${env:KEY}'}}}}"
    )
    monkeypatch.setenv("KEY", SECRET)
    with started("serve", "--http", "127.0.0.1:0", cwd=tmp_path) as server:
        assert server.stderr is not None
        events = (json.loads(line) for line in server.stderr)
        yield next(event["url"] for event in events if event["event"] == "listening")
        server.terminate()
        server.wait(20)


def test_running_server_is_compared_with_the_file(run: Run, served: str, tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text((tmp_path / "config.yaml").read_text().replace("[echo]", "[printf, x]"))
    for url in (served, served.removesuffix("/mcp"), served.removesuffix("mcp")):
        finished = run("plan", "new.yaml", "--url", url)
        assert finished.code == 0
        assert finished.out.splitlines()[0] == "~ tools.send  shell.command"
        assert SECRET not in finished.out
    assert run("plan", "config.yaml", "--url", served, "--exit-code").code == 0
    assert run("plan", "new.yaml", "old.yaml", "--url", served).code == 2
    (tmp_path / "new.yaml").write_text("tools: {put: {description: Put., content: x}}")
    finished = run("plan", "new.yaml", "--url", served, "--fail-on", "breaking")
    assert finished.code == 3
    assert "  tools.send  removed" in finished.out.splitlines()


def test_file_is_compared_with_its_own_server(
    run: Run, served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = served.removeprefix("http://").removesuffix("/mcp")
    monkeypatch.setenv("MCP_GATEWAY_HTTP", address)
    finished = run("plan", "config.yaml")
    assert (finished.code, finished.out) == (0, "")
    assert finished.hints == f"Compared with the server at http://{address}\nno changes\n"
    (tmp_path / "config.yaml").rename(tmp_path / "new.yaml")
    assert run("plan", "new.yaml").hints == finished.hints


def test_plan_without_server_and_other_file_names_what_to_pass(
    run: Run, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_GATEWAY_HTTP", f"127.0.0.1:{unused_tcp_port}")
    finished = run("plan", "config.yaml")
    assert (finished.code, finished.out) == (2, "")
    assert finished.hints.startswith("config.yaml: needs the old file, or a running server with --url. No server was")
    assert run("plan", "config.yaml", "config.yaml").hints.startswith("config.yaml: cannot be compared with itself")


def test_plan_reports_an_unreachable_server(run: Run, tmp_path: Path) -> None:
    finished = run("plan", "config.yaml", "--url", "http://127.0.0.1:9", "--exit-code")
    assert (finished.code, finished.out) == (2, "")
    assert "Is the server running?" in finished.hints


def test_server_without_contracts_is_rejected(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of earlier versions do not send them, so no change could be marked as breaking."""

    async def ask(_url: str, path: str) -> Any:
        assert path == "/-/config"
        return {"written": {}, "left_out": {}, "code": {}, "audiences": {}}

    monkeypatch.setattr("gateway.cli.commands.plan.ask_daemon", ask)
    finished = run("plan", "config.yaml", "--url", "http://127.0.0.1:9", "--fail-on", "breaking")
    assert (finished.code, finished.out) == (2, "")
    assert "the server is too old for this command. Compare with its file instead" in finished.hints
