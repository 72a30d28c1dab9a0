"""`requestState`: what is accepted, what asks again, and what is refused."""

import asyncio
import base64
from dataclasses import replace
from typing import Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ExecutionError, RpcError
from gateway.json_types import Json
from gateway.protocol import sealed_state
from gateway.protocol.sealed_state import LARGEST, LIFETIME, Binding, State, StateSeal

KEY: Final = b"k" * 32
BINDING: Final = Binding(owner="ada", method="tools/call", params={"name": "t", "arguments": {"n": 1}}, definition="v1")
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


def refused(seal: StateSeal, sealed: Json, binding: Binding = BINDING) -> str:
    with pytest.raises(RpcError) as error:
        seal.open(sealed, binding)
    assert error.value.code == -32602
    return error.value.message


@given(answers=st.dictionaries(st.text(), JSON, max_size=3), results=st.dictionaries(st.text(), JSON, max_size=3))
def test_what_was_learnt_comes_back_as_it_was(answers: dict[str, Json], results: dict[str, Json]) -> None:
    seal = StateSeal(KEY)
    state = State(answers=answers, results=results)
    assert seal.open(seal.seal(state, BINDING, only_once=False), BINDING) == state


def test_another_process_with_the_key_takes_it() -> None:
    sealed = StateSeal(KEY).seal(STATE, BINDING, only_once=False)
    assert StateSeal(KEY).open(sealed, BINDING) == STATE
    assert refused(StateSeal(b"another"), sealed) == "`requestState` is not one of this server's"


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
def test_the_state_of_one_call_is_refused_for_another(other: Binding) -> None:
    seal = StateSeal(KEY)
    sealed = seal.seal(STATE, BINDING, only_once=True)
    assert refused(seal, sealed, other) == "`requestState` belongs to another call"
    assert seal.open(sealed, BINDING) == STATE  # and is not used up by the attempt


def test_what_may_differ_between_tries_does() -> None:
    seal = StateSeal(KEY)
    sealed = seal.seal(STATE, BINDING, only_once=False)
    params = {"arguments": {"n": 1}, "name": "t", "_meta": {"x": 1}, "inputResponses": {}, "requestState": sealed}
    assert seal.open(sealed, replace(BINDING, params=params)) == STATE


def test_a_reload_in_between_asks_again() -> None:
    seal = StateSeal(KEY)
    assert seal.open(seal.seal(STATE, BINDING, only_once=False), replace(BINDING, definition="v2")) is None


def test_it_expires() -> None:
    clock = Clock()
    seal = StateSeal(KEY, clock=clock)
    sealed = seal.seal(STATE, BINDING, only_once=False)
    clock.now += LIFETIME.total_seconds() - 1
    assert seal.open(sealed, BINDING) == STATE
    clock.now += 2
    assert seal.open(sealed, BINDING) is None


def test_what_may_be_used_once_asks_again_when_replayed() -> None:
    seal = StateSeal(KEY)
    once, often = (seal.seal(STATE, BINDING, only_once=only_once) for only_once in (True, False))
    assert seal.open(once, BINDING) == STATE
    assert seal.open(once, BINDING) is None
    assert seal.open(often, BINDING) == seal.open(often, BINDING) == STATE


def test_every_state_is_another() -> None:
    seal = StateSeal(KEY)
    assert len({seal.seal(STATE, BINDING, only_once=True) for _ in range(3)}) == 3


def test_memory_of_used_states_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    seal = StateSeal(KEY, clock=clock)
    monkeypatch.setattr(sealed_state, "MOST_SPENT", 10)
    states = [seal.seal(STATE, BINDING, only_once=True) for _ in range(30)]
    for state in states:
        assert seal.open(state, BINDING) == STATE
    assert len(seal._spent) == 10
    assert seal.open(states[-1], BINDING) is None
    clock.now += LIFETIME.total_seconds() + 1
    seal.open(seal.seal(STATE, BINDING, only_once=True), BINDING)
    assert len(seal._spent) == 1


def test_no_byte_of_it_can_be_changed() -> None:
    seal = StateSeal(KEY)
    sealed = seal.seal(STATE, BINDING, only_once=False)
    for place, byte in enumerate(sealed):
        for other in ("A", "B", "-", ".", "=", "é"):
            if other != byte:
                refused(seal, sealed[:place] + other + sealed[place + 1 :])


@pytest.mark.parametrize("addition", ["!!", "=", "==", " ", "\n", ".", "A", "-TAMPERED"])
def test_nothing_can_be_added_to_it(addition: str) -> None:
    seal = StateSeal(KEY)
    sealed = seal.seal(STATE, BINDING, only_once=False)
    for forged in (sealed + addition, addition + sealed, sealed.replace(".", addition + ".")):
        if forged != sealed:
            refused(seal, forged)


@given(garbage=JSON)
def test_garbage_is_refused(garbage: Json) -> None:
    refused(StateSeal(KEY), garbage)


def test_a_signed_cursor_is_no_state() -> None:
    seal = StateSeal(KEY)
    content = base64.urlsafe_b64encode(orjson.dumps([2**40, "", "", "", {}, {}])).decode()
    for forged in (content, f"{content}.", f".{content}", f"{content}.{content}"):
        refused(seal, forged)


def test_one_that_is_too_large_is_neither_made_nor_read() -> None:
    seal = StateSeal(KEY)
    with pytest.raises(ExecutionError, match="more than 65536 bytes"):
        seal.seal(State(results={"all": "x" * LARGEST}), BINDING, only_once=False)
    assert refused(seal, "x" * (LARGEST + 1)) == "`requestState` is malformed"


def test_a_client_can_read_what_it_answered_and_nothing_of_the_definition() -> None:
    sealed = StateSeal(KEY).seal(STATE, replace(BINDING, definition="hunter2"), only_once=False)
    content = base64.urlsafe_b64decode(sealed.rpartition(".")[0])
    assert b"Ada" in content
    other = StateSeal(b"another").seal(STATE, replace(BINDING, definition="hunter2"), only_once=False)
    marks = [orjson.loads(base64.urlsafe_b64decode(each.rpartition(".")[0]))[1:3] for each in (sealed, other)]
    assert marks[0] != marks[1]  # keyed: what they stand for cannot be tried out


async def test_of_two_that_use_it_at_once_one_is_first() -> None:
    seal = StateSeal(KEY)
    sealed = seal.seal(STATE, BINDING, only_once=True)
    opened = await asyncio.gather(*(asyncio.to_thread(seal.open, sealed, BINDING) for _ in range(2)))
    assert opened.count(None) == 1
