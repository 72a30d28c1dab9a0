"""`mcp-gateway status`: problems come first and determine the exit code."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.typed import Run, started

FINE: Final[dict[str, Any]] = {
    "version": "1.2.3",
    "state": "ready",
    "uptime_seconds": 90_061.5,
    "config": "/etc/gateway/config.yaml",
    "generation": 7,
    "files": {"/etc/gateway/config.yaml": "0123456789abcdef", "/etc/gateway/more.yaml": "fedcba9876543210"},
    "last_reload": "2020-01-01T00:00:00+00:00",
    "problems": [],
    "warnings": [],
    "restart_required": [],
    "watch_error": None,
    "tools": {"usage": "shell", "restart": "shell", "fetch": "http"},
    "resources": {},
    "prompts": {"ask": "messages"},
    "upstreams": {
        "shelf": {
            "state": "up",
            "sessions": 1,
            "transport": "http",
            "revision": "2025-06-18",
            "offers": {"tools": 1, "resources": 2, "prompts": 1},
        }
    },
    "left_out": [],
    "disabled": [],
    "calls_running": 3,
    "calls_waiting": 1,
    "children": 1,
    "threads_stuck": 0,
    "store": {"directory": "/var/lib/gateway", "durable": True, "problem": None},
    "limits": {"sessions": {"used": 2, "limit": 10}},
    "clients": {
        "sessions": [
            {"client": "ed 1.0", "era": "legacy", "revision": "2025-06-18", "transport": "stdio", "sessions": 1},
            {"client": None, "kinds": 3, "sessions": 12},
        ],
    },
}
Answering = Callable[..., str]


@pytest.fixture
def answering() -> Iterator[Answering]:
    """Starts a server that answers one path, and returns its URL."""
    servers: list[ThreadingHTTPServer] = []

    def start(value: object, *, at: str = "/-/status", status: int = 200, key: str | None = None) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = self.path == at and (key is None or self.headers["Authorization"] == f"Bearer {key}")
                body = json.dumps(value if known else {"error": "not found"}).encode()
                self.send_response(status if known else 401 if self.path == at else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_healthy_status_is_short(run: Run, answering: Answering) -> None:
    finished = run("status", "--url", answering(FINE))
    assert (finished.code, finished.hints) == (0, "")
    first, *others = finished.out.splitlines()
    assert first == "mcp-gateway 1.2.3  ready  up 1 day, 1:01:01  generation 7"
    assert others[0].startswith("config     /etc/gateway/config.yaml (2 files), read ")
    assert others[1:] == [
        "tools      2 shell tools: usage, restart",
        "           1 http tool: fetch",
        "prompts    1 messages prompt: ask",
        "upstreams  shelf: up, tools 1, resources 2, prompts 1",
        "state      /var/lib/gateway",
        "calls      3 running, 1 waiting; 1 child",
        "in use     sessions 2 of 10",
        "clients    ed 1.0  2025-06-18 (legacy) on stdio, 1 session",
        "           12 sessions of 3 other kinds of clients",
    ]


@pytest.mark.parametrize(
    ("store", "lines"),
    [
        ({"directory": None}, ["state      in memory"]),
        (
            {"directory": "/s", "shared": {"url": "redis://r", "problem": None}},
            ["state      /s", "store      redis://r"],
        ),
        ({"directory": None, "shared": {"url": "redis://r", "problem": "x"}}, ["store      redis://r, unreachable"]),
    ],
)
def test_status_shows_state_directory_and_store(
    run: Run, answering: Answering, store: dict[str, Any], lines: list[str]
) -> None:
    finished = run("status", "--url", answering({**FINE, "store": store}))
    assert [each for each in finished.out.splitlines() if each.startswith(("state ", "store "))] == lines


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (
            {"problems": ["c.yaml:1:2: tools.x: wrong"]},
            ["✗ the files are invalid", "✗   c.yaml:1:2: tools.x: wrong"],
        ),
        (
            {"audit": {"trouble": "No space left on device", "dropped": 0}},
            ["✗ the audit log cannot be written: No space left on device"],
        ),
        ({"state": "stopping"}, ["✗ the server is stopping and accepts no calls"]),
    ],
)
def test_problems_come_first_and_exit_code_is_one(
    run: Run, answering: Answering, change: dict[str, Any], lines: list[str]
) -> None:
    finished = run("status", "--url", answering({**FINE, **change}))
    assert finished.code == 1
    shown = finished.out.splitlines()[1 : 1 + len(lines)]
    assert [one.startswith(other) for one, other in zip(shown, lines, strict=True)] == [True] * len(lines), shown
    assert run("status", "--json", "--url", answering({**FINE, **change})).code == 1


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"restart_required": ["listen"]}, "! listen changed in the file. Restart the server to apply the change"),
        (
            {
                "left_out": [
                    {"kind": "tools", "name": "x", "backend": "shell", "reason": "the command y is not on PATH"}
                ]
            },
            "! tools.x is not available: the command y is not on PATH",
        ),
        ({"disabled": ["tools.x"]}, "! tools.x was disabled by a plugin"),
        ({"threads_stuck": 2}, "! plugin threads whose function did not return before its deadline: 2"),
        (
            {"worker_threads_stuck": 1},
            "! threads that did not process a file or an output before the deadline: 1",
        ),
        ({"watch_error": "no file events: limit"}, "! file changes are detected with a delay: no file events: limit"),
        (
            {"lock": {"differs": ["tools.x was added since the lock was written"]}},
            "! tools.x was added since the lock was written",
        ),
        (
            {
                "lock": {"differs": ["tools.x was added since the lock was written"]},
                "warnings": ["c.yaml:1:1: tools.x: was added since the lock was written"],
            },
            "! warning: c.yaml:1:1: tools.x: was added since the lock was written",  # not twice
        ),
        ({"limits": {"threads": {"used": 4, "limit": 4}}}, "! limits.threads is reached: threads 4 of 4"),
        (
            {"limits": {"concurrency": {"used": 3, "limit": 3, "per_caller": 1}}},
            "! limits.concurrency is reached: concurrency 3 of 3",
        ),
        ({"audit": {"trouble": None, "dropped": 2}}, "! records that the audit log dropped: 2"),
        ({"lock": {"trouble": "it is not JSON"}}, "! the lock cannot be used: it is not JSON"),
        ({"store": {"problem": "no space"}}, "! state is kept only in memory: no space"),
        ({"tasks_problem": "no space"}, "! tasks cannot be created: no space"),
        (
            {"auth": {"signing_keys_error": "no route"}},
            "! the signing keys of access tokens cannot be fetched: no route",
        ),
        (
            {"upstreams": {"a": {"state": "backing_off", "sessions": 0, "reason": "refused", "next_try_seconds": 3}}},
            "! the upstream a is backing_off: refused; next attempt in 3 s",
        ),
        (
            {"upstreams": {"a": {"state": "degraded", "sessions": 1, "missing": {"tools": "timeout"}}}},
            "! the upstream a does not list its tools: timeout",
        ),
        ({"warnings": ["c.yaml:1:1: doubtful"]}, "! warning: c.yaml:1:1: doubtful"),
    ],
)
def test_warnings_follow_and_exit_code_is_zero(
    run: Run, answering: Answering, change: dict[str, Any], line: str
) -> None:
    finished = run("status", "--url", answering({**FINE, **change}))
    assert finished.code == 0
    assert finished.out.splitlines()[1] == line


def test_unlimited_and_refused_counts_are_shown(run: Run, answering: Answering) -> None:
    change = {"limits": {"sessions": {"used": 3, "limit": None}}, "refused": {"rate": 4, "streams": 0}}
    lines = run("status", "--url", answering({**FINE, **change})).out.splitlines()
    assert "in use     sessions 3" in lines
    assert "refused    rate 4" in lines


def test_json_option_prints_the_response(run: Run, answering: Answering) -> None:
    assert json.loads(run("status", "--json", "--url", answering(FINE)).out) == FINE


@pytest.mark.parametrize("suffix", ["/ops", "/ops/", "/ops/mcp", "/ops/-/status", "/ops/-/console/"])
def test_proxy_prefix_is_kept(run: Run, answering: Answering, suffix: str) -> None:
    assert run("status", "--url", answering(FINE, at="/ops/-/status") + suffix).code == 0


@pytest.mark.parametrize("listen", ["{http: 'PLACE'}", "{http: '127.0.0.1:1', admin: 'PLACE'}"])
def test_daemon_is_found_by_the_admin_address_of_the_file(
    run: Run, answering: Answering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listen: str
) -> None:
    place = answering(FINE).removeprefix("http://")
    (tmp_path / "ops.yaml").write_text(f"listen: {listen.replace('PLACE', place)}\n")
    assert run("status", "ops.yaml").code == 0
    monkeypatch.setenv("MCP_GATEWAY_CONFIG", "ops.yaml")
    assert run("status").code == 0


def test_address_variable_overrides_the_file(run: Run, answering: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_GATEWAY_HTTP", answering(FINE).removeprefix("http://"))
    assert run("status", "config.yaml").code == 0


def test_status_works_with_an_invalid_file(
    run: Run, answering: Answering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_GATEWAY_HTTP", answering(FINE).removeprefix("http://"))
    (tmp_path / "config.yaml").write_text("tools: {\n")
    finished = run("status")
    assert finished.code == 0
    assert "The server's address is unknown, so the default address is used" in finished.hints
    absent = run("status", "absent.yaml")
    assert (absent.code, absent.hints) == (
        2,
        "absent.yaml: no such file. Create one with `mcp-gateway init`, or pass a file\n",
    )


def test_unreachable_path_is_reported(run: Run) -> None:
    finished = run("status", f"{'x' * 300}.yaml")
    assert (finished.code, finished.out) == (2, "")
    assert finished.hints.endswith(".yaml:1:1: file name too long\n")


def test_token_is_sent_to_the_daemon(run: Run, answering: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    url = answering(FINE, key="abc")
    refused = run("status", "--url", url)
    assert (refused.code, refused.out) == (1, "")
    assert "Set $MCP_GATEWAY_TOKEN to a key with the scope gateway:admin" in refused.hints
    monkeypatch.setenv("MCP_GATEWAY_TOKEN", "abc")
    assert run("status", "--url", url).code == 0


def test_status_rejects_other_servers(run: Run, answering: Answering) -> None:
    finished = run("status", "--url", answering(FINE, at="/elsewhere"))
    assert (finished.code, finished.out) == (1, "")
    assert "returned 404 Not Found: not found. If the file sets `listen.admin`, paths below /-/" in finished.hints
    assert run("status", "--url", answering(["x"])).code == 1


def test_unknown_host_name_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("listen: {allowed_hosts: [tools.example.com]}\n")
    with started("serve", "--http", "127.0.0.1:0", cwd=tmp_path) as server:
        assert server.stderr is not None
        events = (json.loads(line) for line in server.stderr)
        url = next(event["url"] for event in events if event["event"] == "listening")
        finished = run("status", "--url", url)
        server.terminate()
        server.wait(20)
    assert finished.code == 1
    assert "does not accept the Host '127.0.0.1" in finished.hints
    assert "listen.allowed_hosts" in finished.hints


def test_status_of_a_real_daemon(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "limits: {threads: 3, concurrency: {in_all: 7}}\n"
        "tools:\n"
        "  here: {description: H., content: h}\n"
        "  gone: {description: G., content: g, requires: {commands: [no-such-command]}}\n"
    )
    with started("serve", "--http", "127.0.0.1:0", cwd=tmp_path) as server:
        assert server.stderr is not None
        events = (json.loads(line) for line in server.stderr)
        url = next(event["url"] for event in events if event["event"] == "listening")
        assert run("call", "--url", url, "here").code == 0
        status = json.loads(run("status", "--json", "--url", url).out)
        shown = run("status", "--url", url)
        server.terminate()
        assert server.wait(20) == 0
    assert status["tools"] == {"here": "content"}
    assert status["left_out"] == [
        {
            "kind": "tools",
            "name": "gone",
            "backend": "content",
            "reason": "the command no-such-command is not on PATH",
        }
    ]
    assert status["limits"]["threads"] == {"used": 0, "limit": 3}
    assert status["limits"]["concurrency"] == {"used": 0, "limit": 7, "per_caller": None}
    assert "! tools.gone is not available" in shown.out
