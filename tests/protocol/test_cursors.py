"""Cursors are opaque and bound to one list."""

import pytest

from gateway.protocol import list_pages
from tests.protocol.peers import LocalGateway


async def test_full_cache_of_pages_is_emptied(asking: LocalGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_pages, "MAX_PAGES", 1)
    peer = asking.modern()
    first, _, again = [(await peer.once(f"{name}/list", {}))["result"] for name in ("tools", "prompts", "tools")]
    assert first == again
    assert len(first["tools"]) > 1
