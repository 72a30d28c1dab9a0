"""Parked outputs: for whom, how long, how many."""

import base64

from gateway.executors.output import parking
from gateway.executors.output.parking import ParkedOutputs


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def park(parked: ParkedOutputs, contents: str | bytes, caller: str = "me") -> str:
    uri = parked.park(contents, media_type="text/plain", caller=caller)
    assert uri is not None
    return uri


def test_an_output_is_read_as_it_was_parked() -> None:
    parked = ParkedOutputs()
    text, data = park(parked, "ü"), park(parked, b"\xff")
    assert parked.read(text, caller="me") == {"uri": text, "mimeType": "text/plain", "text": "ü"}
    assert parked.read(data, caller="me") == {
        "uri": data,
        "mimeType": "text/plain",
        "blob": base64.b64encode(b"\xff").decode(),
    }


def test_an_output_is_there_for_its_caller_alone_under_a_uri_that_cannot_be_guessed() -> None:
    parked = ParkedOutputs()
    uri = park(parked, "x")
    assert parked.read(uri, caller="you") is None
    assert parked.read("output://x", caller="me") is None
    assert len({park(parked, "x") for _ in range(20)}) == 20
    assert len(uri) == len("output://") + 32


def test_an_output_is_gone_after_ten_minutes() -> None:
    clock = Clock()
    parked = ParkedOutputs(clock=clock)
    uri = park(parked, "x")
    clock.now += 599
    assert parked.read(uri, caller="me") is not None
    clock.now += 1
    assert parked.read(uri, caller="me") is None


def test_the_oldest_output_of_a_caller_makes_room_for_the_thirty_third() -> None:
    parked = ParkedOutputs()
    foreign = park(parked, "x", caller="you")
    uris = [park(parked, str(number)) for number in range(33)]
    assert [parked.read(uri, caller="me") is None for uri in uris] == [True] + [False] * 32
    assert parked.read(foreign, caller="you") is not None


def test_bytes_are_bounded_for_each_output_each_caller_and_all_together() -> None:
    parked = ParkedOutputs()
    half = b"x" * (parking.MAX_OUTPUT_BYTES // 2)
    assert parked.park(half * 2 + b"x", media_type="text/plain", caller="me") is None
    first, second, third = (park(parked, half) for _ in range(3))
    assert parked.read(first, caller="me") is None
    assert parked._parked.keys() == {second, third}
    for caller in ("a", "b", "c", "d"):
        park(parked, half, caller=caller)
        park(parked, half, caller=caller)
    assert parked._size <= parking.MAX_TOTAL_BYTES
    assert parked.read(second, caller="me") is None
