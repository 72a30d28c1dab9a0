"""The parts of a running daemon that the console reads."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

import msgspec

from gateway.errors import Problem
from gateway.executors.shared_services import Services
from gateway.json_types import Json, JsonObject
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.reload.candidate import Candidate
from gateway.reload.pipeline import ReloadPipeline
from gateway.reload.reloader import Reloader
from gateway.transports.http_server import HttpServer
from gateway.upstreams.server import UpstreamServer

AskOthers = Callable[[str, str], Awaitable[Sequence[Json]]]
"""Has the other workers answer a method and a path (see `ThisWorker.answer`), and returns what is not None."""


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """References; nothing is read before somebody asks."""

    pipeline: ReloadPipeline
    reloader: Reloader[Candidate]
    dispatcher: Dispatcher
    services: Services
    upstreams: Callable[[], Mapping[str, UpstreamServer]]
    """Those of the file, by name."""
    http: Callable[[], HttpServer | None]
    """None until the daemon listens."""
    open_sessions: Callable[[], Iterator[tuple[Binding, Session]]]
    state: Callable[[], str]
    """`ready`, `starting`, `stopping` …"""
    status: Callable[[], Awaitable[JsonObject]]
    """The answer of `/-/status`, of all workers."""
    ask_others: AskOthers

    @property
    def problems(self) -> Sequence[Problem]:
        """The problems that keep the files from being served, then the warnings of what is served."""
        return [*self.reloader.status.problems, *self.pipeline.store.current.warnings]
