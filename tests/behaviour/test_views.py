"""Views: lists, calls and notifications at `/mcp/<view>`."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
import pytest
from yarl import URL

from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
from gateway.errors import ConfigError
from tests.authorization_server import authorization_server
from tests.behaviour.inside import served_over_http
from tests.messages import BOTH, initialize_request, legacy_request, modern_headers, modern_request

SECONDS: Final = 20
FILE: Final = """
server: {{instructions: For everybody., page_size: 2}}
{auth}
tools:
  gh_issue: {{description: Reads an issue., tags: [support], content: [{{text: issue}}]}}
  gh_delete: {{description: Deletes., content: [{{text: deleted}}]}}
  ticket: {{description: A ticket., tags: [support], aliases: [case], content: [{{text: ticket}}]}}
  deploy: {{description: Deploys., content: [{{text: deployed}}]}}
  asks: {{description: Asks., confirm: "Sure?", content: [{{text: done}}]}}
resources:
  manual: {{uri: "doc://manual", text: The manual.}}
  faq: {{uri: "faq://all", tags: [support], text: The questions.}}
prompts:
  triage: {{description: Triage., messages: [{{user: {{resource: "doc://manual"}}}}]}}
  other: {{description: Other., messages: [{{user: Hello.}}]}}
views:
  support:
    include: {{tags: [support], tools: ["gh_*"], prompts: [triage]}}
    exclude: {{tools: ["*_delete*"]}}
    instructions: For support.
    {access}
  ops: {{include: {{tools: [deploy, asks, gh_*]}}}}
  all: {{exclude: {{tools: [deploy]}}}}
"""


class Client:
    """A client over HTTP, in either era."""

    def __init__(self, served: "Served", path: str, key: str | None = None) -> None:
        self.path = path
        self._served = served
        self._fields = {"Accept": BOTH} | ({} if key is None else {"Authorization": f"Bearer {key}"})

    async def answer(self, method: str, params: Mapping[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        params = dict(params or {})
        name = params.get("uri") or params.get("name")
        fields = {**modern_headers(method, params), **self._fields}
        if name is not None:
            fields["Mcp-Name"] = name
        return await self.post(modern_request(method, params), fields)

    async def result(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        status, body = await self.answer(method, params)
        assert status == 200, body
        found: dict[str, Any] = body["result"]
        return found

    async def names(self, kind: str) -> list[str]:
        """Return the names in a list, reading it page by page."""
        names: list[str] = []
        cursor = None
        member = "resourceTemplates" if kind == "resources/templates" else kind
        while True:
            page = await self.result(f"{kind}/list", {} if cursor is None else {"cursor": cursor})
            names += [each["name"] for each in page[member]]
            if (cursor := page.get("nextCursor")) is None:
                return names

    async def post(self, message: Any, fields: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        async with self._served.client.post(self._served.url(self.path), json=message, headers=fields) as response:
            text = await response.read()
            return response.status, orjson.loads(text) if text else {}

    async def initialize(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Open a session. Return the response to `initialize`, and the header fields of later requests."""
        url = self._served.url(self.path)
        async with self._served.client.post(url, json=initialize_request(), headers=self._fields) as response:
            assert response.status == 200, await response.text()
            result: dict[str, Any] = (await response.json())["result"]
            fields = {**self._fields, "Mcp-Session-Id": response.headers["Mcp-Session-Id"]}
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, fields)
        return result, fields


class Served:
    def __init__(self, config: Path, gateway: Gateway, client: aiohttp.ClientSession) -> None:
        self.client: Final = client
        self.config: Final = config
        self.gateway: Final = gateway

    def url(self, path: str) -> str:
        assert self.gateway.url is not None
        return self.gateway.url.removesuffix("/mcp") + path

    def at(self, path: str, key: str | None = None) -> Client:
        return Client(self, path, key)

    async def reload(self, text: str, key: str | None = None) -> None:
        self.config.write_text(text)
        fields = {} if key is None else {"Authorization": f"Bearer {key}"}
        async with self.client.post(self.url("/-/reload"), headers=fields) as response:
            assert response.status == 200, await response.text()

    @asynccontextmanager
    async def stream(self, client: Client, fields: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        fields = {**fields, "Accept": "text/event-stream"}
        async with self.client.get(self.url(client.path), headers=fields) as response:
            assert response.status == 200, await response.text()
            yield response

    @asynccontextmanager
    async def listening(self, client: Client) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a `subscriptions/listen` stream, and wait for the acknowledgement."""
        params = {"notifications": {"toolsListChanged": True}}
        fields = {**modern_headers("subscriptions/listen", params), "Accept": BOTH}
        body = modern_request("subscriptions/listen", params)
        async with self.client.post(self.url(client.path), json=body, headers=fields) as response:
            acknowledged = await next_message(response)
            assert acknowledged is not None
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
            yield response


async def next_message(response: aiohttp.ClientResponse) -> dict[str, Any] | None:
    """Return the next message of a stream, or None at its end, even in the middle of a message."""
    with suppress(aiohttp.ClientPayloadError):
        async for line in response.content:
            if line.startswith(b"data: {"):
                message: dict[str, Any] = orjson.loads(line[6:])
                return message
    return None


@asynccontextmanager
async def serving(folder: Path, text: str, **settings: Any) -> AsyncIterator[Served]:
    async with asyncio.timeout(SECONDS), served_over_http(folder, text, **settings) as (gateway, client):
        yield Served(folder / "config.yaml", gateway, client)


def file_with(*, auth: str = "", access: str = "") -> str:
    return FILE.format(auth=auth, access=access)


KEYS: Final = """
auth:
  api_keys:
    admin: {secret: admin-key-0123456789, scopes: ['gateway:admin', support]}
    helper: {secret: helper-key-0123456789, scopes: [support]}
    other: {secret: other-key-01234567890, scopes: [more]}
"""


async def test_view_serves_its_part_of_the_catalog(tmp_path: Path) -> None:
    async with serving(tmp_path, file_with()) as served:
        support, ops, everything, whole = (served.at(f"/mcp{path}") for path in ("/support", "/ops/", "/all", ""))
        assert await support.names("tools") == ["gh_issue", "ticket"]
        assert await support.names("prompts") == ["triage"]
        assert await support.names("resources") == ["faq"]
        assert await ops.names("tools") == ["gh_issue", "gh_delete", "deploy", "asks"]
        assert await ops.names("resources") == []
        assert await everything.names("tools") == ["gh_issue", "gh_delete", "ticket", "asks"]
        assert await everything.names("resources") == ["manual", "faq"]
        assert await whole.names("tools") == ["gh_issue", "gh_delete", "ticket", "deploy", "asks"]
        assert (await support.result("server/discover"))["instructions"] == "For support."
        assert (await ops.result("server/discover"))["instructions"] == "For everybody."


async def test_audit_log_names_the_view_of_a_call(tmp_path: Path) -> None:
    async with serving(tmp_path, file_with() + "audit: {file: audit.jsonl}\n") as served:
        for path in ("/mcp/support", "/mcp"):
            await served.at(path).answer("tools/call", {"name": "ticket", "arguments": {}})
    written = map(orjson.loads, (tmp_path / "audit.jsonl").read_bytes().splitlines())
    assert [each.get("view") for each in written if each["event"] == "call"] == ["support", None]


async def test_definition_outside_a_view_is_unknown_there(tmp_path: Path) -> None:
    async with serving(tmp_path, file_with()) as served:
        support = served.at("/mcp/support")
        assert (await support.result("tools/call", {"name": "ticket", "arguments": {}}))["content"][0][
            "text"
        ] == "ticket"
        assert (await support.result("tools/call", {"name": "case", "arguments": {}}))["content"][0]["text"] == "ticket"
        for name in ("deploy", "gh_delete", "nothing"):
            status, body = await support.answer("tools/call", {"name": name, "arguments": {}})
            assert (status, body["error"]["message"]) == (200, f"Unknown tool: {name}")
        _, body = await support.answer("resources/read", {"uri": "doc://manual"})
        assert body["error"]["message"] == "Resource not found"
        _, body = await support.answer("prompts/get", {"name": "other"})
        assert body["error"]["message"] == "Unknown prompt: other"


async def test_embedded_resource_of_a_prompt_is_not_limited_by_the_view(tmp_path: Path) -> None:
    async with serving(tmp_path, file_with()) as served:
        [message] = (await served.at("/mcp/support").result("prompts/get", {"name": "triage"}))["messages"]
        assert message["content"]["resource"]["text"] == "The manual."


@pytest.mark.parametrize(
    "path", ["/mcp/nobody", "/mcp/Support", "/mcp/support/x", "/mcp/%2e%2e", "/mcp/support%00", "/mcp/sup%70ort%2f"]
)
async def test_unknown_view_is_not_found(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path, file_with()) as served:
        client = served.at(path)
        fields = {**modern_headers("tools/list", {}), "Accept": BOTH}
        async with served.client.post(
            URL(served.url(client.path), encoded=True), json=modern_request("tools/list"), headers=fields
        ) as response:
            assert response.status == 404


async def test_session_is_only_valid_at_its_view(tmp_path: Path) -> None:
    async with serving(tmp_path, file_with()) as served:
        support, ops, whole = served.at("/mcp/support"), served.at("/mcp/ops"), served.at("/mcp")
        told, fields = await support.initialize()
        assert told["instructions"] == "For support."
        _, body = await support.post(legacy_request("tools/list"), fields)
        assert [tool["name"] for tool in body["result"]["tools"]] == ["gh_issue", "ticket"]
        _, of_whole = await whole.initialize()
        for other, theirs in ((ops, fields), (whole, fields), (support, of_whole)):
            status, _ = await other.post(legacy_request("tools/list"), theirs)
            assert status == 404
            async with served.client.get(
                served.url(other.path), headers={**theirs, "Accept": "text/event-stream"}
            ) as response:
                assert response.status == 404
            async with served.client.delete(served.url(other.path), headers=theirs) as response:
                assert response.status == 404
        status, _ = await support.post(legacy_request("ping"), fields)
        assert status == 200


async def test_cursors_and_states_are_only_valid_at_their_view(tmp_path: Path) -> None:
    both = file_with() + "  twin: {include: {tools: [deploy, asks, gh_*]}}\n"
    async with serving(tmp_path, both) as served:
        ops, twin, whole = served.at("/mcp/ops"), served.at("/mcp/twin"), served.at("/mcp")
        cursor = (await ops.result("tools/list"))["nextCursor"]
        await ops.result("tools/list", {"cursor": cursor})
        for other in (twin, whole):
            status, body = await other.answer("tools/list", {"cursor": cursor})
            assert (status, body["error"]["code"]) == (200, -32602)
        call = {
            "name": "asks",
            "arguments": {},
            "_meta": {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}},
        }
        asked = await ops.result("tools/call", call)
        [key] = asked["inputRequests"]
        retry = {
            **call,
            "requestState": asked["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {"confirm": True}}},
        }
        for other in (twin, whole):
            _, body = await other.answer("tools/call", retry)
            assert body["error"]["message"] == "`requestState` belongs to another call"
        assert (await ops.result("tools/call", retry))["content"][0]["text"] == "done"


async def test_view_can_require_scopes_and_grants_none(tmp_path: Path) -> None:
    text = file_with(auth=KEYS, access="access: {scopes: [support]}").replace(
        "tags: [support], aliases", "access: {scopes: [more]}, tags: [support], aliases"
    )
    async with serving(tmp_path, text) as served:
        helper = served.at("/mcp/support", "helper-key-0123456789")
        assert await helper.names("tools") == ["gh_issue"]
        assert (await helper.result("server/discover"))["cacheScope"] == "private"  # its instructions are not public
        assert (await served.at("/mcp", "helper-key-0123456789").result("server/discover"))["cacheScope"] == "public"
        status, _ = await served.at("/mcp/support", "other-key-01234567890").answer("tools/list")
        assert status == 404
        status, _ = await served.at("/mcp/support").answer("tools/list")
        assert status == 401
        assert "ticket" in await served.at("/mcp", "other-key-01234567890").names("tools")
        visible = text.replace("access: {scopes: [support]}", "access: {scopes: [support], visible: true}")
        await served.reload(visible, "admin-key-0123456789")
        status, _ = await served.at("/mcp/support", "other-key-01234567890").answer("tools/list")
        assert status == 403


async def test_changed_view_is_only_announced_to_its_clients(tmp_path: Path) -> None:
    async with serving(tmp_path, file_with()) as served:
        support, ops = served.at("/mcp/support"), served.at("/mcp/ops")
        _, of_support = await support.initialize()
        _, of_ops = await ops.initialize()
        async with served.stream(support, of_support) as at_support, served.stream(ops, of_ops) as at_ops:
            await served.reload(file_with().replace("prompts: [triage]", "prompts: [triage, other]"))
            message = await next_message(at_support)
            assert message is not None
            assert message["method"] == "notifications/prompts/list_changed"
            await served.reload(file_with().replace("tools: [deploy,", "tools: ["))
            message = await next_message(at_ops)
            assert message is not None
            assert message["method"] == "notifications/tools/list_changed"  # nothing was sent before
        assert await support.names("prompts") == ["triage"]


async def test_views_are_added_and_removed_by_reload(tmp_path: Path) -> None:
    async with serving(tmp_path, file_with()) as served:
        support, late = served.at("/mcp/support"), served.at("/mcp/late")
        _, fields = await support.initialize()
        status, _ = await late.answer("tools/list")
        assert status == 404
        without = file_with().partition("  support:\n")[0] + "  late: {include: {tools: [deploy]}}\n"
        async with served.stream(support, fields) as stream, served.listening(support) as subscription:
            await served.reload(without)
            assert await next_message(stream) is None
            ended = await next_message(subscription)
            assert ended is not None
            assert ended["result"]["resultType"] == "complete"
            assert ended["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1
            assert await next_message(subscription) is None
        assert await late.names("tools") == ["deploy"]
        for message, sent in ((legacy_request("tools/list"), fields), (initialize_request(), {"Accept": BOTH})):
            status, body = await support.post(message, sent)
            assert (status, body["error"]["message"]) == (404, "Unknown view")


async def test_http_sse_serves_views(tmp_path: Path) -> None:
    sse = {"Accept": "text/event-stream"}
    async with (
        serving(tmp_path, file_with()) as served,
        served.client.get(served.url("/sse/support"), headers=sse) as stream,
    ):
        endpoint = ""
        async for line in stream.content:
            if line.startswith(b"data: "):
                endpoint = line[6:].decode().strip()
                break
        assert endpoint.startswith("/messages/support?session_id=")
        async with served.client.post(
            served.url(endpoint.replace("/support", "")), json=initialize_request()
        ) as elsewhere:
            assert elsewhere.status == 404
        await served.client.post(served.url(endpoint), json=initialize_request())
        told = await next_message(stream)
        assert told is not None
        assert told["result"]["instructions"] == "For support."
        await served.client.post(served.url(endpoint), json=legacy_request("tools/list"))
        listed = await next_message(stream)
        assert listed is not None
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["gh_issue", "ticket"]


async def test_token_of_one_view_is_invalid_at_another(tmp_path: Path) -> None:
    async with authorization_server() as issuer:
        text = file_with(auth=f"auth: {{oauth: {{issuer: '{issuer.issuer}'}}}}", access="access: {scopes: [support]}")
        async with serving(tmp_path, text) as served:
            of_view = issuer.token(served.url("/mcp/support"), scope="support")
            of_whole = issuer.token(served.url("/mcp"), scope="support")
            assert await served.at("/mcp/support", of_view).names("prompts") == ["triage"]
            assert await served.at("/mcp/support", of_whole).names("prompts") == ["triage"]
            for path in ("/mcp", "/mcp/ops", "/sse", "/-/status"):
                async with served.client.get(
                    served.url(path), headers={"Authorization": f"Bearer {of_view}", "Accept": "text/event-stream"}
                ) as response:
                    assert response.status in {401, 403}, path
            status, _ = await served.at("/mcp/support", issuer.token(served.url("/mcp/nobody"))).answer("tools/list")
            assert status == 401


async def test_each_view_has_resource_metadata(tmp_path: Path) -> None:
    async with authorization_server() as issuer:
        text = file_with(auth=f"auth: {{oauth: {{issuer: '{issuer.issuer}'}}}}", access="access: {scopes: [support]}")
        async with serving(tmp_path, text) as served:
            async with served.client.post(served.url("/mcp/support"), json=initialize_request()) as response:
                challenge = response.headers["WWW-Authenticate"]
            url = served.url("/.well-known/oauth-protected-resource/mcp/support")
            assert challenge == f'Bearer scope="support", resource_metadata="{url}"'
            async with served.client.get(url) as response:
                document = await response.json()
            assert document["resource"] == served.url("/mcp/support")
            assert document["scopes_supported"] == ["support"]
            async with served.client.get(f"{url}x") as response:
                assert response.status == 404


async def test_unknown_view_in_memory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(file_with())
    settings = {"config": tmp_path / "config.yaml", "log_level": "error", "no_watch": True, "view": "suport"}
    async with Gateway(read_settings(settings)) as gateway:
        with pytest.raises(ConfigError, match="unknown view `suport`; did you mean `support`"):
            gateway.memory_client()


SEARCH: Final = """
  everything: {search: true, always: [help, tick*]}
  few: {include: {tools: [gh_*, asks]}, search: true}
"""
WITH_SEARCH: Final = {"tools:\n": "tools:\n  help: {description: Explains., content: [{text: Ask.}]}\n"}


def search_file(**changes: str) -> str:
    text = file_with(**changes) + SEARCH.lstrip("\n")
    for old, new in WITH_SEARCH.items():
        text = text.replace(old, new, 1)
    return text


def through(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": "call_tool", "arguments": {"name": name, "arguments": arguments}}


async def found_by(client: Client, query: str, **arguments: Any) -> list[str]:
    params = {"name": "search_tools", "arguments": {"query": query, **arguments}}
    result = await client.result("tools/call", params)
    assert result.get("isError") is not True, result
    tools: list[dict[str, Any]] = result["structuredContent"]["tools"]
    assert orjson.loads(result["content"][0]["text"]) == {"tools": tools}
    return [tool["name"] for tool in tools]


async def test_search_view_lists_two_tools_and_the_pinned_ones(tmp_path: Path) -> None:
    async with serving(tmp_path, search_file()) as served:
        everything, few = served.at("/mcp/everything"), served.at("/mcp/few")
        assert await everything.names("tools") == ["search_tools", "call_tool", "help", "ticket"]
        assert await everything.names("prompts") == ["triage", "other"]
        assert await few.names("tools") == ["search_tools", "call_tool"]


async def test_search_returns_full_definitions_of_the_view(tmp_path: Path) -> None:
    async with serving(tmp_path, search_file()) as served:
        everything, few = served.at("/mcp/everything"), served.at("/mcp/few")
        assert await found_by(everything, "read an issue") == ["gh_issue"]
        assert await found_by(everything, "ticket") == ["ticket"]
        assert await found_by(everything, "deploys deletes", limit=1) == ["deploy"]
        assert await found_by(few, "ticket") == []
        assert await found_by(everything, "search tools") == []
        params = {"name": "search_tools", "arguments": {"query": "issue"}}
        [tool] = (await everything.result("tools/call", params))["structuredContent"]["tools"]
        [listed] = [
            each for each in (await served.at("/mcp/all").result("tools/list"))["tools"] if each["name"] == "gh_issue"
        ]
        assert tool == listed
        for arguments in ({}, {"query": ""}, {"query": "x", "limit": 0}, {"query": "x", "limit": 51}):
            result = await everything.result("tools/call", {"name": "search_tools", "arguments": arguments})
            assert result["isError"] is True


async def test_tool_is_called_by_call_tool_or_its_name(tmp_path: Path) -> None:
    async with serving(tmp_path, search_file()) as served:
        everything, few = served.at("/mcp/everything"), served.at("/mcp/few")
        for params in (through("deploy"), {"name": "deploy", "arguments": {}}):
            assert (await everything.result("tools/call", params))["content"][0]["text"] == "deployed"
        as_text = {"name": "call_tool", "arguments": {"name": "deploy", "arguments": "{}"}}
        assert (await everything.result("tools/call", as_text))["content"][0]["text"] == "deployed"
        only_name = {"name": "call_tool", "arguments": {"name": "deploy"}}
        assert (await everything.result("tools/call", only_name))["content"][0]["text"] == "deployed"
        _, body = await few.answer("tools/call", through("deploy"))
        assert body["error"]["message"] == "Unknown tool: deploy"
        found = await everything.result("tools/call", through("search_tools", query="issue"))
        assert found["structuredContent"]["tools"][0]["name"] == "gh_issue"
        for arguments in (
            {},
            {"name": 7},
            {"name": "deploy", "arguments": []},
            {"name": "deploy", "arguments": "[]"},
            {"name": "deploy", "arguments": "{"},
            {"name": "deploy", "more": 1},
            {"name": "call_tool", "arguments": {"name": "deploy"}},
        ):
            result = await everything.result("tools/call", {"name": "call_tool", "arguments": arguments})
            assert result["isError"] is True
        unfit = await everything.result("tools/call", through("deploy", surplus=1))
        assert unfit["isError"] is True
        assert "accepts no arguments" in unfit["content"][0]["text"]


async def test_call_tool_arguments_as_text_have_the_depth_limit(tmp_path: Path) -> None:
    takes = "  takes: {description: Take it., input: {v: {type: object}}, content: taken}\n"
    file = search_file().replace("tools:\n", f"limits: {{request_depth: 12}}\ntools:\n{takes}", 1)
    async with serving(tmp_path, file) as served:
        everything = served.at("/mcp/everything")
        for depth, is_taken in ((6, True), (11, False), (200, False)):
            nested = '{"a":' * depth + "1" + "}" * depth
            for arguments in (f'{{"v":{nested}}}', {"v": nested}):
                params = {"name": "call_tool", "arguments": {"name": "takes", "arguments": arguments}}
                _, body = await everything.answer("tools/call", params)
                assert ("error" not in body and not body["result"].get("isError")) is is_taken
                assert is_taken or depth == 200 or "limits.request_depth" in str(body)


async def test_call_tool_error_names_the_called_tool(tmp_path: Path) -> None:
    async with serving(tmp_path, search_file()) as served:
        everything = served.at("/mcp/everything")
        for arguments, said in (
            ({"name": "deploy", "arguments": None}, "deployed"),
            ({"name": "call_tool"}, "`call_tool` cannot call itself"),
            ({"name": "deploy", "more": 1}, "/more is not a known argument"),
        ):
            result = await everything.result("tools/call", {"name": "call_tool", "arguments": arguments})
            assert said in result["content"][0]["text"]


async def test_only_search_views_have_call_tool(tmp_path: Path) -> None:
    async with serving(tmp_path, search_file()) as served:
        for path in ("/mcp", "/mcp/support"):
            for params in (through("ticket"), {"name": "search_tools", "arguments": {"query": "x"}}):
                _, body = await served.at(path).answer("tools/call", params)
                assert body["error"]["message"] == f"Unknown tool: {params['name']}"


async def test_call_tool_relays_questions(tmp_path: Path) -> None:
    async with serving(tmp_path, search_file()) as served:
        few = served.at("/mcp/few")
        call = {**through("asks"), "_meta": {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}}
        asked = await few.result("tools/call", call)
        [key] = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"confirm": True}}}
        retry = {**call, "requestState": asked["requestState"], "inputResponses": answers}
        assert (await few.result("tools/call", retry))["content"][0]["text"] == "done"


async def test_scopes_apply_to_search_and_call_tool(tmp_path: Path) -> None:
    text = search_file(auth=KEYS).replace("description: Deploys.", "description: Deploys., access: {scopes: [more]}")
    async with serving(tmp_path, text) as served:
        helper = served.at("/mcp/everything", "helper-key-0123456789")
        other = served.at("/mcp/everything", "other-key-01234567890")
        assert await found_by(helper, "deploy") == []
        assert await found_by(other, "deploy") == ["deploy"]
        _, body = await helper.answer("tools/call", through("deploy"))
        assert body["error"]["message"] == "Unknown tool: deploy"
        assert (await other.result("tools/call", through("deploy")))["content"][0]["text"] == "deployed"
        visible = text.replace("access: {scopes: [more]}", "access: {scopes: [more], visible: true}")
        await served.reload(visible, "admin-key-0123456789")
        assert await found_by(helper, "deploy") == ["deploy"]
        status, _ = await helper.answer("tools/call", through("deploy"))
        assert status == 403


async def test_calls_through_call_tool_are_counted_and_recorded_under_the_real_name(tmp_path: Path) -> None:
    text = search_file() + "audit: {file: audit.jsonl, arguments: full}\nlimits: {rate_limit: 1000/minute}\n"
    text = text.replace("description: Deploys.", "description: Deploys., rate_limit: 2/hour")
    async with serving(tmp_path, text) as served:
        everything = served.at("/mcp/everything")
        for _ in range(2):
            await everything.result("tools/call", through("deploy"))
        refused = await everything.result("tools/call", {"name": "deploy", "arguments": {}})
        assert refused["isError"] is True  # both kinds of calls share one limit
        await found_by(everything, "deploy")
        async with served.client.get(served.url("/metrics")) as response:
            metrics = await response.text()
    assert 'name="deploy"' in metrics
    assert 'name="search_tools"' in metrics
    assert 'name="call_tool"' not in metrics
    records = [orjson.loads(line) for line in (tmp_path / "audit.jsonl").read_bytes().splitlines()]
    named = [record.get("name") for record in records if record.get("method") == "tools/call"]
    assert named == ["deploy", "deploy", "deploy", "search_tools"]


async def test_search_view_list_changes_only_with_listed_tools(tmp_path: Path) -> None:
    async with serving(tmp_path, search_file()) as served:
        everything = served.at("/mcp/everything")
        _, fields = await everything.initialize()
        async with served.stream(everything, fields) as stream:
            await served.reload(search_file().replace("Deploys.", "Deploys it."))
            assert await found_by(everything, "deploys it") == ["deploy"]
            await served.reload(search_file().replace("Explains.", "Explains it."))
            message = await next_message(stream)
            assert message is not None
            assert message["method"] == "notifications/tools/list_changed"
            await served.reload(search_file().replace("Explains.", "Explains it.").replace("Hello.", "Good day."))
            await served.reload(search_file().replace("Explains.", "Explains it.").replace("Other.", "Others."))
            message = await next_message(stream)
            assert message is not None
            assert message["method"] == "notifications/prompts/list_changed"  # the change was announced once
