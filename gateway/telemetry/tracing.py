"""Whether spans are recorded: decided by the standard `OTEL_…` variables alone.

Tracing is asked for by an exporter or by an endpoint. Where it is asked for and cannot be had, the daemon says so once
and serves: such variables are often set for a whole cluster, and no trace is worth a tool that is gone.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, Protocol

import structlog

from gateway.executors.trace import Trace, TraceContext
from gateway.protocol.calls import Observer

log: Final = structlog.get_logger(__name__)

INSTALL: Final = "pip install 'mcp-gateway-daemon[otel]'"
_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL: Final = "http/protobuf"
_RECORDER: Final = "gateway.telemetry.spans"
"""Imported only where it is wanted: what it needs may not be installed, and takes long."""


class Tracing(Observer, Protocol):
    """Records spans of requests, while they are observed."""

    def trace(self, context: TraceContext | None) -> Trace:
        """The place in a trace of the call that is served now; `context` is how the trace came."""

    async def close(self) -> None:
        """Send what was recorded, if that can be done soon."""


def open_tracing(environ: Mapping[str, str]) -> Tracing | None:
    """Begin to record, where that is asked for and possible."""
    if not _is_wanted(environ):
        return None
    try:
        begin: Callable[[], Tracing] = import_module(_RECORDER).begin
        return begin()
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        log.warning("spans are not recorded", reason="OpenTelemetry is not installed", install=INSTALL)
    except ValueError as error:  # a variable that says what cannot be
        log.warning("spans are not recorded", reason=str(error))
    return None


def _is_wanted(environ: Mapping[str, str]) -> bool:
    """Whether to record.

    1. `OTEL_SDK_DISABLED=true` switches everything off
    2. `OTEL_TRACES_EXPORTER` names `otlp`; where it names nothing, an endpoint says the same
    3. the protocol is the one that there is an exporter for
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = {name.strip() for name in environ.get(_EXPORTER, "").split(",")} - {""}
    if not exporters and not any(environ.get(name) for name in _ENDPOINTS):
        return False
    if exporters and "otlp" not in exporters:
        if exporters != {"none"}:
            _warn_of(_EXPORTER, environ[_EXPORTER], known="otlp, none")
        return False
    name = next((name for name in _PROTOCOLS if environ.get(name)), None)
    if name is not None and environ[name] != _PROTOCOL:
        _warn_of(name, environ[name], known=_PROTOCOL)
        return False
    return True


def _warn_of(variable: str, value: str, *, known: str) -> None:
    log.warning("spans are not recorded", reason=f"{variable} is {value!r}, and only {known} is known here")
