"""All metrics of the daemon, as its admin API shows them."""

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Final

from gateway.app.components import Components
from gateway.telemetry.health import Health

if TYPE_CHECKING:
    from gateway.telemetry.metrics_exposition import MetricsExposition

_SOURCES: Final = "gateway.app.monitoring.metric_sources"
"""Imported by the first scrape, with Prometheus' library and the HTTP server that this has: many daemons see none."""


class DaemonMetrics:
    """Renders the metrics once they are asked for."""

    def __init__(self, components: Components, *, health: Health) -> None:
        self._components: Final = components
        self._health: Final = health
        self._made: MetricsExposition | None = None

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return the text of all metrics, and its media type, which suits an `Accept` field."""
        if self._made is None:
            sources = await asyncio.to_thread(import_module, _SOURCES)
            self._made = sources.metrics_exposition(self._components, health=self._health)
        return await self._made.exposition(accept)
