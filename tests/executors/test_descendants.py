"""What a child of the daemon is, told by its traces alone."""

import pytest

from gateway.executors.processes.descendants import Kind, Traces, classify


@pytest.mark.parametrize(
    ("traces", "kind"),
    [
        (Traces(is_dead=True), Kind.DEAD_ORPHAN),
        (Traces(is_dead=True, shares_session=True), Kind.DEAD),
        (Traces(is_dead=True, is_started=True), Kind.DEAD),
        (Traces(shares_session=True), Kind.OWN),
        (Traces(is_started=True), Kind.OWN),
        (Traces(is_of_call=True), Kind.OF_CALL),
        (Traces(is_of_call=True, is_started=True), Kind.OF_CALL),
        (Traces(), Kind.HIDDEN),
    ],
    ids=str,
)
def test_a_child_is_known_by_its_traces(traces: Traces, kind: Kind) -> None:
    assert classify(traces) is kind
