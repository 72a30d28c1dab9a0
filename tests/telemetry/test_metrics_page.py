"""Tests that `docs/metrics.md` matches the code."""

from pathlib import Path
from typing import Final

from gateway.telemetry.metric_definitions import METRIC_DEFINITIONS, MetricDefinition

PAGE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"


def row(measure: MetricDefinition) -> str:
    labels = ", ".join(f"`{label}`" for label in measure.labels)
    return f"| `{measure.name}` | {measure.kind} | {labels} | {measure.meaning} |"


def test_page_lists_each_metric_as_declared() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert rows == [row(measure) for measure in METRIC_DEFINITIONS]
