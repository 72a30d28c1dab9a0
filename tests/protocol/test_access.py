"""Access rules: hidden primitives are unknown, and visible primitives name the missing scopes."""

from pathlib import Path
from typing import Final

import pytest
import structlog

from gateway.access.identity import Identity
from gateway.json_types import Json, JsonObject
from tests.protocol.peers import ERAS, LegacyPeer, LocalGateway, ModernPeer, serve_folder

FILE: Final = """
auth: {api_keys: {ci: {sha256: "abababababababababababababababababababababababababababababababab"}}}
tools:
  open: {description: For all., content: "open"}
  secret: {description: Not for all., content: "secret", access: {scopes: [ops, admin]}, aliases: [hidden]}
  step_up: {description: Seen by all., content: "stepped", access: {scopes: [ops], visible: true}}
  embeds: {description: Embeds., content: [{resource: "note:///1"}]}
resources:
  note: {uri: "note:///{id}", text: "note {{ id }}", access: {scopes: [ops]}, complete: {id: ["1"]}}
  single: {uri: "single:///x", text: "x", access: {scopes: [ops]}}
  seen: {uri: "seen:///x", text: "x", access: {scopes: [ops], visible: true}}
prompts:
  triage: {description: For some., arguments: {who: {description: Whom., complete: [ada]}},
           messages: [{user: "{{ who }}"}], access: {scopes: [ops]}}
  reads: {description: Reads., messages: [{user: {resource: "single:///x"}}]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(FILE)
    return tmp_path


def holder(*scopes: str) -> Identity:
    return Identity(principal="ada", realm="api_keys", scopes=frozenset(scopes))


async def of(served: LocalGateway, era: str, *scopes: str) -> ModernPeer | LegacyPeer:
    if era == "modern":
        return served.modern(identity=holder(*scopes))
    return await served.legacy(identity=holder(*scopes))


async def listed(peer: ModernPeer | LegacyPeer, kind: str) -> list[Json]:
    result = (await peer.request(f"{kind}/list", {}))["result"]
    return [each.get("uri", each["name"]) for each in result[kind]]


@ERAS
async def test_lists_depend_on_scopes(folder: Path, era: str) -> None:
    async with serve_folder(folder) as served:
        for scopes, tools, resources, prompts in (
            ([], ["open", "step_up", "embeds"], ["seen:///x"], ["reads"]),
            (["ops"], ["open", "step_up", "embeds"], ["single:///x", "seen:///x"], ["triage", "reads"]),
            (
                ["ops", "admin"],
                ["open", "secret", "step_up", "embeds"],
                ["single:///x", "seen:///x"],
                ["triage", "reads"],
            ),
        ):
            peer = await of(served, era, *scopes)
            assert await listed(peer, "tools") == tools
            assert await listed(peer, "resources") == resources
            assert await listed(peer, "prompts") == prompts
            templates = (await peer.request("resources/templates/list", {}))["result"]["resourceTemplates"]
            assert [each["name"] for each in templates] == (["note"] if scopes else [])


USES: Final = [
    ("tools/call", {"name": "secret"}, "Unknown tool: secret"),
    ("tools/call", {"name": "hidden"}, "Unknown tool: hidden"),
    ("resources/read", {"uri": "single:///x"}, "Resource not found"),
    ("resources/read", {"uri": "note:///1"}, "Resource not found"),
    ("prompts/get", {"name": "triage", "arguments": {}}, "Unknown prompt: triage"),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "triage"}, "argument": {"name": "who", "value": ""}},
        "Unknown prompt: triage",
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "note:///{id}"}, "argument": {"name": "id", "value": ""}},
        "Unknown resource: note:///{id}",
    ),
]


@ERAS
@pytest.mark.parametrize(("method", "params", "message"), USES)
async def test_hidden_primitive_has_the_error_of_an_unknown_one(
    folder: Path, era: str, method: str, params: JsonObject, message: str
) -> None:
    async with serve_folder(folder) as served:
        refused = await (await of(served, era, "admin")).request(method, params)
        assert refused["error"]["message"] == message
        name = params.get("name") or params.get("uri") or params["ref"].get("name") or params["ref"]["uri"]
        absent = _renamed(params, name, "nothing:///x")
        unknown = await (await of(served, era, "admin")).request(method, absent)
        assert _renamed(unknown["error"], "nothing:///x", name) == refused["error"]
        assert "result" in await (await of(served, era, "ops", "admin")).request(method, params)


def _renamed(value: Json, old: str, new: str) -> Json:
    if isinstance(value, dict):
        return {key: _renamed(member, old, new) for key, member in value.items()}
    return value.replace(old, new) if isinstance(value, str) else value


@ERAS
@pytest.mark.parametrize(
    ("method", "params"), [("tools/call", {"name": "step_up"}), ("resources/read", {"uri": "seen:///x"})]
)
async def test_visible_primitive_error_names_the_missing_scopes(
    folder: Path, era: str, method: str, params: JsonObject
) -> None:
    async with serve_folder(folder) as served:
        refused = (await (await of(served, era)).request(method, params))["error"]
        assert refused["data"] == {"requiredScopes": ["ops"]}
        assert "insufficient_scope" in refused["message"]
        assert "result" in await (await of(served, era, "ops")).request(method, params)


@ERAS
async def test_embedded_resources_use_the_scopes_of_the_caller(folder: Path, era: str) -> None:
    async with serve_folder(folder) as served:
        for method, name in (("tools/call", "embeds"), ("prompts/get", "reads")):
            refused = await (await of(served, era)).request(method, {"name": name})
            assert "error" in refused or refused["result"]["isError"] is True
            allowed = (await (await of(served, era, "ops")).request(method, {"name": name}))["result"]
            assert allowed.get("isError", False) is False


async def test_filtered_list_has_private_cache_scope(folder: Path) -> None:
    async with serve_folder(folder) as served:
        for scopes in ((), ("ops", "admin")):
            result = (await served.modern(identity=holder(*scopes)).request("tools/list", {}))["result"]
            assert result["cacheScope"] == "private"
        read = await served.modern(identity=holder("ops")).request("resources/read", {"uri": "single:///x"})
        assert read["result"]["cacheScope"] == "private"


async def test_cursor_is_invalid_in_another_view(folder: Path) -> None:
    (folder / "config.yaml").write_text(FILE + "server: {page_size: 1}\n")
    async with serve_folder(folder) as served:
        wide, narrow = served.modern(identity=holder("ops", "admin")), served.modern(identity=holder())
        cursor = (await wide.request("tools/list", {}))["result"]["nextCursor"]
        assert "result" in await wide.request("tools/list", {"cursor": cursor})
        assert "Stale cursor" in (await narrow.request("tools/list", {"cursor": cursor}))["error"]["message"]


async def test_changed_list_is_only_announced_to_callers_who_see_the_change(folder: Path) -> None:
    async with serve_folder(folder) as served:
        wide, narrow = await served.legacy(identity=holder("ops", "admin")), await served.legacy(identity=holder())
        for peer in (wide, narrow):
            await peer.notify("notifications/initialized", {})
        await served.edit("Not for all.", "Still not for all.")
        assert waiting(wide) == ["notifications/tools/list_changed"]
        assert waiting(narrow) == []
        await served.edit("For all.", "Still for all.")
        assert waiting(narrow) == ["notifications/tools/list_changed"]
        assert waiting(wide) == ["notifications/tools/list_changed"]


async def test_removed_access_is_announced_to_callers_who_lose_it(folder: Path) -> None:
    async with serve_folder(folder) as served:
        peers = [await served.legacy(identity=holder(*scopes)) for scopes in ((), ("ops",), ("ops", "admin"))]
        for peer in peers:
            await peer.notify("notifications/initialized", {})
        await served.edit("{scopes: [ops, admin]}", "{scopes: [ops]}")
        assert list(map(waiting, peers)) == [[], ["notifications/tools/list_changed"], []]


async def test_step_up_in_a_session_announces_new_tools(folder: Path) -> None:
    async with serve_folder(folder) as served:
        peer = await served.legacy(identity=holder())
        await peer.notify("notifications/initialized", {})
        assert "secret" not in await listed(peer, "tools")
        peer.caller = type(peer.caller)(binding=peer.caller.binding, identity=holder("ops", "admin"))
        assert "secret" in await listed(peer, "tools")
        assert set(waiting(peer)) == {
            f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts")
        }


async def test_subscription_only_notifies_of_readable_resources(folder: Path) -> None:
    async with serve_folder(folder) as served:
        notifier = served.dispatcher.notifier
        with (
            notifier.listen(frozenset(), frozenset({"single:///x"}), scopes=frozenset({"ops"})) as able,
            notifier.listen(frozenset(), frozenset({"single:///x"}), scopes=frozenset()) as unable,
        ):
            notifier.resource_updated("single:///x")
            assert (len(able.outbox.messages), len(unable.outbox.messages)) == (1, 0)


def waiting(peer: LegacyPeer) -> list[str]:
    """Take the queued messages of a session, and return their methods."""
    methods = [message["method"] for message in peer.session.outbox.messages.values()]
    peer.session.outbox.messages.clear()
    return methods


READER: Final = '''
from gateway.plugin import Context, SyncContext


async def on_loop(context: Context) -> str:
    """Read."""
    return (await context.read_resource("seen:///x"))[0]["text"]


def in_thread(context: SyncContext) -> str:
    """Read."""
    return context.read_resource("seen:///x")[0]["text"]


def completes(context: SyncContext) -> list[str]:
    return [in_thread(context)]
'''
READS: Final = """
plugins: [plugins]
tools:
  on_loop: {python: "reading:on_loop"}
  in_thread: {python: "reading:in_thread"}
resources:
  seen: {uri: "seen:///x", text: "x", access: {scopes: [ops], visible: true}}
  reads: {uri: "reads:///x", python: "reading:on_loop"}
prompts:
  reads: {python: "reading:in_thread"}
  completes: {messages: [{user: "{{ who }}"}], arguments: {who: {complete: {python: "reading:completes"}}}}
"""


@ERAS
async def test_missing_scope_in_a_function_is_a_scope_error(tmp_path: Path, era: str) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "reading.py").write_text(READER)
    (tmp_path / "config.yaml").write_text(FILE.partition("tools:")[0] + READS)
    async with serve_folder(tmp_path) as served:
        with structlog.testing.capture_logs() as logged:
            for method, params in (
                ("tools/call", {"name": "on_loop"}),
                ("tools/call", {"name": "in_thread"}),
                ("resources/read", {"uri": "reads:///x"}),
                ("prompts/get", {"name": "reads"}),
            ):
                refused = await (await of(served, era)).request(method, params)
                assert refused["error"]["data"] == {"requiredScopes": ["ops"]}
                assert "result" in await (await of(served, era, "ops")).request(method, params)
            argument = {"ref": {"type": "ref/prompt", "name": "completes"}, "argument": {"name": "who", "value": ""}}
            for scopes, values in (((), []), (("ops",), ["x"])):
                completed = await (await of(served, era, *scopes)).request("completion/complete", argument)
                assert completed["result"]["completion"]["values"] == values
        assert [entry for entry in logged if entry["log_level"] == "error"] == []
