"""Tests for audit records."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import structlog

from gateway.access.identity import Identity
from gateway.app.gateway import Gateway
from gateway.audit.recorder import AuditRecorder
from gateway.cli.commands.validate import check
from gateway.config.models.document import Audit, Document
from gateway.config.settings import read_settings
from gateway.errors import ConfigError, Problem, Severity
from gateway.json_types import Json, JsonObject
from tests.protocol.peers import ERAS, LocalGateway, call, serve_folder
from tests.waiting import until, wait_until

SECRET: Final = "correct-horse-battery"
FILE: Final = """
audit: {file: audit.log}
listen: {http: "127.0.0.1:0"}
auth: {api_keys: {ci: {sha256: "abababababababababababababababababababababababababababababababab"}}}
connections: {c: {base_url: "https://c.example", headers: {Authorization: "${file:secret}"}}}
plugins: [plugins]
tools:
  greet: {description: Greet., input: {name: string}, content: "Hello, {{ name }}", aliases: [hi]}
  fails: {description: Fails., content: No., is_error: true}
  asks: {description: Asks., confirm: Sure?, content: Done.}
  waits: {python: "slow:waits"}
  samples: {python: "slow:samples"}
  hidden: {description: Hidden., content: x, access: {scopes: [ops]}}
  shown: {description: Shown., content: x, access: {scopes: [ops], visible: true}}
resources:
  note: {uri: "note://{id}", text: "{{ id }}", complete: {id: [one]}}
prompts:
  triage:
    description: Triage.
    arguments: {who: {description: Whom., complete: [ada]}}
    messages: [{user: "{{ who }}"}]
"""
PLUGIN: Final = '''
import asyncio
from gateway.plugin import Context

async def waits() -> str:
    """Wait."""
    await asyncio.sleep(3600)
    return ""

async def samples(context: Context) -> str:
    """Sample."""
    return (await context.sample("poem", "Write.")).text
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "slow.py").write_text(PLUGIN)
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "config.yaml").write_text(FILE)
    return tmp_path


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[LocalGateway]:
    async with serve_folder(folder) as served:
        await served.gateway.start()
        yield served


def records(folder: Path, event: str = "call", *, file: str = "audit.log") -> list[Json]:
    lines = [json.loads(line) for line in (folder / file).read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


async def test_call_is_one_record(folder: Path) -> None:
    async with started(folder) as served:
        peer = await served.legacy(identity=Identity(principal="ada", realm="api_keys"))
        await call(peer, "hi", name="Ada")
        session = peer.session.id
    [record] = records(folder)
    assert record.pop("duration_ms") >= 0
    assert len(record.pop("id")) == 12
    assert record.pop("arguments_digest").startswith("hmac-sha256:")
    assert record.pop("time").endswith("Z")
    assert record == {
        "event": "call",
        "method": "tools/call",
        "kind": "tool",
        "name": "greet",
        "requested": "hi",
        "outcome": "ok",
        "generation": 1,
        "principal": "ada",
        "realm": "api_keys",
        "address": None,
        "binding": "memory",
        "client": {},
        "revision": "2025-11-25",
        "session": session[:8],
    }


@ERAS
async def test_kinds_and_outcomes_are_recorded(folder: Path, era: str) -> None:
    nobody = Identity(principal="bob", realm="api_keys", scopes=frozenset())
    async with started(folder) as served:
        peer = served.modern(identity=nobody) if era == "modern" else await served.legacy(identity=nobody)
        for method, params in (
            ("tools/call", {"name": "greet", "arguments": {"name": "Ada"}}),
            ("tools/call", {"name": "greet", "arguments": {}}),
            ("tools/call", {"name": "fails"}),
            ("tools/call", {"name": "no-such-tool"}),
            ("tools/call", {"name": "hidden"}),
            ("tools/call", {"name": "shown"}),
            ("resources/read", {"uri": "note://7"}),
            ("resources/read", {"uri": "gone://7"}),
            ("prompts/get", {"name": "triage", "arguments": {"who": "Ada"}}),
            (
                "completion/complete",
                {"ref": {"type": "ref/prompt", "name": "triage"}, "argument": {"name": "who", "value": "a"}},
            ),
            ("tools/list", {}),
        ):
            await peer.request(method, params)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await peer.request("tools/call", {"name": "waits"})
    found = [
        (each["kind"], each["name"], each.get("requested") or each.get("uri"), each["outcome"], each.get("code"))
        for each in records(folder)
    ]
    assert found == [
        ("tool", "greet", None, "ok", None),
        ("tool", "greet", None, "tool_error", None),
        ("tool", "fails", None, "tool_error", None),
        ("tool", None, "no-such-tool", "protocol_error", -32602),
        ("tool", None, "hidden", "denied", -32602),
        ("tool", "shown", None, "denied", -32600),
        ("resource", "note", "note://7", "ok", None),
        ("resource", None, "gone://7", "protocol_error", -32602),
        ("prompt", "triage", None, "ok", None),
        ("prompt", "triage", None, "ok", None),
        ("tool", "waits", None, "cancelled", None),
    ]


@ERAS
async def test_input_requests_are_recorded(folder: Path, era: str) -> None:
    async with started(folder) as served:
        peer = await served.of(era)
        await call(peer, "asks")
        await call(peer, "samples")
        refusing = await served.of(era, respond=lambda *_: {"action": "decline"})
        await call(refusing, "asks")
    confirmed = records(folder, "confirmed")
    assert [(each["name"], each["answer"]) for each in confirmed] == [("asks", "accept"), ("asks", "decline")]
    asked = records(folder, "asked")
    assert [each["method"] for each in asked] == ["elicitation/create", "sampling/createMessage", "elicitation/create"]
    assert asked[1]["key"] == "poem"
    ids = [each["id"] for each in records(folder)]
    assert {each["id"] for each in (*asked, *confirmed)} <= set(ids)
    endings = [each["outcome"] for each in records(folder)]
    if era == "modern":
        assert endings == ["input_required", "ok", "input_required", "ok", "input_required", "tool_error"]
    else:
        assert endings == ["ok", "ok", "tool_error"]


async def test_equal_arguments_have_equal_keyed_digests(folder: Path) -> None:
    async with started(folder) as served:
        peer = await served.of("modern")
        for name in ("Ada", "Ada", "Bob"):
            await call(peer, "greet", name=name)
    async with started(folder) as served:
        await call(await served.of("modern"), "greet", name="Ada")
    first, second, other, elsewhere = (each["arguments_digest"] for each in records(folder))
    assert first == second != other
    assert first != elsewhere, "without MCP_GATEWAY_SECRET_KEY, each process uses a different key"


async def test_digests_depend_only_on_the_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_GATEWAY_SECRET_KEY", "k" * 32)
    for _ in range(2):
        async with started(folder) as served:
            await call(await served.of("modern"), "greet", name="Ada")
    first, second = (each["arguments_digest"] for each in records(folder))
    assert first == second


async def test_full_arguments_are_recorded_with_secrets_masked(folder: Path) -> None:
    (folder / "config.yaml").write_text(FILE.replace("audit.log", "audit.log, arguments: full"))
    async with started(folder) as served:
        peer = await served.of("modern")
        await call(peer, "greet", name=f"Ada {SECRET}")
        await peer.request("resources/read", {"uri": f"note://{SECRET}"})
        await peer.request("tools/call", {"name": SECRET, "arguments": {"name": "x" * 70_000}})
    first, second, third = records(folder)
    assert first["arguments"] == {"name": "Ada ***"}
    assert second["uri"] == "note://***"
    assert third["requested"] == "***"
    assert "arguments" not in third
    assert "arguments_digest" in third
    assert SECRET not in (folder / "audit.log").read_text()


async def test_start_reload_and_end_are_recorded(folder: Path) -> None:
    async with started(folder) as served:
        await served.edit("Greet.", "Say hello.")
        (folder / "config.yaml").write_text("tools: {dull: {content: x}, broken: 7}\n")
        assert (await served.gateway.app.reloads.reload())["problems"]
    [start], [reload], [refusal], [end] = (
        records(folder, event) for event in ("started", "reloaded", "reload refused", "stopped")
    )
    assert (start["generation"], reload["generation"]) == (1, 2)
    assert start["files_sha256"] != reload["files_sha256"]
    assert refusal["problems"] == 1
    assert "tools.broken" in refusal["first"]
    assert end["pid"] == start["pid"]


@ERAS
async def test_rejected_calls_have_their_own_outcome(folder: Path, era: str) -> None:
    (folder / "config.yaml").write_text(FILE.replace("fails: {", "fails: {rate_limit: 1/hour, "))
    async with started(folder) as served:
        peer = await served.of(era)
        for _ in range(2):
            await peer.request("tools/call", {"name": "fails"})
    assert [each["outcome"] for each in records(folder)] == ["tool_error", "over_limit"]


async def test_differences_from_the_lock_are_recorded(folder: Path) -> None:
    (folder / "mcp-gateway.lock").write_text('{"version": 1}')
    async with started(folder):
        pass
    [start] = records(folder, "started")
    assert "tools.greet was added since the lock was written" in start["differs"]


async def test_reload_changes_enables_and_disables_the_file(folder: Path) -> None:
    async with started(folder) as served:
        peer = await served.of("modern")
        await call(peer, "fails")
        await served.edit("audit.log", "other.log")
        await call(peer, "fails")
        await served.edit("audit: {file: other.log}", "")
        assert served.gateway.status()["audit"] is None
        await call(peer, "fails")
        await served.edit("listen:", "audit: {file: audit.log}\nlisten:")
        await call(peer, "fails")
    assert len(records(folder)) == 2
    assert len(records(folder, file="other.log")) == 1


async def test_unwritable_file_prevents_the_start(folder: Path) -> None:
    (folder / "config.yaml").write_text(FILE.replace("audit.log", "nowhere/audit.log"))
    settings = read_settings({"config": folder / "config.yaml", "log_level": "error", "no_watch": True})
    async with Gateway(settings) as gateway:
        said = r"config.yaml:\d+:\d+: audit.file: .*nowhere/audit.log cannot be written: no such file"
        with pytest.raises(ConfigError, match=said):
            await gateway.start()


@pytest.mark.parametrize("name", ["config.yaml", "secret", "mcp-gateway.lock", "link"])
def test_log_file_cannot_be_a_configuration_file(folder: Path, name: str) -> None:
    (folder / "link").symlink_to("config.yaml")
    (folder / "config.yaml").write_text(FILE.replace("audit.log", name), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        check(read_settings({"config": folder / "config.yaml"}))
    assert [each.path for each in caught.value.problems if each.severity is Severity.ERROR] == ["audit.file"]


async def test_reload_to_an_unwritable_file_is_rejected(folder: Path) -> None:
    async with started(folder) as served:
        text = FILE.replace("audit.log", "nowhere/audit.log").replace("Greet.", "Other.")
        (folder / "config.yaml").write_text(text)
        [problem] = (await served.gateway.app.reloads.reload())["problems"]
        assert "cannot be written" in problem
        peer = await served.of("modern")
        tools: list[JsonObject] = (await peer.request("tools/list", {}))["result"]["tools"]
        assert tools[0]["description"] == "Greet."
        await call(peer, "fails")
    assert len(records(folder)) == 1


async def test_denied_requests_are_recorded_without_credentials(folder: Path) -> None:
    async with started(folder) as served, aiohttp.ClientSession() as http:
        url = served.gateway.url or ""
        for number in range(40):
            headers = {"Authorization": f"Bearer guess-{number}-guess"}
            async with http.post(url, json={}, headers=headers) as answer:
                assert answer.status == 401
    found = records(folder, "denied")
    assert 20 <= len(found) < 40
    assert {key: found[0][key] for key in ("address", "path", "status", "error", "others")} == {
        "address": "127.0.0.1",
        "path": "/mcp",
        "status": 401,
        "error": "invalid_token",
        "others": 0,
    }
    assert "guess" not in (folder / "audit.log").read_text()


async def test_failing_log_does_not_fail_calls(folder: Path) -> None:
    logs = folder / "logs"
    logs.mkdir()
    (folder / "config.yaml").write_text(FILE.replace("audit.log", "logs/audit.log"))
    async with started(folder) as served:
        (logs / "audit.log").unlink(missing_ok=True)
        logs.rename(folder / "away")
        peer = await served.of("modern")
        async with asyncio.timeout(10):
            while (status := served.gateway.status()["audit"])["trouble"] is None:
                assert (await call(peer, "greet", name="Ada"))["content"]
                await asyncio.sleep(0.01)
        assert status["trouble"] == "no such file or directory"
        (folder / "away").rename(logs)
        await until(lambda: served.gateway.status()["audit"]["trouble"] is None)
    assert records(folder, file="logs/audit.log")


async def test_commands_do_not_write_the_audit_log(folder: Path) -> None:
    async with serve_folder(folder) as served:
        await call(await served.of("modern"), "fails")
    assert not (folder / "audit.log").exists()


async def test_every_field_of_a_record_is_documented(folder: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    async with started(folder) as served:
        peer = await served.of("modern")
        await call(peer, "asks")
        await peer.request("tools/call", {"name": "no-such-tool"})
        await peer.request("resources/read", {"uri": "note://7"})
        await served.edit("Greet.", "Say hello.")
    lines = [json.loads(line) for line in (folder / "audit.log").read_text().splitlines()]
    assert {line["event"] for line in lines} >= {"call", "asked", "confirmed", "started", "reloaded", "stopped"}
    for name in {name for line in lines for name in (*line, line["event"])} - {"version", "pid"}:
        assert f"`{name}`" in page, name


@pytest.mark.parametrize("kept", ["digest", "full"])
async def test_deeply_nested_arguments_are_recorded(folder: Path, kept: str) -> None:
    file = folder / "config.yaml"
    text = file.read_text().replace("{file: audit.log}", f"{{file: audit.log, arguments: {kept}}}")
    file.write_text(text + "limits: {request_depth: 900}\n")
    depths = (252, 253, 254, 300, 700)
    async with started(folder) as served:
        for depth in depths:
            nested: list[Json] = []
            for _ in range(depth):
                nested = [nested]
            await served.modern().request("tools/call", {"name": "greet", "arguments": {"name": nested}})
    assert [record["name"] for record in records(folder)] == ["greet"] * len(depths)


@dataclass(frozen=True)
class Served:
    """A configuration with only an audit log."""

    document: Document
    root: Path
    digest: str = ""
    lock_differences: Sequence[str] = ()
    audit_place: tuple[None, str] = (None, "")


def test_reload_does_not_wait_for_the_replaced_log(tmp_path: Path) -> None:
    is_stuck, release = threading.Event(), threading.Event()
    events: list[str] = []

    def hold(_logger: Json, _method: str, entry: Json) -> Json:
        events.append(entry["event"])
        if entry["event"] == "audit log is writable again":
            is_stuck.set()
            release.wait(20)
        raise structlog.DropEvent

    def served(name: str) -> Served:
        return Served(Document(audit=Audit(file=name)), tmp_path)

    recorder = AuditRecorder(key=b"", generation=lambda: 1)
    structlog.configure(processors=[hold])
    try:
        (tmp_path / "logs").mkdir()
        recorder.open(served("logs/audit.log"))
        (tmp_path / "logs").rename(tmp_path / "away")
        recorder.refuse(ConfigError([Problem(message="none")]))
        wait_until(lambda: recorder.is_failing)
        (tmp_path / "logs").mkdir()
        assert is_stuck.wait(20), "the thread is writing from here on"
        recorder.refuse(ConfigError([Problem(message="queued")]))
        recorder.serve(served("other.log"))
        assert "audit records lost" not in events, "the end did not wait for the timeout"
        release.set()
        recorder.close()
    finally:
        release.set()
        structlog.reset_defaults()
    # The thread of the replaced log writes its queued records.
    wait_until(
        lambda: [each["first"] for each in records(tmp_path, "reload refused", file="logs/audit.log")][-1] == "queued"
    )
    assert "audit records lost" not in events
    here = [*records(tmp_path, "reloaded", file="other.log"), *records(tmp_path, "stopped", file="other.log")]
    assert len(here) == 2
    files = ("away/audit.log", "logs/audit.log", "other.log")
    assert recorder.written == sum(len((tmp_path / file).read_text().splitlines()) for file in files)
