"""Failures that users of other gateways have reported."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from aiohttp import web

from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
from gateway.errors import RpcError
from gateway.json_types import Json, JsonObject
from gateway.transports.memory import MemoryClient
from gateway.wire import meta
from tests import local_server
from tests.e2e.daemon import serving
from tests.programs import is_running

ODD: Final = Path(__file__).parent / "testdata" / "odd_server.py"
SECONDS: Final = 90.0
"""A limit for waits, long enough for a slow and loaded machine."""


def odd(mode: str, *arguments: object) -> str:
    return f"command: {[sys.executable, '-IS', str(ODD), mode, *map(str, arguments)]}"


def config(folder: Path, **entries: str) -> Path:
    path = folder / "config.yaml"
    lines = "".join(f"  {name}: {{{entry}}}\n" for name, entry in entries.items())
    path.write_text(f"upstreams:\n{lines}", encoding="utf-8")
    return path


def gateway(path: Path, *, state: Path | None = None) -> Gateway:
    given = {"config": path, "log_level": "error", "no_watch": True, "http": "127.0.0.1:0"}
    return Gateway(read_settings({**given, "state_dir": "none" if state is None else str(state)}))


async def tools(client: MemoryClient) -> list[str]:
    return [tool["name"] for tool in (await client.request("tools/list"))["tools"]]


async def call(client: MemoryClient, name: str, **more: Json) -> dict[str, Json]:
    return await client.request("tools/call", {"name": name, "arguments": {}, **more})


def asked_by(mode: str) -> dict[str, Json]:
    """Return the parameters of a client that supports one mode of elicitation."""
    return {"_meta": {meta.META_CLIENT_CAPABILITIES: {"elicitation": {mode: {}}}}}


async def said(client: MemoryClient, name: str) -> str:
    return str((await call(client, name))["content"][0]["text"])


async def until_listed(running: Gateway, *names: str) -> None:
    """Wait until tools are listed, which can take longer than the start waits."""
    await running.start()
    client = running.memory_client()

    async def are_listed() -> bool:
        return {*names} <= {*await tools(client)}

    await until(are_listed)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await condition():
            await asyncio.sleep(0.02)


class ToolListSubscriber:
    """A subscriber to the list of tools."""

    def __init__(self) -> None:
        self.methods: Final[list[str]] = []
        self._arrived: Final = asyncio.Event()

    @asynccontextmanager
    async def listening(self, client: MemoryClient, **more: Json) -> AsyncIterator[None]:
        wanted: JsonObject = {"notifications": {"toolsListChanged": True, **more}}
        task = asyncio.create_task(client.request("subscriptions/listen", wanted, on_notification=self._take))
        await self.until(0)
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def until(self, count: int) -> None:
        """Wait for the acknowledgement and this many announcements."""
        async with asyncio.timeout(SECONDS):
            while len(self.methods) < count or not self._arrived.is_set():
                self._arrived.clear()
                await self._arrived.wait()

    async def _take(self, message: JsonObject) -> None:
        if message["method"] != "notifications/subscriptions/acknowledged":
            self.methods.append(message["method"])
        self._arrived.set()


async def test_bad_servers_do_not_affect_others(tmp_path: Path) -> None:
    bad = {"dead": "command: /no/such/program", "flood": odd("flood"), "hang": odd("hang") + ", connect_timeout: 1s"}
    bad["private"] = "url: 'http://127.0.0.1:9/mcp'"
    async with gateway(config(tmp_path, **bad, good=odd("good"))) as running:
        client = running.memory_client()

        async def are_listed() -> bool:
            return await tools(client) == ["good_work", "good_grow", "good_die"]

        await until(are_listed)
        assert (await said(client, "good_work")).startswith("did work")
        expected = {"dead": "does not exist", "flood": "text that is not MCP", "hang": "within 1 s"}
        expected["private"] = "its connection or its upstream"

        async def are_told() -> bool:
            told = running.status()["upstreams"]
            has_reasons = all(reason in told[name].get("reason", "") for name, reason in expected.items())
            return has_reasons and told["good"]["state"] == "up"

        await until(are_told)


async def test_entries_without_a_name_are_omitted_and_reported(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=odd("nameless"))) as running:
        await until_listed(running, "odd_work")

        resources = (await running.memory_client().request("resources/list"))["resources"]
        assert "odd://only" in [resource["uri"] for resource in resources]
        assert any("2 of its resources" in warning for warning in running.status()["warnings"])
        assert any("Integer exceeds 64-bit range" in warning for warning in running.status()["warnings"])


async def test_unsupported_question_is_declined_with_a_note(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=odd("ask_url"))) as running:
        await until_listed(running, "odd_ask_url")

        answer, note = (await call(running.memory_client(), "odd_ask_url", **asked_by("form")))["content"]
        assert answer["text"] == '{"action": "decline"}'
        assert "odd asked for elicitation" in note["text"]


async def test_question_has_the_form_of_the_clients_revision(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=odd("ask_url"))) as running:
        await until_listed(running, "odd_ask_url")

        answer = await call(running.memory_client(), "odd_ask_url", **asked_by("url"))
        [question] = answer["inputRequests"].values()
        assert question["params"] == {"mode": "url", "message": "Go", "url": "https://example.com/"}


async def test_request_of_a_modern_server_is_rejected(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=odd("ask_form", "modern"))) as running:
        await until_listed(running, "odd_ask_form")

        answer = await call(running.memory_client(), "odd_ask_form", **asked_by("form"))
        assert "Unknown method: elicitation/create" in answer["content"][0]["text"]


async def test_malformed_answer_keeps_the_question_open(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=odd("ask_form"))) as running:
        await until_listed(running, "odd_ask_form")
        client = running.memory_client()
        asked = await call(client, "odd_ask_form", **asked_by("form"))
        [key] = asked["inputRequests"]

        async def answered(answer: Json) -> dict[str, Json]:
            again = {"requestState": asked["requestState"], "inputResponses": {key: answer}}
            return await call(client, "odd_ask_form", **again, **asked_by("form"))

        malformed: list[Json] = [5, {"action": "perhaps"}, {"action": "accept", "content": {"name": 5}}]
        for answer in malformed:
            with pytest.raises(RpcError, match="The response to"):
                await answered(answer)
        assert "Ada" in str(await answered({"action": "accept", "content": {"name": "Ada"}}))


async def test_invalid_input_requests_fail_the_call(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=odd("confused"))) as running:
        await until_listed(running, "odd_work")

        result = await call(running.memory_client(), "odd_work", **asked_by("form"))
        assert result["isError"]
        assert "sent invalid `inputRequests`" in result["content"][0]["text"]


async def test_refused_subscription_does_not_degrade_the_server(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=odd("refusing"))) as running:
        await until_listed(running, "odd_work")

        async with ToolListSubscriber().listening(running.memory_client(), resourceSubscriptions=["odd://only"]):
            # The acknowledgement comes after the request to the server.
            assert running.status()["upstreams"]["odd"]["state"] == "up"
            assert (await said(running.memory_client(), "odd_work")).startswith("did work")


@pytest.mark.build
async def test_four_bad_servers_do_not_affect_sixteen_others(tmp_path: Path) -> None:
    bad, good = ("dead", "hang", "flood", "die"), [f"good{number}" for number in range(16)]
    state, programs = tmp_path / "state", {name: tmp_path / name for name in (*bad, *good)}
    for program in programs.values():
        program.write_text(f"#!/bin/sh\nexec {sys.executable} -IS {ODD} good\n", encoding="utf-8")
        program.chmod(0o755)
    entries = {name: f"command: {program}" for name, program in programs.items()}
    names = [f"{name}_{tool}" for name in programs for tool in ("work", "grow", "die")]
    async with gateway(config(tmp_path, **entries), state=state) as running:
        client = running.memory_client()

        async def are_all_known() -> bool:
            return await tools(client) == names

        await until(are_all_known)
    programs["dead"].unlink()
    for name in ("hang", "flood"):
        programs[name].write_text(f"#!/bin/sh\nexec {sys.executable} -IS {ODD} {name}\n", encoding="utf-8")
    entries["hang"] += ", connect_timeout: 1s"

    async with gateway(config(tmp_path, **entries), state=state) as running:
        await running.start()
        client = running.memory_client()
        assert await tools(client) == names
        assert {each["state"] for each in running.status()["upstreams"].values()} == {"idle"}  # the reload did not wait

        failing = [asyncio.create_task(said(client, f"{name}_{'die' if name == 'die' else 'work'}")) for name in bad]
        answers = await asyncio.gather(*(said(client, f"{name}_work") for name in good))
        failed = dict(zip(bad, await asyncio.gather(*failing), strict=True))
        told = running.status()["upstreams"]
        async with aiohttp.ClientSession() as http, http.get(str(running.url).replace("/mcp", "/metrics")) as answer:
            metrics = await answer.text()

    assert all(each.startswith("did work") for each in answers)
    for name, reason in {"dead": "does not exist", "hang": "within 1 s", "flood": "text that is not MCP"}.items():
        assert failed[name].startswith(f"{name} cannot be reached: ")
        assert reason in failed[name]
        assert reason in told[name]["reason"]
        assert f'mcp_gateway_upstream_up{{upstream="{name}"}} 0' in metrics
    assert failed["die"] == "die: exited with code 3: out of cheese"
    assert told["die"]["restarts"] == 1
    assert 'mcp_gateway_upstream_restarts_total{upstream="die"} 1' in metrics
    assert all(told[name]["state"] == "up" for name in good)


async def test_notifications_with_invalid_ids_are_ignored(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=odd("mutter"))) as running:
        await until_listed(running, "odd_mutter")
        client = running.memory_client()
        async with asyncio.timeout(SECONDS):
            first = await said(client, "odd_mutter")
            assert first.startswith("did mutter")
            assert await said(client, "odd_mutter") == first
        assert running.status()["upstreams"]["odd"]["restarts"] == 0


async def test_update_before_the_start_is_ignored(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=odd("hasty"))) as running:
        await until_listed(running, "odd_work")
        assert (await said(running.memory_client(), "odd_work")).startswith("did work")


@pytest.mark.parametrize(
    ("kind", "answer", "reason"),
    [
        ("http", {"status": 307, "headers": {"Location": "http://["}}, "redirects to an invalid URL"),
        ("http", {"status": 307, "headers": {"Location": "http://[]@/"}}, "redirects to an invalid URL"),
        (
            "sse",
            {"text": "event: endpoint\ndata: http://[\n\n", "content_type": "text/event-stream"},
            "sent an endpoint event with an invalid URL",
        ),
    ],
)
async def test_invalid_address_is_reported(tmp_path: Path, kind: str, answer: dict[str, Json], reason: str) -> None:
    async def answered(_request: web.Request) -> web.Response:
        return web.Response(**answer)

    application = web.Application()
    application.router.add_route("*", "/mcp", answered)
    async with local_server.listening(application) as port:
        entry = f"url: 'http://127.0.0.1:{port}/mcp', allow_private: true, type: {kind}"
        settings = {"config": config(tmp_path, web=entry), "log_level": "error", "no_watch": True}
        async with Gateway(read_settings(settings), serves_one_request=True) as running:
            assert reason in running.status()["upstreams"]["web"]["reason"]


async def test_failed_first_connection_is_retried_and_announced(tmp_path: Path) -> None:
    program = tmp_path / "late_program"
    async with gateway(config(tmp_path, late=f"command: {program}")) as running:
        await running.start()
        client = running.memory_client()
        assert await tools(client) == []

        program.write_text(f"#!/bin/sh\nexec {sys.executable} -IS {ODD} good\n", encoding="utf-8")
        program.chmod(0o755)

        async def is_there() -> bool:
            return "late_work" in await tools(client)

        await until(is_there)


async def test_start_does_not_wait_with_remembered_lists(tmp_path: Path) -> None:
    gate, state = tmp_path / "gate", tmp_path / "state"
    gate.touch()
    path = config(tmp_path, late=odd("late", gate))
    async with gateway(path, state=state) as running:
        assert "late_work" in await tools(running.memory_client())
    gate.unlink()

    async with asyncio.timeout(45), gateway(path, state=state) as running:
        assert "late_work" in await tools(running.memory_client())
        assert running.status()["upstreams"]["late"]["state"] == "idle"


@pytest.mark.parametrize("serves_one_request", [True, False])
async def test_one_request_process_waits_for_first_lists(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, serves_one_request: bool
) -> None:
    monkeypatch.setattr("gateway.app.build.FIRST_LISTS_SECONDS", 0.1)
    gate = tmp_path / "gate"
    settings = read_settings({"config": config(tmp_path, late=odd("late", gate)), "state_dir": "none"})
    asyncio.get_running_loop().call_later(1, gate.touch)

    async with Gateway(settings, serves_one_request=serves_one_request) as running:
        assert ("late_work" in await tools(running.memory_client())) is serves_one_request


async def test_call_to_unreachable_upstream_explains_the_reason_and_next_try(tmp_path: Path) -> None:
    gate, state = tmp_path / "gate", tmp_path / "state"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -IS {ODD} good\n", encoding="utf-8")
    program.chmod(0o755)
    path = config(tmp_path, notes=f"command: {program}")
    async with gateway(path, state=state) as running:
        await tools(running.memory_client())
    program.unlink()
    del gate

    async with gateway(path, state=state) as running:
        client = running.memory_client()
        assert "notes_work" in await tools(client)

        for _ in range(2):
            result = await call(client, "notes_work")
            text = str(result["content"][0]["text"])
            assert result["isError"] is True
            assert text.startswith("notes cannot be reached: the program")
            assert text.endswith(" s") and "next try in " in text  # noqa: PT018


@pytest.mark.parametrize(
    ("entry", "more", "explanation"),
    [
        ("", "", ". Upstream `dead` is unavailable"),
        (", prefix: d_", "", ""),
        (", access: {scopes: [ops]}", "auth: {api_keys: {ann: {secret: 0123456789abcdef0123456789abcdef}}}\n", ""),
        ("", "auth: {oauth: {issuer: 'https://x.example'}, rules: [{match: {kind: tools}, scopes: [ops]}]}\n", ""),
    ],
)
async def test_unknown_tool_of_an_unavailable_upstream_is_explained(
    tmp_path: Path, entry: str, more: str, explanation: str
) -> None:
    path = config(tmp_path, dead=f"command: /no/such/program{entry}")
    path.write_text(f"{path.read_text(encoding='utf-8')}{more}")
    async with gateway(path) as running:
        with pytest.raises(RpcError) as refused:
            await running.memory_client().request("tools/call", {"name": "dead_tool", "arguments": {}})
    assert refused.value.message == f"Unknown tool: dead_tool{explanation}"


async def test_server_with_a_failed_list_is_degraded(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=odd("halved"))) as running:
        await until_listed(running, "odd_work")
        told = running.status()["upstreams"]["odd"]

    assert told["state"] == "degraded"
    assert told["missing"] == {"resources": "the disk is full (-32603)"}


async def test_crash_in_a_call_shows_stderr_and_restarts_the_server(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=odd("good"))) as running:
        client = running.memory_client()

        result = await call(client, "odd_die")

        assert (result["isError"], result["content"][0]["text"]) == (True, "odd: exited with code 3: out of cheese")
        assert (await said(client, "odd_work")).startswith("did work")
        assert running.status()["upstreams"]["odd"]["restarts"] == 1


async def test_server_that_hangs_after_the_probe_is_retried_with_initialize(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.upstreams.connecting.PROBE_SECONDS", 0.1)
    async with gateway(config(tmp_path, odd=odd("mute") + ", connect_timeout: 1s")) as running:
        await until_listed(running, "odd_work")
        assert (await said(running.memory_client(), "odd_work")).startswith("did work")
        assert running.status()["upstreams"]["odd"]["revision"] == "2025-11-25"


async def test_changed_list_is_served(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=odd("good"))) as running:
        await running.start()
        client = running.memory_client()
        await call(client, "odd_grow")

        async def has_grown() -> bool:
            return "odd_more_3" in await tools(client)

        await until(has_grown)


async def test_announcement_without_a_change_is_not_relayed(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=odd("pretend"))) as running:
        await running.start()
        client = running.memory_client()
        before = running.status()["generation"]

        await call(client, "odd_pretend")
        await call(client, "odd_grow")  # a real change, which follows the first announcement

        async def has_grown() -> bool:
            return "odd_more_4" in await tools(client)

        await until(has_grown)
        assert running.status()["generation"] == before + 1


async def test_hanging_call_times_out_without_delaying_others(tmp_path: Path) -> None:
    slow = odd("slow") + ", timeout: 300ms"
    async with gateway(config(tmp_path, slow=slow, good=odd("good"))) as running:
        client = running.memory_client()
        hanging = asyncio.create_task(said(client, "slow_slow"))

        assert (await said(client, "good_work")).startswith("did work")
        assert (await hanging) == "slow timed out after 0.3 s"


async def test_long_and_duplicate_names_are_omitted_and_reported(tmp_path: Path) -> None:
    entries = {
        "one": odd("good") + ', prefix: ""',
        "two": odd("good") + ', prefix: "", tools: {include: [work]}',
        "long": odd("good") + f", prefix: {'x' * 60}_, tools: {{include: [work, die]}}",
    }
    async with gateway(config(tmp_path, **entries)) as running:
        client = running.memory_client()

        assert await tools(client) == ["work", "grow", "die", f"{'x' * 60}_die"]
        warnings = "\n".join(running.status()["warnings"])
        assert "upstreams.two: the tool `work` is not offered: `upstreams.one`" in warnings
        assert "is not offered: its name has 65 characters" in warnings


async def test_duplicate_uri_is_omitted_with_a_hint_on_prefixes(tmp_path: Path) -> None:
    path = config(tmp_path, one=odd("readable"), two=odd("readable"), three=odd("readable") + ", uri_prefix: three+")
    own = 'resources: {own: {uri: "odd://shared", text: own}}\nskills: [skill]\n'
    (tmp_path / "skill").mkdir()
    (tmp_path / "skill" / "SKILL.md").write_text(
        "---\nname: skill\ndescription: A skill.\n---\nDo.\n", encoding="utf-8"
    )
    path.write_text(own + path.read_text(encoding="utf-8"), encoding="utf-8")
    async with gateway(path) as running:
        client = running.memory_client()
        uris = [each["uri"] for each in (await client.request("resources/list"))["resources"]]
        warnings = "\n".join(running.status()["warnings"])

    taken = "already has that URI. Set `uri_prefix` to change the URI"
    assert [uri for uri in uris if "odd://" in uri] == [
        "odd://shared",
        "odd://only",
        "three+odd://shared",
        "three+odd://only",
    ]
    assert (
        f":4:8: resources.odd://shared.uri: the resource `odd://shared` is not offered: `resources.own.uri` ({path}:1:"
        in warnings
    )
    assert f"upstreams.two: the resource `odd://only` is not offered: `upstreams.one` ({path}:" in warnings
    skill = "resources.skill://skill/SKILL.md.uri: the resource `skill://skill/SKILL.md`"
    assert f":4:8: {skill} is not offered: `skills.0` ({path}:2:" in warnings
    assert warnings.count(taken) >= 4


async def test_unmatched_patterns_are_reported(tmp_path: Path) -> None:
    entry = odd("good") + ", tools: {include: [work, nothing_*], override: {missing: {title: x}}}"
    async with gateway(config(tmp_path, odd=entry)) as running:
        warnings = "\n".join(running.status()["warnings"])

    assert "upstreams.odd.tools.include.1: `nothing_*` does not match any of the upstream's tools" in warnings
    assert "upstreams.odd.tools.override.missing: the upstream has no tools named `missing`" in warnings


async def test_template_of_the_file_takes_precedence(tmp_path: Path) -> None:
    path = config(tmp_path, odd=odd("readable"))
    own = 'resources: {own: {uri: "odd://{name}", text: "{{ name }}"}}\n'
    path.write_text(own + path.read_text(encoding="utf-8"), encoding="utf-8")
    async with gateway(path) as running:
        await running.start()
        client = running.memory_client()
        listed = (await client.request("resources/templates/list"))["resourceTemplates"]
        [contents] = (await client.request("resources/read", {"uri": "odd://x"}))["contents"]
        warnings = "\n".join(running.status()["warnings"])

    assert [each["name"] for each in listed] == ["own"]
    assert contents["text"] == "x"
    assert "the resource `odd://{name}` is not offered: `resources.own.uri`" in warnings
    assert "overlaps" not in warnings


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_children_end_with_the_daemon(tmp_path: Path, how: signal.Signals) -> None:
    pids = tmp_path / "pids"
    tree = f"{sys.executable} -IS {ODD} deaf {pids}; exit"  # a server below another process, as with npx
    path = config(tmp_path, deaf=f"command: {['sh', '-c', tree]}")
    async with serving(path, "--http", "127.0.0.1:0", "--state-dir", "none") as daemon:
        await daemon.url()
        [pid] = [int(line) for line in pids.read_text(encoding="ascii").split()][-1:]
        assert is_running(pid)
        daemon.signal(how)
        await daemon.exit_code()

        async def is_gone() -> bool:
            return not is_running(pid)

        await until(is_gone)


@pytest.mark.build
async def test_reloads_leave_no_children_of_removed_upstreams(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    path = config(tmp_path, deaf=odd("deaf", pids))
    async with gateway(path) as running:
        await running.start()
        for number in range(99):
            entries = {} if number % 3 == 2 else {"deaf": odd("deaf", pids) + f", env: {{NUMBER: {number}}}"}
            config(tmp_path, **entries)
            await running.app.reloads.reload()
        config(tmp_path, good=odd("good"))
        await running.app.reloads.reload()
        client = running.memory_client()

        async def is_there() -> bool:
            return await tools(client) == ["good_work", "good_grow", "good_die"]

        async def are_gone() -> bool:
            return not any(is_running(int(pid)) for pid in pids.read_text(encoding="ascii").split())

        await until(is_there)
        await until(are_gone)


async def test_tools_stay_until_the_server_of_a_changed_command_responds(tmp_path: Path) -> None:
    door, path = tmp_path / "door", config(tmp_path, odd=odd("good"))
    async with gateway(path) as running:
        await until_listed(running, "odd_work")
        client, subscriber = running.memory_client(), ToolListSubscriber()
        async with subscriber.listening(client):
            path.write_text(path.read_text(encoding="utf-8").replace("'good'", f"'late', '{door}', 'slow'"))
            await running.app.reloads.reload()
            assert await tools(client) == ["odd_work", "odd_grow", "odd_die"]

            calling = asyncio.create_task(said(client, "odd_work"))  # waits for the new server
            door.touch()
            assert (await calling).startswith("did work")

            async def is_swapped() -> bool:
                return "odd_slow" in await tools(client)

            await until(is_swapped)
            await subscriber.until(1)
    assert subscriber.methods == ["notifications/tools/list_changed"]


async def test_tools_stay_if_the_server_of_a_changed_command_fails(tmp_path: Path) -> None:
    path = config(tmp_path, odd=odd("good"))
    async with gateway(path) as running:
        await until_listed(running, "odd_work")
        client = running.memory_client()
        entry = "command: /no/such/program, tools: {include: [work, new_*]}"
        config(tmp_path, odd=entry)
        await running.app.reloads.reload()

        async def is_told() -> bool:
            return "does not exist" in running.status()["upstreams"]["odd"].get("reason", "")

        await until(is_told)
        assert await tools(client) == ["odd_work"]
        assert (await said(client, "odd_work")).startswith("odd cannot be reached: ")
        assert not any("new_*" in each for each in running.status()["warnings"])  # the new lists are not known


async def test_readded_upstream_is_served_from_remembered_lists(tmp_path: Path) -> None:
    path = config(tmp_path, odd=odd("good"))
    async with gateway(path, state=tmp_path / "state") as running:
        await until_listed(running, "odd_work")
        client = running.memory_client()
        config(tmp_path, other=odd("good"))
        await running.app.reloads.reload()

        async def is_gone() -> bool:
            return "odd_work" not in await tools(client)

        await until(is_gone)
        config(tmp_path, odd=odd("good"))
        await running.app.reloads.reload()
        await until_listed(running, "odd_work")


async def test_unusable_prefix_is_one_warning(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, **{"my server": odd("good")})) as running:
        await running.start()
        client = running.memory_client()

        async def is_told() -> bool:
            return any("Set `prefix`" in each for each in running.status()["warnings"])

        await until(is_told)
        assert await tools(client) == []
        assert len(running.status()["warnings"]) == 1
