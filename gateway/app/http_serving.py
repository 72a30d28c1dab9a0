"""Makes the daemon's HTTP server, with its admin API and console."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog

from gateway.app.components import Components
from gateway.app.console_setup import ConsoleSetup
from gateway.app.monitoring.daemon_info import daemon_info
from gateway.app.monitoring.metrics import DaemonMetrics
from gateway.app.monitoring.tasks import TaskReport
from gateway.app.workers.all_workers import AllWorkers
from gateway.json_types import JsonObject
from gateway.telemetry.health import Health
from gateway.telemetry.logs import Logs
from gateway.transports.http.admin_api import AdminApi
from gateway.transports.http_server import HttpServer, ServerLimits
from gateway.transports.streamable_http.sessions import SessionPersistence

log: Final = structlog.get_logger()


def http_server(  # noqa: PLR0913 - the parts that a daemon brings
    components: Components,
    *,
    health: Health,
    metrics: DaemonMetrics,
    logs: Logs,
    reload: Callable[[], Awaitable[JsonObject]],
    config: Callable[[], Awaitable[JsonObject]],
    workers: AllWorkers | None,
    console_setup: ConsoleSetup | None,
) -> HttpServer:
    """Make the server, which does not listen yet. The sections `listen` and `limits` of now hold until the end."""
    document, state = components.pipeline.served.document, components.state
    console = None
    if console_setup is not None:
        console = console_setup.console(components, health=health, logs=logs, workers=workers)

    def mask(text: str) -> str:
        return components.pipeline.redactor.text(text)

    return HttpServer(
        document.listen,
        ServerLimits.of(document.listen, document.limits),
        dispatcher=components.dispatcher,
        authenticator=components.authenticator,
        admin_api=AdminApi(
            health=health,
            metrics=(workers or metrics).exposition,
            logs=logs,
            reload=reload if workers is None else partial(workers.reload, reload),
            config=config,
            tasks=TaskReport(
                components.dispatcher.tasks,
                mask=mask,
                progress=None if console_setup is None else console_setup.task_progress.shown,
            ),
            about=partial(daemon_info, components, has_console=console_setup is not None),
            workers=workers,
            console=console,
        ),
        tls=components.pipeline.tls,
        is_draining=lambda: health.is_stopping,
        mask=mask,
        persistence=SessionPersistence(keys=state.keys, store=state.sessions, clock=state.clock, replica=state.replica),
    )
