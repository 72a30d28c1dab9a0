"""All metrics of the daemon, as its admin API shows them."""

from typing import Final

from gateway.app.components import Components
from gateway.app.monitoring.metric_sources import metrics_exposition
from gateway.telemetry.health import Health
from gateway.telemetry.metrics_exposition import MetricsExposition


class DaemonMetrics:
    """Renders the metrics once they are asked for."""

    def __init__(self, components: Components, *, health: Health) -> None:
        self._components: Final = components
        self._health: Final = health
        self._made: MetricsExposition | None = None

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return the text of all metrics, and its media type, which suits an `Accept` field."""
        if self._made is None:
            self._made = metrics_exposition(self._components, health=self._health)
        return await self._made.exposition(accept)
