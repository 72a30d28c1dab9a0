"""Tests for used request states."""

from pathlib import Path

from gateway.state.replica import Replica
from gateway.state.used_request_states import UsedStates
from tests.redis_server import redis_server


async def test_replicas_share_used_states(tmp_path: Path) -> None:
    async with redis_server(tmp_path / "redis") as server, Replica(server.url, clock=lambda: 1000.0) as replica:
        here, elsewhere = (UsedStates(clock=lambda: 1000.0, shared=replica.store) for _ in range(2))
        assert await here.use("one", expires=1900.0)
        assert not await elsewhere.use("one", expires=1900.0)
        assert not await here.use("one", expires=1900.0)
        assert await elsewhere.use("two", expires=1900.0)
