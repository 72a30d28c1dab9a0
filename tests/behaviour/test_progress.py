"""Progress of calls."""

from typing import Final

import pytest

from gateway.json_types import Json
from tests.behaviour.cells import cells
from tests.behaviour.client import Client
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROGRESS: Final = "notifications/progress"
TOKENS: Final[list[Json]] = ["token", 7, 0, "7", ""]
NO_TOKENS: Final[list[Json]] = [None, True, 1.5, []]


@cells()
@requirement("progress/token")
async def test_progress_carries_the_token_with_its_type(client: Client) -> None:
    message = {"message": "at 1"} if client.cell.revision >= "2025-03-26" else {}
    for token in TOKENS:
        call = await client.begin("count", token=token, values=[1, 2.5])
        await call.answer()
        seen = call.seen(PROGRESS)
        assert seen[0] == {"progressToken": token, "progress": 1, "total": 100, **message}
        assert [type(params["progressToken"]) for params in seen] == [type(token)] * 2


@cells()
@requirement("progress/increases")
async def test_progress_only_grows(client: Client) -> None:
    call = await client.begin("count", token="grows", values=[1, 5, 5, 3, 6, 2, *range(7, 60)])
    await call.answer()
    values = [params["progress"] for params in call.seen(PROGRESS)]
    assert values == [1, 5, *range(6, 60)]


@cells()
@requirement("progress/increases")
async def test_non_finite_progress_is_omitted(client: Client) -> None:
    call = await client.begin("count_oddly", token="odd")
    assert (await call.answer()).text == "counted"
    assert call.seen(PROGRESS) == [{"progressToken": "odd", "progress": value} for value in (1, 2, 3)]


@cells()
@requirement("progress/asked-for")
async def test_request_without_a_progress_token_gets_no_progress(client: Client) -> None:
    for token in NO_TOKENS:
        call = await client.begin("count", token=token, values=[1, 2])
        assert (await call.answer()).text == "counted"
        assert call.seen(PROGRESS) == []
        assert client.received(PROGRESS) == []


@cells()
@requirement("progress/before-answer")
async def test_progress_is_sent_while_the_call_runs(client: Client) -> None:
    call = await client.begin("wait", token="early", key=f"early {client.cell}")
    assert (await call.notification(PROGRESS))["progress"] == 1
    assert not call.answered.done()
    await client.call("release", key=f"early {client.cell}")
    assert (await call.answer()).text == "released"
