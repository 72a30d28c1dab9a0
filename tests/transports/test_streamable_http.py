"""Tests for Streamable HTTP in both eras."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import orjson
import pytest

from gateway.json_types import Json
from tests.messages import BOTH, initialize_request, legacy_request, modern_headers, modern_request
from tests.transports.http_server import RunningServer, call, http_server
from tests.waiting import until


@pytest.fixture
async def served() -> AsyncIterator[RunningServer]:
    async with http_server() as it:
        yield it


def in_session(session_id: str, **more: str) -> dict[str, str]:
    fields = {"Mcp-Session-Id": session_id, "Accept": BOTH, "Content-Type": "application/json"}
    return fields | {key.replace("_", "-"): value for key, value in more.items()}


def modern_call(tool: str, **meta: Json) -> tuple[dict[str, Json], dict[str, str]]:
    params = {"name": tool, "arguments": {}, "_meta": meta}
    headers = modern_headers("tools/call", params, Accept=BOTH, Content_Type="application/json")
    return modern_request("tools/call", params), headers


async def event(response: aiohttp.ClientResponse) -> Json:
    """Return the next message of a stream."""
    async with asyncio.timeout(20):
        while True:
            block = await response.content.readuntil(b"\n\n")
            if b"data: {" in block:
                return orjson.loads(block.partition(b"data: ")[2])


async def settled(of: RunningServer, *, streams: int = 0) -> None:
    """Wait until this number of streams is open."""
    await until(lambda: len(of.streams) == streams)


class TestAnswers:
    async def test_response_without_notifications_is_json_in_both_eras(self, served: RunningServer) -> None:
        body, headers = modern_call("echo")
        modern = await served.send(body, headers)
        legacy = await served.send(call("echo"), in_session(await served.initialize()))
        for answer in (modern, legacy):
            assert answer.headers["Content-Type"] == "application/json"
            assert answer.json["result"]["content"][0]["type"] == "text"
        assert "Mcp-Session-Id" not in modern.headers
        assert modern.headers["Server"] == "mcp-gateway"

    async def test_progress_makes_the_response_a_stream_in_both_eras(self, served: RunningServer) -> None:
        body, headers = modern_call("report", progressToken="t")
        modern = await served.send(body, headers)
        legacy = await served.send(call("report", token="t"), in_session(await served.initialize()))
        for answer in (modern, legacy):
            assert answer.headers["Content-Type"] == "text/event-stream"
            assert [message.get("method") for message in answer.events] == ["notifications/progress"] * 3 + [None]
            assert [message["params"]["progress"] for message in answer.events[:3]] == [1, 2, 3]
        assert "\nid:" not in modern.text
        assert not modern.text.startswith("id:")

    async def test_json_only_accept_gets_json_without_progress(self, served: RunningServer) -> None:
        body, headers = modern_call("report", progressToken="t")
        answer = await served.send(body, headers | {"Accept": "application/json"})
        assert answer.headers["Content-Type"] == "application/json"

    async def test_slow_response_becomes_a_stream_with_keep_alive(self) -> None:
        async with http_server(keepalive=0.02) as served:
            body, headers = modern_call("wait")
            async with served.client.post(served.url, json=body, headers=headers) as response:
                assert response.content_type == "text/event-stream"
                for _ in range(3):
                    assert await response.content.readuntil(b"\n\n") == b":\n\n"
                served.control.release.set()
                assert (await event(response))["result"]["content"][0]["text"] == "released"


class TestBodies:
    async def test_body_is_read_up_to_the_limit(self) -> None:
        body = orjson.dumps(legacy_request("ping"))
        async with http_server(max_body=len(body)) as served:
            assert (await served.send(body, in_session("unknown"))).status == 404
            refused = await served.send(body + b" ", in_session("unknown"))
            assert refused.status == 413
            assert "listen.max_body" in refused.json["error"]["message"]

    @pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
    async def test_other_content_types_are_415(self, served: RunningServer, media_type: str) -> None:
        answer = await served.send(initialize_request(), {"Content-Type": media_type})
        assert answer.status == 415
        assert len(served.sessions) == 0

    async def test_json_content_type_can_have_a_charset(self, served: RunningServer) -> None:
        answer = await served.send(initialize_request(), {"Content-Type": "Application/JSON; charset=utf-8"})
        assert answer.status == 200

    async def test_accept_without_a_supported_type_is_406(self, served: RunningServer) -> None:
        assert (await served.send(initialize_request(), {"Accept": "text/html"})).status == 406
        assert len(served.sessions) == 0


class TestDisconnects:
    async def test_modern_disconnect_of_a_stream_cancels_the_call(self, served: RunningServer) -> None:
        body, headers = modern_call("flood", progressToken="t")
        async with served.client.post(served.url, json=body, headers=headers) as response:
            await event(response)
            response.close()
        await until(served.control.cancelled.is_set)


class TestCancellation:
    async def test_one_session_cannot_cancel_the_calls_of_another(self, served: RunningServer) -> None:
        mine, other = in_session(await served.initialize()), in_session(await served.initialize())
        request = asyncio.create_task(served.send(call("wait"), mine))
        await until(served.control.started.is_set)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        await served.send(cancel, other)
        served.control.release.set()
        assert (await request).json["result"]["content"][0]["text"] == "released"


class TestSessions:
    async def test_deleting_a_session_cancels_its_calls(self, served: RunningServer) -> None:
        session_id = await served.initialize()
        headers = in_session(session_id)
        slow = asyncio.create_task(served.send(call("wait"), headers))
        stream = await served.client.get(served.url, headers=headers)
        await until(served.control.started.is_set)
        assert (await served.send(None, {"Mcp-Session-Id": session_id}, method="DELETE")).status == 204
        await until(served.control.cancelled.is_set)
        assert (await slow).status == 404
        assert (await stream.content.read()).endswith(b"-0\nretry: 3000\ndata: \n\n")
        assert (await served.send(call("echo"), headers)).status == 404
        assert len(served.sessions) == 0
        assert len(served.streams) == 0

    async def test_session_that_ends_before_its_call_starts_logs_no_warning(self, served: RunningServer) -> None:
        session_id = await served.initialize()
        live = served.sessions.served_here(session_id)
        assert live is not None
        slow = asyncio.create_task(served.send(call("wait"), in_session(session_id)))
        async with asyncio.timeout(20):
            while not live.tasks:  # check in each turn of the loop, before the task's first step
                await asyncio.sleep(0)
        served.sessions.end(session_id)
        assert (await slow).status == 404
        assert not served.control.started.is_set()

    async def test_idle_session_expires_and_a_used_one_does_not(self) -> None:
        async with http_server(session_ttl=0.2) as served:
            idle, used, streaming = [await served.initialize() for _ in range(3)]
            async with served.client.get(served.url, headers=in_session(streaming)) as stream:
                async with asyncio.timeout(10):
                    while len(served.sessions) > 2:
                        assert (await served.send(legacy_request("ping"), in_session(used))).status == 200
                assert (await served.send(legacy_request("ping"), in_session(idle))).status == 404
                assert (await served.send(legacy_request("ping"), in_session(streaming))).status == 200
                assert stream.status == 200

    async def test_bad_requests_make_no_session(self, served: RunningServer) -> None:
        for body in (b"", b"{", b"[]", orjson.dumps(legacy_request("tools/list"))):
            for headers in ({}, {"Mcp-Session-Id": "x"}, {"MCP-Protocol-Version": "2026-07-28"}):
                assert (await served.send(body, headers)).status >= 400
        assert len(served.sessions) == 0


class TestStreams:
    async def test_stream_ends_with_its_connection(self, served: RunningServer) -> None:
        session_id = await served.initialize()
        stream = await served.client.get(served.url, headers=in_session(session_id))
        await settled(served, streams=1)
        assert stream.headers["Connection"] == "close"
        assert "Transfer-Encoding" not in stream.headers
        served.sessions.end_streams()
        assert (await stream.content.read()).endswith(b"\n\n")

    async def test_only_the_newest_get_stream_gets_a_message(self, served: RunningServer) -> None:
        session_id = await served.initialize()
        older = await served.client.get(served.url, headers=in_session(session_id))
        newer = await served.client.get(served.url, headers=in_session(session_id))
        await settled(served, streams=2)
        served.dispatcher.notifier.list_changed("tools")
        assert (await event(newer))["method"] == "notifications/tools/list_changed"
        newer.close()
        await settled(served, streams=1)
        served.dispatcher.notifier.list_changed("prompts")
        assert (await event(older))["method"] == "notifications/prompts/list_changed"
        older.close()
        await settled(served)

    async def test_open_stream_gets_keep_alive_events(self) -> None:
        async with http_server(keepalive=0.02) as served:
            session_id = await served.initialize()
            async with served.client.get(served.url, headers=in_session(session_id)) as stream:
                assert stream.headers["X-Accel-Buffering"] == "no"
                async with asyncio.timeout(20):
                    await stream.content.readuntil(b"\n\n")
                    for _ in range(4):
                        assert await stream.content.readuntil(b"\n\n") == b":\n\n"

    async def test_stream_limit_counts_only_open_streams(self) -> None:
        async with http_server(stream_limit=1) as served:
            headers = in_session(await served.initialize())
            stream = await served.client.get(served.url, headers=headers)
            refused = await served.send(None, headers, method="GET")
            assert refused.status == 503
            assert "limits.streams" in refused.json["error"]["message"]
            body = modern_request("subscriptions/listen", {"notifications": {}})
            assert (await served.send(body, modern_headers("subscriptions/listen", {}))).status == 503
            stream.close()
            await settled(served)
            async with served.client.get(served.url, headers=headers) as again:
                assert again.status == 200

    async def test_get_requires_an_accept_of_event_streams(self, served: RunningServer) -> None:
        headers = in_session(await served.initialize(), Accept="application/json")
        refused = await served.send(None, headers, method="GET")
        assert (refused.status, refused.json["error"]["message"]) == (406, "Accept must allow text/event-stream")

    async def test_subscription_requires_an_accept_of_event_streams(self, served: RunningServer) -> None:
        body = modern_request("subscriptions/listen", {"notifications": {}})
        headers = modern_headers("subscriptions/listen", {}, Accept="application/json")
        refused = await served.send(body, headers)
        assert (refused.status, refused.json["error"]["message"]) == (406, "Accept must allow text/event-stream")


class TestDraining:
    async def test_draining_finishes_calls_and_opens_no_stream(self, served: RunningServer) -> None:
        headers = in_session(await served.initialize())
        legacy = asyncio.create_task(served.send(call("wait"), headers))
        body, modern_fields = modern_call("wait")
        modern = asyncio.create_task(served.send(body, modern_fields))
        stream = await served.client.get(served.url, headers=headers)
        await until(lambda: served.dispatcher.concurrency.running >= 2)
        draining = asyncio.create_task(served.mcp.drain(10))
        assert (await stream.content.read()).endswith(b"-0\nretry: 3000\ndata: \n\n")
        late = await served.send(call("echo", request_id=2, text="late"), headers)
        assert late.json["result"]["content"][0]["text"] == "late"
        listen = modern_request("subscriptions/listen", {"notifications": {}})
        for refused in (
            await served.send(initialize_request()),
            await served.send(None, headers, method="GET"),
            await served.send(listen, modern_headers("subscriptions/listen", {})),
        ):
            assert (refused.status, refused.headers["Connection"]) == (503, "close")
        served.control.release.set()
        assert (await legacy).json["result"]["content"][0]["text"] == "released"
        assert (await modern).json["result"]["content"][0]["text"] == "released"
        async with asyncio.timeout(20):
            await draining

    async def test_call_can_be_cancelled_during_the_drain(self, served: RunningServer) -> None:
        headers = in_session(await served.initialize())
        request = asyncio.create_task(served.send(call("wait"), headers))
        await until(served.control.started.is_set)
        draining = asyncio.create_task(served.mcp.drain(10))
        await asyncio.sleep(0)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert (await served.send(cancel, headers)).status == 202
        async with asyncio.timeout(20):
            await draining
        assert (await request).status == 202

    async def test_call_longer_than_the_drain_is_cancelled_with_an_error(self, served: RunningServer) -> None:
        body, headers = modern_call("wait")
        modern = asyncio.create_task(served.send(body, headers))
        await until(served.control.started.is_set)
        async with asyncio.timeout(20):
            await served.mcp.drain(0.01)
        await until(served.control.cancelled.is_set)
        answer = await modern
        assert (answer.status, answer.json["id"], answer.json["error"]["code"]) == (503, body["id"], -32603)

    async def test_stream_longer_than_the_drain_ends_with_an_error(self, served: RunningServer) -> None:
        body, headers = modern_call("obey", progressToken="t")
        modern = asyncio.create_task(served.send(body, headers))
        await until(served.control.started.is_set)
        served.control.orders.put_nowait("report")
        async with asyncio.timeout(20):
            while not served.control.orders.empty():
                await asyncio.sleep(0)
            await served.mcp.drain(0.1)
        *_, last = (await modern).events
        assert (last["id"], last["error"]["code"]) == (body["id"], -32603)


async def test_many_calls_leak_nothing(served: RunningServer) -> None:
    headers = in_session(await served.initialize(), Connection="close")
    await served.send(call("echo"), headers)
    before = asyncio.all_tasks()
    for _ in range(20):
        body, fields = modern_call("report", progressToken="t")
        await asyncio.gather(
            served.send(body, fields | {"Connection": "close"}), served.send(call("echo", request_id=1), headers)
        )
    await until(lambda: not asyncio.all_tasks() - before)
    assert served.dispatcher.concurrency.running == 0
    assert len(served.sessions) == 1
