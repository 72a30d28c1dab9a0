"""Tests for rendering metrics."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pytest
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily

from gateway.telemetry import metrics as metrics_module
from gateway.telemetry.metric_definitions import READ, MetricDefinition
from gateway.telemetry.metrics import MetricsExposition, Reading


def sources(**readings: Reading) -> Mapping[str, Callable[[], Reading]]:
    return {measure.name: lambda name=measure.name: readings.get(name, 0) for measure in READ if not measure.labels} | {
        measure.name: lambda name=measure.name: readings.get(name, {}) for measure in READ if measure.labels
    }


def slow(is_asked: Callable[[], object]) -> Iterator[Metric]:
    """Yield enough series to take a while."""
    is_asked()
    family = CounterMetricFamily("many", "Many.", labels=["number"])
    for number in range(30_000):
        family.add_metric([str(number)], number)
    yield family


async def test_rendering_metrics_does_not_block_the_loop() -> None:
    loop = asyncio.get_running_loop()
    turns, writing = 0, asyncio.Event()
    metrics = MetricsExposition(sources(), counted=[partial(slow, lambda: loop.call_soon_threadsafe(writing.set))])
    scrape = asyncio.create_task(metrics.exposition(""))
    async with asyncio.timeout(10):
        await writing.wait()
        while not scrape.done():
            turns += 1
            await asyncio.sleep(0)
    text, _ = await scrape
    assert text.count(b"\nmany_total{") == 30_000
    assert turns > 1


async def test_metric_sources_are_read_on_the_event_loop() -> None:
    where: list[object] = []

    def streams() -> float:
        where.append(asyncio.get_running_loop())
        return 7

    metrics = MetricsExposition({**sources(), "mcp_gateway_streams": streams}, counted=[])
    text, media_type = await metrics.exposition("")
    assert b"\nmcp_gateway_streams 7.0\n" in text
    assert media_type.startswith("text/plain; version=0.0.4")
    assert where == [asyncio.get_running_loop()]


@pytest.mark.parametrize("version", ["abc", "1..0", "9" * 5000])
async def test_unknown_metrics_format_gets_plain_text(version: str) -> None:
    metrics = MetricsExposition(sources(), counted=[])
    text, media_type = await metrics.exposition(f"application/openmetrics-text; version={version}")
    assert b"\nmcp_gateway_streams 0.0\n" in text
    assert media_type.startswith("text/plain; version=0.0.4")


async def test_label_values_cannot_break_out_of_their_line() -> None:
    nasty = 'a"b\\c\nmcp_gateway_ready 0'
    metrics = MetricsExposition(sources(mcp_gateway_primitives={(nasty,): 1}), counted=[])
    text, _ = await metrics.exposition("")
    assert text.count(b"\nmcp_gateway_ready ") == 1
    assert b'mcp_gateway_primitives{kind="a\\"b\\\\c\\nmcp_gateway_ready 0"} 1.0\n' in text


def test_source_without_a_definition_is_an_error() -> None:
    with pytest.raises(ValueError, match="without a definition: mcp_gateway_stream"):
        MetricsExposition({**sources(), "mcp_gateway_stream": lambda: 7}, counted=[])


def test_histogram_cannot_be_read_from_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "READ", [MetricDefinition("seconds", "histogram", "Seconds.")])
    with pytest.raises(KeyError, match="histogram"):
        MetricsExposition({"seconds": lambda: 7}, counted=[])
