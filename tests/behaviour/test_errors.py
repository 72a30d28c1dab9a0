"""Malformed messages get an error response with the right id."""

from typing import Final

import orjson
import pytest

from gateway.json_types import Json
from tests.behaviour.cells import LATEST, LATEST_LEGACY, STDIO, cells
from tests.behaviour.client import Client
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")

ID_IS_OPTIONAL_SINCE: Final = "2025-11-25"
NO_MESSAGES: Final[list[Json]] = [
    1,
    "text",
    {"jsonrpc": "1.0"},
    {"jsonrpc": "2.0"},
    {"jsonrpc": "2.0", "id": None, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": 1.5, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": True, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": [], "method": "tools/list"},
    {"jsonrpc": "2.0", "id": None, "method": 7},
]
IDS: Final[list[Json]] = [0, -1, 2**53, "", "0", "ü\n", "a" * 1000]


@cells()
@requirement("base/parse-error", "base/error-id")
async def test_invalid_json_is_a_parse_error(client: Client) -> None:
    for body in (b"{", b'{"jsonrpc": "2.0", "id": 1', b"\xff\xfe", b"nonsense"):
        answer = await client.wire.raw(body)
        assert answer.error["code"] == -32700, body
        assert answer.status in {None, 400}
        if client.cell.binding == STDIO:
            _has_no_id(answer.message, client)
        else:
            assert "id" not in answer.message


@cells()
@requirement("base/invalid-request", "base/error-id")
async def test_json_that_is_not_a_message_is_an_invalid_request(client: Client) -> None:
    for message in NO_MESSAGES:
        answer = await client.wire.raw(orjson.dumps(message))
        assert answer.error["code"] == -32600, message
        assert answer.status in {None, 400}
        _has_no_id(answer.message, client)


@cells()
@requirement("base/invalid-request", "base/error-id")
async def test_error_has_the_readable_id(client: Client) -> None:
    answer = await client.raw(orjson.dumps({"jsonrpc": "2.0", "id": "mine", "method": 7}))
    assert (answer.error["code"], answer.message["id"]) == (-32600, "mine")
    answer = await client.raw(orjson.dumps({"jsonrpc": "2.0", "id": 0, "method": "tools/list", "params": [1]}))
    assert (answer.error["code"], answer.message["id"]) == (-32602, 0)
    for text in (b"\\ud83d", b"\xf0\x9f\x98"):  # half of a character
        answer = await client.raw(b'{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{"name":"%b"}}' % text)
        assert (answer.error["code"], answer.message["id"]) == (-32700, "mine")


@cells()
@requirement("base/id-echo")
async def test_id_is_returned_with_its_type(client: Client) -> None:
    for request_id in IDS:
        for method in ("tools/list", "no/such"):
            answered = (await client.ask(method, request_id=request_id)).message["id"]
            assert answered == request_id
            assert type(answered) is type(request_id)


@cells(until=LATEST_LEGACY)
@requirement("base/batch-gone")
async def test_batches_are_only_accepted_in_2025_03_26(client: Client) -> None:
    batch = [{"jsonrpc": "2.0", "id": "in a batch", "method": "ping"}, {"jsonrpc": "2.0", "id": 2, "method": "ping"}]
    if client.cell.revision == "2025-03-26":
        notification = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
        replies: Json = (await client.wire.raw(orjson.dumps([*batch, notification]))).message
        assert {reply["id"]: reply["result"] for reply in replies} == {"in a batch": {}, 2: {}}
        return
    answer = await client.wire.raw(orjson.dumps(batch))
    assert answer.error["code"] == -32600
    assert answer.status in {None, 400}


@cells(since=LATEST)
@requirement("base/batch-gone", "base/no-responses")
async def test_envelope_is_rejected_for_batches_and_responses(client: Client) -> None:
    answer = await client.raw(orjson.dumps([{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}]))
    assert answer.error["code"] == -32600


@cells()
@requirement("base/notifications")
async def test_notification_gets_no_response(client: Client) -> None:
    for method in ("notifications/roots/list_changed", "notifications/no-such", "tools/list"):
        await client.notify(method, {"anything": 1})
    assert (await client.ask("tools/list")).result


def _has_no_id(message: dict[str, Json], client: Client) -> None:
    """Until 2025-06-18, the schema requires an id, which is null. Later revisions omit it."""
    is_needed = client.cell.revision < ID_IS_OPTIONAL_SINCE
    assert message.get("id", "none") == (None if is_needed else "none")
