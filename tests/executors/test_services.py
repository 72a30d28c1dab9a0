"""Services start together and stop together."""

import pytest
from aiohttp import ClientSession

from gateway.executors.shared_services import running_services


async def test_services_run_until_the_block_ends() -> None:
    async with running_services(threads=2) as services:
        shared = services.http.shared
        assert not shared.closed
        assert services.threads.busy == 0
    assert shared.closed


async def test_services_stop_when_the_block_fails() -> None:
    sessions: list[ClientSession] = []

    async def use_and_fail() -> None:
        async with running_services() as services:
            sessions.append(services.http.shared)
            raise RuntimeError("failed")

    with pytest.raises(RuntimeError, match="failed"):
        await use_and_fail()
    assert sessions[0].closed
