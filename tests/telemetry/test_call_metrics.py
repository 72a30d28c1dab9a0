"""Tests for call metrics."""

from collections.abc import Iterator, Mapping

import pytest

from gateway.telemetry.metrics import CallMetrics
from gateway.telemetry.observer import CallFacts, CallResult, Outcome
from tests.telemetry.calls import call_of

OK = CallResult(outcome=Outcome.OK, seconds=0.02)


@pytest.fixture
def metrics() -> CallMetrics:
    return CallMetrics()


def series(metrics: CallMetrics, sample: str, /, **labels: str) -> Mapping[tuple[str, ...], float]:
    """Return matching samples by the values of the other labels."""
    return dict(_series(metrics, sample, labels))


def _series(metrics: CallMetrics, name: str, wanted: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], float]]:
    for family in metrics.collect():
        for sample in family.samples:
            if sample.name == name and wanted.items() <= sample.labels.items():
                yield tuple(value for label, value in sample.labels.items() if label not in wanted), sample.value


def run(metrics: CallMetrics, call: CallFacts, ending: CallResult = OK) -> None:
    metrics.began(call)
    metrics.ended(call, ending)


def test_calls_are_counted_by_kind_name_era_and_outcome(metrics: CallMetrics) -> None:
    run(metrics, call_of("tools/call", "echo"))
    run(metrics, call_of("tools/call", "echo"))
    run(metrics, call_of("tools/call", "echo", revision="2025-06-18"))
    run(metrics, call_of("tools/call", "echo"), CallResult(outcome=Outcome.TOOL_ERROR, seconds=1))
    run(metrics, call_of("resources/read", "notes", kind="resource"))
    run(metrics, call_of("prompts/get", "triage", kind="prompt"))
    run(metrics, call_of("completion/complete", "triage", kind="prompt"))
    assert series(metrics, "mcp_gateway_calls_total") == {
        ("tool", "echo", "modern", "ok"): 2,
        ("tool", "echo", "legacy", "ok"): 1,
        ("tool", "echo", "modern", "tool_error"): 1,
        ("resource", "notes", "modern", "ok"): 1,
        ("prompt", "triage", "modern", "ok"): 1,
        ("completion", "triage", "modern", "ok"): 1,
    }


def test_durations_are_counted_in_buckets_of_seconds(metrics: CallMetrics) -> None:
    run(metrics, call_of("tools/call", "echo"), CallResult(outcome=Outcome.OK, seconds=0.02))
    run(metrics, call_of("tools/call", "echo"), CallResult(outcome=Outcome.CANCELLED, seconds=40))
    buckets = series(metrics, "mcp_gateway_call_duration_seconds_bucket", name="echo", kind="tool", era="modern")
    assert buckets[("0.01",)] == 0
    assert buckets[("0.025",)] == buckets[("30.0",)] == 1
    assert buckets[("60.0",)] == buckets[("+Inf",)] == 2
    assert series(metrics, "mcp_gateway_call_duration_seconds_sum") == {("tool", "echo", "modern"): 40.02}


def test_call_of_a_removed_tool_does_not_restore_its_series(metrics: CallMetrics) -> None:
    call = call_of("tools/call", "removed")
    metrics.began(call)
    metrics.keep({})
    metrics.ended(call, OK)
    assert series(metrics, "mcp_gateway_calls_total") == {}
    assert metrics.in_flight() == {}
    run(metrics, call_of("tools/call", "removed"))  # offered again
    assert series(metrics, "mcp_gateway_calls_total") == {("tool", "removed", "modern", "ok"): 1}
