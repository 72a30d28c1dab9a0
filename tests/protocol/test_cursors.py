"""Cursors are opaque and bound to one list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ErrorCode, RpcError
from gateway.protocol import list_pages
from gateway.protocol.list_pages import Cursors
from gateway.state.keys import SigningKeys
from tests.protocol.peers import LocalGateway

CURSORS = Cursors(SigningKeys([b"key"]))


@given(st.integers(0, 10**9))
def test_cursor_returns_its_offset(offset: int) -> None:
    assert CURSORS.redeem(CURSORS.issue("tools", "f", offset), "tools", "f") == offset


@pytest.mark.parametrize(
    ("cursor", "reason"),
    [
        ("", "Invalid"),
        ("x", "Invalid"),
        (7, "Invalid"),
        (CURSORS.issue("prompts", "f", 3), "Invalid"),
        (CURSORS.issue("tools", "f", 3) + "!!", "Invalid"),
        (CURSORS.issue("tools", "f", 3) + "=", "Invalid"),
        (Cursors(SigningKeys([b"other"])).issue("tools", "f", 3), "Invalid"),
        (CURSORS.issue("tools", "before", 3), "Stale"),
    ],
)
def test_foreign_or_stale_cursor_is_invalid_params(cursor: object, reason: str) -> None:
    with pytest.raises(RpcError, match=reason) as caught:
        CURSORS.redeem(cursor, "tools", "f")
    assert caught.value.code == ErrorCode.INVALID_PARAMS


async def test_full_cache_of_pages_is_emptied(asking: LocalGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_pages, "MAX_PAGES", 1)
    peer = asking.modern()
    first, _, again = [(await peer.once(f"{name}/list", {}))["result"] for name in ("tools", "prompts", "tools")]
    assert first == again
    assert len(first["tools"]) > 1
