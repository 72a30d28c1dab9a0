"""Cancellation of single requests."""

import asyncio

import pytest

from gateway.protocol.exchange import Reply
from gateway.protocol.session import InFlight

DONE = Reply(body=b"done")


async def hang() -> Reply:
    await asyncio.Event().wait()
    return DONE


async def start(in_flight: InFlight, request_id: str | int, answer: object = None) -> asyncio.Task[Reply | None]:
    task = asyncio.create_task(in_flight.run(request_id, hang()))
    await asyncio.sleep(0)
    return task


async def test_cancelled_request_has_no_response_and_its_task_continues() -> None:
    in_flight = InFlight()
    task = await start(in_flight, 1)
    other = await start(in_flight, "1")
    in_flight.cancel(1)
    in_flight.cancel(1)
    assert await task is None
    assert task.cancelling() == 0
    assert len(in_flight) == 1
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other
    assert len(in_flight) == 0


async def test_request_that_suppresses_its_cancellation_has_no_response() -> None:
    async def stubborn() -> Reply:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return DONE
        return DONE

    in_flight = InFlight()
    task = asyncio.create_task(in_flight.run(1, stubborn()))
    await asyncio.sleep(0)
    in_flight.cancel(1)
    assert await task is None


async def test_cancellation_of_the_task_takes_precedence_over_the_sender() -> None:
    in_flight = InFlight()
    task = await start(in_flight, 1)
    in_flight.cancel(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
