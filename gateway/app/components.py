"""The components of a daemon: one object of each room, made before a socket is opened."""

from collections.abc import Iterator, Mapping

import msgspec

from gateway.access.authenticator import Authenticator
from gateway.app.client_counts import RecentClients
from gateway.app.listeners import Listeners
from gateway.audit.recorder import AuditRecorder
from gateway.events import Events
from gateway.executors.shared_services import Services
from gateway.openapi.source import OpenApiSource
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.reload.candidate import Candidate
from gateway.reload.pipeline import ReloadPipeline
from gateway.reload.reloader import Reloader
from gateway.state.state import DaemonState
from gateway.telemetry.call_metrics import CallMetrics
from gateway.transports.http.quota import ResourceQuota
from gateway.transports.http_server import HttpServer
from gateway.transports.write_quota import WriteQuota
from gateway.upstreams.source import UpstreamSource


class Components(msgspec.Struct, kw_only=True, eq=False):
    """References to the objects that start, serve and end together. Reports read them when they are asked."""

    events: Events
    pipeline: ReloadPipeline
    reloader: Reloader[Candidate]
    dispatcher: Dispatcher
    services: Services
    authenticator: Authenticator
    auditing: AuditRecorder
    state: DaemonState
    upstreams: UpstreamSource
    documents: OpenApiSource
    call_metrics: CallMetrics
    recent_clients: RecentClients
    listeners: Listeners | None = None
    """Set once the daemon listens."""

    @property
    def http(self) -> HttpServer | None:
        """The HTTP server, once the daemon listens; None where HTTP is not served."""
        return None if self.listeners is None else self.listeners.http

    @property
    def quotas(self) -> Mapping[str, ResourceQuota | WriteQuota]:
        """The quotas of HTTP, by their keys under `limits`."""
        return {} if self.http is None else self.http.quotas

    @property
    def refusals(self) -> Mapping[str, int]:
        """The number of refusals by each limit, by its key under `limits`."""
        return {
            "rate": self.dispatcher.rates.refused,
            "concurrency": self.dispatcher.concurrency.refused,
            "tasks": self.dispatcher.tasks.limiter.refused,
            **{name: quota.refused for name, quota in self.quotas.items()},
        }

    def open_sessions(self) -> Iterator[tuple[Binding, Session]]:
        """The open sessions of the legacy era, each with its transport."""
        return iter(()) if self.listeners is None else self.listeners.open_sessions()
