"""Tests for resuming streams."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

import aiohttp
import orjson
import pytest

from gateway.json_types import Json
from gateway.transports.sse.session_streams import ReplayBounds
from gateway.transports.streamable_http.live_session import LiveSession
from tests.captured_logs import capture_logs
from tests.messages import legacy_request
from tests.requirements import requirement
from tests.transports.http_server import RunningServer, call, http_server
from tests.transports.test_streamable_http import in_session, settled
from tests.waiting import until

REVISIONS = ("2025-03-26", "2025-06-18", "2025-11-25")
SECONDS = 10


@pytest.fixture
async def served() -> AsyncIterator[RunningServer]:
    async with http_server() as it:
        yield it


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event of a stream."""

    fields: dict[str, str]

    @classmethod
    def read(cls, block: bytes) -> Self:
        pairs = (line.partition(":") for line in block.decode().splitlines())
        return cls(fields={name: value.removeprefix(" ") for name, _, value in pairs if name})

    @property
    def id(self) -> str:
        return self.fields["id"]

    @property
    def number(self) -> str:
        """The event's number in its stream."""
        return self.id.split("-")[2]

    @property
    def message(self) -> Json:
        return orjson.loads(self.fields["data"])

    @property
    def step(self) -> int:
        return int(self.message["params"]["progress"])

    @property
    def text(self) -> str:
        return str(self.message["result"]["content"][0]["text"])


def stream_of(event_id: str) -> str:
    return event_id.split("-")[1]


async def next_event(response: aiohttp.ClientResponse) -> Event:
    async with asyncio.timeout(SECONDS):
        while not (event := Event.read(await response.content.readuntil(b"\n\n"))).fields:
            pass
        return event


async def next_message(response: aiohttp.ClientResponse) -> Event:
    while not (event := await next_event(response)).fields.get("data"):
        pass
    return event


async def rest(response: aiohttp.ClientResponse) -> list[Event]:
    """Return the remaining events."""
    async with asyncio.timeout(SECONDS):
        blocks = (await response.read()).split(b"\n\n")
    return [event for event in map(Event.read, blocks) if event.fields]


@dataclass(frozen=True, kw_only=True)
class Client:
    """A session with calls of the tool `obey`."""

    http_server: RunningServer
    headers: dict[str, str]

    @classmethod
    async def of(cls, of: RunningServer, revision: str = REVISIONS[-1], **capabilities: Json) -> Self:
        return cls(http_server=of, headers=in_session(await of.initialize(revision, **capabilities)))

    @property
    def live(self) -> LiveSession:
        return self.http_server.sessions._live[self.headers["Mcp-Session-Id"]]

    async def call(
        self, *orders: str, tool: str = "obey", request_id: int = 1, **headers: str
    ) -> aiohttp.ClientResponse:
        """Call a tool with its first orders. The first event opens the response."""
        for order in orders:
            self.http_server.control.orders.put_nowait(order)
        body = call(tool, token="t", request_id=request_id)
        return await self.http_server.client.post(self.http_server.url, json=body, headers={**self.headers, **headers})

    def get(self, after: str | None = None) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        headers = self.headers if after is None else {**self.headers, "Last-Event-ID": after}
        return self.http_server.client.get(self.http_server.url, headers=headers)

    async def orders(self, *orders: str) -> None:
        """Send orders and wait until the last one is read."""
        for order in orders:
            self.http_server.control.orders.put_nowait(order)
        await until(self.http_server.control.orders.empty)

    async def cut(self, response: aiohttp.ClientResponse) -> None:
        """Abort a connection and wait until the server notices."""
        response.close()
        await settled(self.http_server)
        assert (await self.http_server.send(legacy_request("ping", request_id="ping"), self.headers)).status == 200


class TestIds:
    @requirement("http/event-ids")
    @pytest.mark.parametrize("revision", REVISIONS)
    async def test_streams_start_with_a_priming_event_since_2025_11_25(
        self, served: RunningServer, revision: str
    ) -> None:
        client = await Client.of(served, revision)
        response = await client.call("report", "done")
        async with client.get() as stream:
            served.dispatcher.notifier.list_changed("tools")
            firsts = await next_event(response), await next_event(stream)
        if revision == "2025-11-25":
            assert [first.fields["data"] for first in firsts] == ["", ""]
        else:
            assert [first.message["method"] for first in firsts] == [
                "notifications/progress",
                "notifications/tools/list_changed",
            ]

    @requirement("http/event-ids")
    async def test_event_ids_are_unique_and_contain_the_stream(self, served: RunningServer) -> None:
        client = await Client.of(served)
        ids = []
        for _ in range(2):
            response = await client.call("report", "report", "done")
            ids.append([event.id for event in await rest(response)])
        assert len({*ids[0], *ids[1]}) == 8
        streams = [{stream_of(each) for each in of_one} for of_one in ids]
        assert [len(stream) for stream in streams] == [1, 1]
        assert streams[0] != streams[1]

    @requirement("http/event-ids")
    async def test_json_response_stores_no_events(self, served: RunningServer) -> None:
        client = await Client.of(served)
        response = await client.call(tool="echo")
        assert response.content_type == "application/json"
        await response.read()
        assert served.sessions.replay_quota.used == 0

    @requirement("http/event-ids")
    async def test_stream_only_client_gets_event_ids(self, served: RunningServer) -> None:
        client = await Client.of(served)
        primed, answer = await rest(await client.call(tool="echo", Accept="text/event-stream"))
        assert stream_of(answer.id) == stream_of(primed.id)


class TestComingBack:
    @requirement("http/resume")
    @pytest.mark.parametrize("revision", REVISIONS)
    async def test_response_is_delivered_after_a_reconnect(self, served: RunningServer, revision: str) -> None:
        client = await Client.of(served, revision)
        response = await client.call("report")
        first = await next_message(response)
        await client.cut(response)
        await client.orders("report", "report", "done")
        async with client.get(after=first.id) as again:
            two, three, answer = await rest(again)
        assert (first.step, two.step, three.step, answer.text) == (1, 2, 3, "done")

    @requirement("http/resume")
    async def test_resumed_stream_continues_live_until_the_response(self, served: RunningServer) -> None:
        client = await Client.of(served)
        response = await client.call("report")
        first = await next_message(response)
        await client.cut(response)
        await client.orders("report")
        async with client.get(after=first.id) as again:
            assert (await next_message(again)).step == 2
            await client.orders("report", "report")
            assert [(await next_message(again)).step for _ in range(2)] == [3, 4]
            await client.orders("done")
            assert [event.text for event in await rest(again)] == ["done"]

    @requirement("http/resume")
    async def test_stream_resumes_from_the_priming_event(self, served: RunningServer) -> None:
        client = await Client.of(served)
        response = await client.call(tool="wait")
        primed = await next_event(response)
        await client.cut(response)
        served.control.release.set()
        await until(lambda: served.control.finished)
        async with client.get(after=primed.id) as again:
            assert [event.text for event in await rest(again)] == ["released"]

    @requirement("http/resume")
    async def test_stream_can_be_resumed_repeatedly(self, served: RunningServer) -> None:
        client = await Client.of(served)
        response = await client.call("report", "report")
        first = await next_message(response)
        await client.cut(response)
        for _ in range(3):
            async with client.get(after=first.id) as again:
                assert (await next_message(again)).step == 2
            await settled(served)
        await client.orders("done")
        for _ in range(2):
            async with client.get(after=first.id) as again:
                assert [event.number for event in await rest(again)] == ["2", "3"]

    @requirement("http/resume")
    async def test_only_the_named_stream_is_replayed(self, served: RunningServer) -> None:
        client = await Client.of(served)
        one, other = await client.call(tool="report"), await client.call(tool="report")
        first, *_ = await rest(one)
        await rest(other)
        async with client.get(after=first.id) as again:
            replayed = await rest(again)
        assert {stream_of(event.id) for event in replayed} == {stream_of(first.id)}
        assert len(replayed) == 4

    @requirement("http/resume")
    async def test_resuming_replaces_a_connection_that_seems_alive(self, served: RunningServer) -> None:
        client = await Client.of(served)
        response = await client.call("report")
        first = await next_message(response)
        async with client.get(after=first.id) as again:
            await client.orders("report", "done")
            assert [event.fields.get("event") for event in await rest(again)] == ["message", "message"]
            with pytest.raises(aiohttp.ClientError):
                await rest(response)

    @requirement("http/resume")
    async def test_get_streams_are_resumed_too(self, served: RunningServer) -> None:
        client = await Client.of(served)
        async with client.get() as stream:
            primed = await next_event(stream)
            served.dispatcher.notifier.list_changed("tools")
            tools = await next_message(stream)
        await settled(served)
        served.dispatcher.notifier.list_changed("prompts")
        async with client.get(after=primed.id) as again:
            assert (await next_message(again)).id == tools.id
            assert (await next_message(again)).message["method"] == "notifications/prompts/list_changed"
            served.dispatcher.notifier.list_changed("resources")
            resources = await next_message(again)
        assert [event.number for event in (tools, resources)] == ["1", "3"]

    @requirement("http/resume")
    async def test_two_streams_have_separate_ids_and_replays(self, served: RunningServer) -> None:
        client = await Client.of(served)
        async with client.get() as older, client.get() as newer:
            primed = await next_event(older), await next_event(newer)
            await settled(served, streams=2)
            served.dispatcher.notifier.list_changed("tools")
            await next_message(newer)
        await settled(served)
        async with client.get(after=primed[0].id) as again, client.get(after=primed[1].id) as other:
            assert (await next_message(other)).message["method"] == "notifications/tools/list_changed"
            await settled(served, streams=2)
            served.dispatcher.notifier.list_changed("prompts")
            later = await next_message(other)
            assert later.message["method"] == "notifications/prompts/list_changed"
            other.close()
            await settled(served, streams=1)
            served.dispatcher.notifier.list_changed("resources")
            assert (await next_message(again)).message["method"] == "notifications/resources/list_changed"

    @requirement("http/resume")
    async def test_call_cancelled_while_disconnected_ends_its_stream(self, served: RunningServer) -> None:
        client = await Client.of(served)
        response = await client.call(tool="wait")
        primed = await next_event(response)
        await client.cut(response)
        async with client.get(after=primed.id) as again:
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
            assert (await served.send(cancel, client.headers)).status == 202
            assert await rest(again) == []


class TestWrongIds:
    @requirement("http/foreign-event-ids")
    async def test_expired_event_id_gets_a_new_stream(self) -> None:
        async with http_server(replay=ReplayBounds(age=timedelta(seconds=0.02))) as served:
            client = await Client.of(served)
            first, *_ = await rest(await client.call(tool="report"))
            await until(lambda: served.sessions.replay_quota.used == 0)
            with capture_logs() as logs:
                async with client.get(after=first.id) as stream:
                    assert stream_of((await next_event(stream)).id) != stream_of(first.id)
                    served.dispatcher.notifier.list_changed("tools")
                    assert (await next_message(stream)).message["method"] == "notifications/tools/list_changed"
        assert [entry["event"] for entry in logs] == ["stream not resumed: its events are no longer kept"]

    @requirement("http/foreign-event-ids")
    async def test_event_id_of_a_finished_stream_gets_a_new_stream(self, served: RunningServer) -> None:
        client = await Client.of(served)
        *_, answer = await rest(await client.call(tool="report"))
        async with client.get(after=answer.id) as stream:
            assert stream_of((await next_event(stream)).id) != stream_of(answer.id)

    @requirement("http/foreign-event-ids")
    async def test_empty_event_id_is_ignored(self, served: RunningServer) -> None:
        client = await Client.of(served)
        async with client.get(after="") as stream:
            assert (await next_event(stream)).fields["data"] == ""


class TestBounds:
    @requirement("http/replay-bounds")
    async def test_unread_stream_stores_only_the_newest_events(self) -> None:
        async with http_server(replay=ReplayBounds(stream_events=3)) as served:
            client = await Client.of(served)
            response = await client.call("report")
            primed = await next_event(response)
            await client.cut(response)
            await client.orders(*["report"] * 5, "done")
            async with client.get(after=primed.id) as again:
                *steps, answer = await rest(again)
            assert [event.step for event in steps] == [5, 6]
            assert answer.text == "done"

    @requirement("http/replay-bounds")
    async def test_response_too_large_to_keep_is_replaced_by_an_error(self) -> None:
        async with http_server(replay=ReplayBounds(stream_bytes=1000)) as served:
            client = await Client.of(served)
            response = await client.call("report", "x" * 2000)
            first, *_, whole = await rest(response)
            assert whole.text == "x" * 2000
            async with client.get(after=first.id) as again:
                *_, answer = await rest(again)
            assert answer.message["id"] == 1
            assert "too large" in answer.message["error"]["message"]
            assert answer.id == whole.id

    @requirement("http/replay-bounds")
    async def test_unread_streams_use_bounded_memory_and_are_dropped(
        self,
    ) -> None:
        bounds = ReplayBounds(stream_bytes=500_000)
        with capture_logs() as logs:
            async with http_server(write_timeout=0.1, replay=bounds) as served:
                client = await Client.of(served)
                response = await client.call(tool="flood")
                await until(lambda: "slow reader dropped" in [entry["event"] for entry in logs])
                assert not served.control.cancelled.is_set()
                assert 0 < served.sessions.replay_quota.used <= bounds.stream_bytes
                response.close()
        assert [entry["path"] for entry in logs if entry["event"] == "slow reader dropped"] == ["/mcp"]

    @requirement("http/replay-bounds")
    async def test_unread_get_stream_is_closed_and_its_events_are_stored(self) -> None:
        with capture_logs() as logs:
            async with http_server(write_timeout=0.1) as served:
                client = await Client.of(served)
                async with client.get() as stream:
                    primed = await next_event(stream)
                    for number in range(2000):
                        client.live.session.outbox.put(str(number), {"method": "x" * 50_000})
                        await asyncio.sleep(0)
                        if any(entry["event"] == "slow reader dropped" for entry in logs):
                            break
                    await settled(served)
                async with client.get(after=primed.id) as again:
                    assert (await next_message(again)).message["method"] == "x" * 50_000
        assert "slow reader dropped" in [entry["event"] for entry in logs]

    @requirement("http/replay-bounds")
    async def test_abandoned_calls_leave_no_memory_after_expiry(self) -> None:
        async with http_server(replay=ReplayBounds(age=timedelta(seconds=0.1))) as served:
            client = await Client.of(served)
            before = asyncio.all_tasks()
            for _ in range(20):
                response = await client.call("report")
                await next_message(response)
                await client.cut(response)
                await client.orders("done")
            await until(lambda: served.sessions.replay_quota.used == 0)
            assert len(client.live.streams) == 0
            await until(lambda: not {task for task in asyncio.all_tasks() - before if "request of" in task.get_name()})

    @requirement("http/replay-bounds")
    async def test_deleting_a_busy_session_ends_everything(self, served: RunningServer) -> None:
        client = await Client.of(served)
        direct, broken = await client.call(tool="wait"), await client.call("report", request_id=2)
        first = await next_message(broken)
        await client.cut(broken)
        async with client.get() as stream, client.get(after=first.id) as resumed:
            await settled(served, streams=2)
            assert (await served.send(None, client.headers, method="DELETE")).status == 204
            await until(served.control.cancelled.is_set)
            for ended in (direct, resumed):
                assert "The session ended" in (await rest(ended))[-1].message["error"]["message"]
            assert all(not event.fields["data"] for event in await rest(stream))
        assert served.sessions.replay_quota.used == 0
        answer = await served.send(None, {**client.headers, "Last-Event-ID": first.id}, method="GET")
        assert answer.status == 404


class TestClosingOnPurpose:
    @requirement("http/polling")
    async def test_call_closes_its_stream_and_the_client_polls(self, served: RunningServer) -> None:
        client = await Client.of(served)
        response = await client.call("close")
        primed, retry = await rest(response)
        assert (primed.fields["data"], retry.fields) == ("", {"retry": "20"})
        await client.orders("report")
        async with client.get(after=primed.id) as again:
            reported = await next_message(again)
            assert reported.step == 1
            await client.orders("close")
            assert [event.fields for event in await rest(again)] == [{"retry": "20"}]
        await client.orders("done")
        async with client.get(after=reported.id) as last:
            assert [event.text for event in await rest(last)] == ["done"]

    @requirement("http/polling")
    @pytest.mark.parametrize("revision", REVISIONS[:2])
    async def test_older_clients_keep_their_stream(self, served: RunningServer, revision: str) -> None:
        client = await Client.of(served, revision)
        response = await client.call("report", "close", "report", "done")
        assert [event.fields["event"] for event in await rest(response)] == ["message"] * 3

    @requirement("http/polling")
    async def test_json_only_client_is_not_affected_by_close_stream(self, served: RunningServer) -> None:
        client = await Client.of(served)
        response = await client.call("close", "done", Accept="application/json")
        assert response.content_type == "application/json"
        assert (await response.json())["result"]["content"][0]["text"] == "done"

    @requirement("http/polling")
    async def test_closing_a_closed_stream_does_nothing(self, served: RunningServer) -> None:
        client = await Client.of(served)
        response = await client.call("close", "close", "done")
        primed, *_ = await rest(response)
        async with client.get(after=primed.id) as again:
            assert [event.text for event in await rest(again)] == ["done"]


class TestQuestions:
    @requirement("http/questions-wait")
    async def test_question_waits_for_a_reconnect(self, served: RunningServer) -> None:
        client = await Client.of(served, elicitation={})
        response = await client.call("report")
        first = await next_message(response)
        await client.cut(response)
        await client.orders("ask")
        async with client.get(after=first.id) as again:
            question = await next_message(again)
            assert question.message["method"] == "elicitation/create"
            result = {"action": "accept", "content": {"name": "Ada"}}
            answer = {"jsonrpc": "2.0", "id": question.message["id"], "result": result}
            assert (await served.send(answer, client.headers)).status == 202
            assert [event.text for event in await rest(again)] == ["accept {'name': 'Ada'}"]

    @requirement("http/questions-wait")
    async def test_json_only_client_cannot_be_asked(self, served: RunningServer) -> None:
        client = await Client.of(served, elicitation={})
        response = await client.call("ask", Accept="application/json")
        result = (await response.json())["result"]
        assert result["isError"] is True
        assert "has no open event stream" in result["content"][0]["text"]

    @requirement("http/questions-wait")
    async def test_client_that_left_without_an_event_id_cannot_be_asked(self, served: RunningServer) -> None:
        client = await Client.of(served, elicitation={})
        calling = asyncio.create_task(client.call())
        await until(served.control.started.is_set)
        calling.cancel()
        await asyncio.wait([calling])
        assert (await served.send(legacy_request("ping", request_id="ping"), client.headers)).status == 200
        await client.orders("ask")
        await until(lambda: not client.live.tasks)
        assert not client.live.session.pending_answers
