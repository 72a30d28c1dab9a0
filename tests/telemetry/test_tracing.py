"""Tests for enabling tracing."""

import sys
from collections.abc import AsyncIterator, Mapping

import pytest

from gateway.distribution import install_command
from gateway.json_types import Json
from gateway.telemetry.tracing import open_tracing
from tests.captured_logs import capture_logs

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


@pytest.fixture
async def told() -> AsyncIterator[list[Json]]:
    with capture_logs() as lines:
        yield lines


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SERVICE_NAME": "mine"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {**ENDPOINT, "OTEL_SDK_DISABLED": "true"},
        {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"},
    ],
)
async def test_tracing_is_off_by_default(environ: Mapping[str, str], told: list[Json]) -> None:
    assert open_tracing(environ) is None
    assert told == []


@pytest.mark.parametrize(
    ("environ", "exporter", "protocol"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "zipkin", "http/protobuf"),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "otlp", "grpc"),
        (
            {
                **ENDPOINT,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json",
            },
            "otlp",
            "http/json",
        ),
    ],
)
async def test_unsupported_tracing_settings_are_logged(
    environ: Mapping[str, str], exporter: str, protocol: str, told: list[Json]
) -> None:
    assert open_tracing(environ) is None
    [line] = told
    assert (line["log_level"], line["event"]) == ("warning", "spans are not recorded")
    assert (line["exporter"], line["protocol"]) == (exporter, protocol)


async def test_missing_packages_are_logged_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch, told: list[Json]
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "gateway.telemetry.spans", raising=False)
    assert open_tracing(ENDPOINT) is None
    [line] = told
    assert (line["log_level"], line["install"]) == ("warning", install_command("otel"))


async def test_invalid_variable_only_disables_spans(monkeypatch: pytest.MonkeyPatch, told: list[Json]) -> None:
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many")
    assert open_tracing(ENDPOINT) is None
    [line] = told
    assert "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in line["reason"]
