"""The parts of a running daemon that the console reads."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from gateway.json_types import JsonObject
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.reload.candidate import Candidate
from gateway.reload.pipeline import ReloadPipeline
from gateway.reload.reloader import Reloader
from gateway.transports.http_server import HttpServer

if TYPE_CHECKING:
    from gateway.upstreams.server import UpstreamServer


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """References; nothing is read before somebody asks."""

    pipeline: ReloadPipeline
    reloader: Reloader[Candidate]
    dispatcher: Dispatcher
    upstreams: "Callable[[], Mapping[str, UpstreamServer]]"
    """Those of the file, by name."""
    http: Callable[[], HttpServer | None]
    """None until the daemon listens."""
    open_sessions: Callable[[], Iterator[tuple[Binding, Session]]]
    status: Callable[[], JsonObject]
    """The answer of `/-/status`."""
    state: Callable[[], str]
    """`ready`, `starting`, `stopping` …"""
