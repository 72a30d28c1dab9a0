"""Tests for session ids."""

import base64
from typing import Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.identity import ANONYMOUS, Identity
from gateway.json_types import Json
from gateway.protocol.session import Session
from gateway.state.keys import SigningKeys
from gateway.transports.streamable_http.session_ids import MAX_BYTES, SessionClaims, SessionIds, owner_mark

KEY: Final = b"a key of sixteen bytes"
CAPABLE: Final[dict[str, Json]] = {
    "roots": {"listChanged": True},
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
}


def session(
    *, name: Json = "test", version: Json = "1", capabilities: dict[str, Json] | None = None, by: Identity = ANONYMOUS
) -> Session:
    return Session(
        revision="2025-11-25",
        client_info={"name": name, "version": version},
        capabilities=CAPABLE if capabilities is None else capabilities,
        identity=by,
    )


def ids(*keys: bytes) -> SessionIds:
    return SessionIds(SigningKeys(keys or [KEY]), clock=lambda: 1000.5)


def issued(of: Session) -> SessionClaims:
    claims = ids().issue(of)
    assert ids().read(of.id) == claims
    return claims


def test_id_contains_the_initialize_parameters() -> None:
    claims = issued(session(by=Identity(principal="alice", realm="https://issuer.example", credential="digest")))
    assert claims.owner == "https://issuer.example alice"
    assert (claims.revision, claims.capabilities) == ("2025-11-25", CAPABLE)
    assert (claims.client_name, claims.client_version, claims.issued_at) == ("test", "1", 1000)


@given(
    name=st.one_of(st.text(), st.integers(), st.text(alphabet="\x00é😀", min_size=100)),
    version=st.one_of(st.text(), st.text(alphabet='"\\\x1f', min_size=100)),
    principal=st.text(min_size=1, max_size=300),
    realm=st.text(max_size=300),
    more=st.dictionaries(st.text(), st.text() | st.booleans()),
)
def test_id_has_at_most_512_visible_characters(
    name: Json, version: str, principal: str, realm: str, more: dict[str, Json]
) -> None:
    capabilities: dict[str, Json] = {**CAPABLE, "experimental": more}
    one = session(name=name, version=version, capabilities=capabilities, by=Identity(principal=principal, realm=realm))
    claims = issued(one)
    assert len(one.id) <= MAX_BYTES
    assert all(0x21 <= ord(each) <= 0x7E for each in one.id)
    assert claims.owner == owner_mark(f"{realm} {principal}")
    assert {key: value for key, value in claims.capabilities.items() if key != "experimental"} == CAPABLE


def test_unused_capabilities_are_dropped_if_the_id_is_too_long() -> None:
    claims = issued(session(capabilities={**CAPABLE, "experimental": {"x": "y" * 1000}}))
    assert claims.capabilities == CAPABLE


def test_ids_are_unique_and_contain_no_credentials() -> None:
    by = Identity(principal="alice", realm="keys", credential="a-digest-of-the-token")
    made = [session(by=by) for _ in range(20)]
    for each in made:
        ids().issue(each)
        content = each.id.partition(".")[0]
        assert b"digest" not in base64.urlsafe_b64decode(content + "=" * (-len(content) % 4))
    assert len({each.id for each in made}) == 20


def test_modified_id_is_invalid() -> None:
    one = session()
    ids().issue(one)
    for place in range(len(one.id)):
        for other in "Aa-_.":
            if one.id[place] != other:
                assert ids().read(one.id[:place] + other + one.id[place + 1 :]) is None
    assert ids(b"another key of ours").read(one.id) is None
    assert ids(b"a new key of sixteen", KEY).read(one.id) is not None


@pytest.mark.parametrize("garbage", ["", ".", "x", "é", "a.b", "x" * 10_000, orjson.dumps({}).decode()])
def test_garbage_is_invalid(garbage: str) -> None:
    assert ids().read(garbage) is None
