"""The objects of a daemon, which `build` creates."""

from collections.abc import Callable

import msgspec

from gateway.access.authenticator import Authenticator
from gateway.app.reload_requests import ReloadRequests
from gateway.audit.recorder import AuditRecorder
from gateway.config.secrets.redactor import LiveRedactor
from gateway.config.settings import Settings
from gateway.console.console import WebConsole
from gateway.console.event_feed import EventFeed
from gateway.console.this_worker import ThisWorker
from gateway.events import Events
from gateway.executors.shared_services import Services
from gateway.json_types import JsonObject
from gateway.openapi.remote_documents import RemoteDocuments
from gateway.protocol.dispatcher import Dispatcher
from gateway.reload.pipeline import ReloadPipeline
from gateway.reload.reloader import Reloader
from gateway.state.state import DaemonState
from gateway.telemetry.health import Health
from gateway.telemetry.logs import Logs
from gateway.telemetry.metrics import CallMetrics, MetricsExposition
from gateway.transports.http.admin_api import AdminApi
from gateway.transports.http_server import HttpServer
from gateway.transports.stdio.stdio import Stdio
from gateway.upstreams.source import UpstreamSource


class Core(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a daemon that do not depend on a transport."""

    settings: Settings
    redactor: LiveRedactor
    events: Events
    state: DaemonState
    services: Services
    authenticator: Authenticator
    audit: AuditRecorder
    upstreams: UpstreamSource
    documents: RemoteDocuments
    pipeline: ReloadPipeline
    reloader: Reloader
    dispatcher: Dispatcher
    call_metrics: CallMetrics
    health: Health


class App(msgspec.Struct, frozen=True, kw_only=True):
    core: Core
    logs: Logs
    status: Callable[[], JsonObject]
    """Returns the response body of `/-/status` for this process."""
    metrics: MetricsExposition
    reloads: ReloadRequests
    http: HttpServer | None
    stdio: Stdio | None
    admin_api: AdminApi
    console: WebConsole | None
    console_feed: EventFeed
    console_worker: ThisWorker | None
    """Responds to other workers that request this worker's console data."""
