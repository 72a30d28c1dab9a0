"""`requestState`: valid, dropped and refused states."""

import asyncio
import base64
from typing import Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.errors import ExecutionError, RpcError
from gateway.json_types import Json
from gateway.protocol.call.input_requests.request_state import (
    LIFETIME,
    MAX_BYTES,
    RequestStateSigner,
    State,
    StateScope,
)
from gateway.state import used_request_states
from gateway.state.keys import SigningKeys
from gateway.state.used_request_states import UsedStates

KEY: Final = SigningKeys([b"k" * 32])
BINDING: Final = StateScope(
    owner="ada", method="tools/call", params={"name": "t", "arguments": {"n": 1}}, definition="v1"
)
STATE: Final = State(answers={"name": {"action": "accept", "content": {"name": "Ada"}}}, results={"step": [1, 2]})

JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def opened(state_signer: RequestStateSigner, signed: Json, binding: StateScope) -> State | None:
    return asyncio.run(state_signer.open(signed, binding))


def content_of(signed: str) -> bytes:
    return base64.urlsafe_b64decode(signed.rpartition(".")[0] + "==")


def refused(state_signer: RequestStateSigner, signed: Json, binding: StateScope = BINDING) -> str:
    with pytest.raises(RpcError) as error:
        opened(state_signer, signed, binding)
    assert error.value.code == -32602
    return error.value.message


@given(answers=st.dictionaries(st.text(), JSON, max_size=3), results=st.dictionaries(st.text(), JSON, max_size=3))
def test_state_round_trip(answers: dict[str, Json], results: dict[str, Json]) -> None:
    state_signer = RequestStateSigner(KEY)
    state = State(answers=answers, results=results)
    assert opened(state_signer, state_signer.sign(state, BINDING, only_once=False), BINDING) == state


def test_state_is_valid_in_another_process_with_the_key() -> None:
    signed = RequestStateSigner(KEY).sign(STATE, BINDING, only_once=False)
    assert opened(RequestStateSigner(KEY), signed, BINDING) == STATE
    assert (
        refused(RequestStateSigner(SigningKeys([b"another"])), signed) == "`requestState` was not issued by this server"
    )


@pytest.mark.parametrize(
    "other",
    [
        replace(BINDING, owner="bob"),
        replace(BINDING, owner=None),
        replace(BINDING, method="prompts/get"),
        replace(BINDING, params={"name": "u", "arguments": {"n": 1}}),
        replace(BINDING, params={"name": "t", "arguments": {"n": 2}}),
        replace(BINDING, params={"name": "t", "arguments": {"n": "1"}}),
        replace(BINDING, params={"name": "t", "arguments": {"n": 1, "m": None}}),
        replace(BINDING, params={"name": "t"}),
    ],
)
def test_state_of_another_call_is_rejected(other: StateScope) -> None:
    state_signer = RequestStateSigner(KEY)
    signed = state_signer.sign(STATE, BINDING, only_once=True)
    assert refused(state_signer, signed, other) == "`requestState` belongs to another call"
    assert opened(state_signer, signed, BINDING) == STATE  # the refused attempt has not used it


def test_other_parameters_can_change_between_tries() -> None:
    state_signer = RequestStateSigner(KEY)
    signed = state_signer.sign(STATE, BINDING, only_once=False)
    params = {"arguments": {"n": 1}, "name": "t", "_meta": {"x": 1}, "inputResponses": {}, "requestState": signed}
    assert opened(state_signer, signed, replace(BINDING, params=params)) == STATE


def test_state_of_a_changed_definition_is_dropped() -> None:
    state_signer = RequestStateSigner(KEY)
    assert (
        opened(state_signer, state_signer.sign(STATE, BINDING, only_once=False), replace(BINDING, definition="v2"))
        is None
    )


def test_state_expires() -> None:
    clock = Clock()
    state_signer = RequestStateSigner(KEY, used=UsedStates(clock=clock))
    signed = state_signer.sign(STATE, BINDING, only_once=False)
    clock.now += LIFETIME.total_seconds() - 1
    assert opened(state_signer, signed, BINDING) == STATE
    clock.now += 2
    assert opened(state_signer, signed, BINDING) is None


def test_states_are_unique() -> None:
    state_signer = RequestStateSigner(KEY)
    assert len({state_signer.sign(STATE, BINDING, only_once=True) for _ in range(3)}) == 3


def test_used_states_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(used_request_states, "MAX_USED", 10)
    state_signer = RequestStateSigner(KEY, used=UsedStates(clock=clock))
    states = [state_signer.sign(STATE, BINDING, only_once=True) for _ in range(30)]
    for state in states:
        assert opened(state_signer, state, BINDING) == STATE
    assert len(state_signer._used._used) == 10
    assert opened(state_signer, states[-1], BINDING) is None
    clock.now += LIFETIME.total_seconds() + 1
    for _ in range(10):
        opened(state_signer, state_signer.sign(STATE, BINDING, only_once=True), BINDING)
    assert len(state_signer._used._used) == 10
    assert [opened(state_signer, state, BINDING) for state in states] == [None] * 30


def test_single_use_lasts_until_expiry() -> None:
    clock = Clock()
    state_signer = RequestStateSigner(KEY, used=UsedStates(clock=clock))
    signed = state_signer.sign(STATE, BINDING, only_once=True)
    clock.now += LIFETIME.total_seconds()
    assert [opened(state_signer, signed, BINDING) for _ in range(2)] == [STATE, None]


def test_changed_byte_is_rejected() -> None:
    state_signer = RequestStateSigner(KEY)
    signed = state_signer.sign(STATE, BINDING, only_once=False)
    for place, byte in enumerate(signed):
        for other in ("A", "B", "-", ".", "=", "é"):
            if other != byte:
                refused(state_signer, signed[:place] + other + signed[place + 1 :])


@given(garbage=JSON)
def test_malformed_state_is_rejected(garbage: Json) -> None:
    refused(RequestStateSigner(KEY), garbage)


def test_state_size_is_limited() -> None:
    state_signer = RequestStateSigner(KEY)
    with pytest.raises(ExecutionError, match="exceed 65536 bytes"):
        state_signer.sign(State(results={"all": "x" * MAX_BYTES}), BINDING, only_once=False)
    assert refused(state_signer, "x" * (MAX_BYTES + 1)) == "`requestState` is malformed"


def test_state_only_reveals_the_clients_responses() -> None:
    signed = RequestStateSigner(KEY).sign(STATE, replace(BINDING, definition="hunter2"), only_once=False)
    assert b"Ada" in content_of(signed)
    other = RequestStateSigner(SigningKeys([b"another"])).sign(
        STATE, replace(BINDING, definition="hunter2"), only_once=False
    )
    marks = [orjson.loads(content_of(each))[1:3] for each in (signed, other)]
    assert marks[0] != marks[1]  # keyed digests cannot be guessed


async def test_concurrent_claims_have_one_winner() -> None:
    state_signer = RequestStateSigner(KEY)
    signed = state_signer.sign(STATE, BINDING, only_once=True)
    found = await asyncio.gather(*(state_signer.open(signed, BINDING) for _ in range(2)))
    assert found.count(None) == 1
