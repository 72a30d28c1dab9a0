"""Tests for used request states."""

from pathlib import Path

import pytest

from gateway.state import used_request_states
from gateway.state.replica import Replica
from gateway.state.used_request_states import UsedStates
from tests.redis_server import redis_server


async def test_unused_claims_are_bounded_and_exclusive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(used_request_states, "MAX_USED", 10)
    async with redis_server(tmp_path / "redis") as server, Replica(server.url, clock=lambda: 1000.0) as replica:
        here, elsewhere = (UsedStates(clock=lambda: 1000.0, shared=replica.store) for _ in range(2))
        for number in range(30):
            await here.claim(str(number), expires=1900.0)
        assert len(here._claimed) == 10
        for used, nonce in ((here, "0"), (elsewhere, "29")):
            await used.claim(nonce, expires=1900.0)
            assert used.take(nonce, expires=1900.0) is False
        assert here.take("29", expires=1900.0) is True
