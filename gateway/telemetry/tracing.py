"""Enables tracing according to the standard `OTEL_…` variables.

An exporter or an endpoint enables tracing. If tracing cannot start, the gateway logs a warning and serves without
tracing, because the variables are often set for a whole cluster.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

import structlog

from gateway.distribution import install_command

if TYPE_CHECKING:
    from gateway.telemetry.spans import Spans

log: Final = structlog.get_logger(__name__)

_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL: Final = "http/protobuf"
_RECORDER: Final = "gateway.telemetry.spans"
"""The module that is imported only if tracing is enabled, because it needs optional packages and imports slowly."""


def open_tracing(environ: Mapping[str, str]) -> "Spans | None":
    """Start recording spans. Return None if tracing is disabled or cannot start."""
    if not _is_wanted(environ):
        return None
    try:
        begin: Callable[[], Spans] = import_module(_RECORDER).begin
        return begin()
    except ModuleNotFoundError as error:
        # A missing module of our own is a bug.
        if not (error.name or "").startswith("opentelemetry"):
            raise
        log.warning("spans are not recorded", reason="OpenTelemetry is not installed", install=install_command("otel"))
    except ValueError as error:  # A variable has an invalid value.
        log.warning("spans are not recorded", reason=str(error))
    return None


def _is_wanted(environ: Mapping[str, str]) -> bool:
    """Return whether tracing is enabled. All conditions must be met.

    1. `OTEL_SDK_DISABLED` is not `true`.
    2. `OTEL_TRACES_EXPORTER` contains `otlp`. If it is unset, an endpoint is enough.
    3. The installed exporter supports the protocol.
    """
    exporter = environ.get(_EXPORTER) or ("otlp" if any(map(environ.get, _ENDPOINTS)) else "none")
    if exporter == "none" or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    # OpenTelemetry, "OTLP Exporter": the variable of one signal takes precedence.
    protocol = next(filter(None, map(environ.get, _PROTOCOLS)), _PROTOCOL)
    if "otlp" in exporter.replace(" ", "").split(",") and protocol == _PROTOCOL:
        return True
    reason = f"{_EXPORTER} must be otlp with the protocol {_PROTOCOL}"
    log.warning("spans are not recorded", reason=reason, exporter=exporter, protocol=protocol)
    return False
