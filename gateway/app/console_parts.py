"""The console's part of the daemon: what records for it, and what its API asks. Imported only where it is served."""

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from gateway.app.reports.components import Components
from gateway.config.models.console import ConsolePage
from gateway.console.admission import Admission
from gateway.console.api_path import ApiPart, ApiPath
from gateway.console.console import Console
from gateway.console.mcp_endpoint import McpEndpoint
from gateway.console.overview import Overview
from gateway.console.printed_token import PrintedToken
from gateway.console.recorded import NothingRecorded
from gateway.console.session_cookie import SessionCookies
from gateway.console.static_files import read_static_files
from gateway.json_types import JsonObject
from gateway.state.keys import SigningKeys
from gateway.telemetry.observer import Observer
from gateway.transports.http.admin_api import OPERATORS
from gateway.transports.http.middleware import Endpoint

log: Final = structlog.get_logger()


class ConsoleParts:
    """Makes the console of one daemon."""

    def __init__(self) -> None:
        """Record nothing yet."""
        self.observers: Final[Sequence[Observer]] = ()
        """Called for each call, for what the console shows of them."""

    def console(
        self,
        page: ConsolePage,
        components: Components,
        *,
        shared_keys: SigningKeys | None,
        status: Callable[[], JsonObject],
    ) -> Console:
        """Make the console.

        Args:
            page: the key `listen.console`.
            components: those of the daemon, once it is loaded.
            shared_keys: the signing keys that other workers and replicas have as well, if any do.
            status: the answer of `/-/status`.
        """
        parts: list[ApiPart] = []
        return Console(
            admission=Admission(
                authenticator=components.authenticator,
                scopes=page.scopes,
                operators=OPERATORS,
                token=PrintedToken(shared_keys),
                cookies=SessionCookies(components.state.keys, clock=components.state.clock),
            ),
            files=read_static_files(),
            parts=parts,
            own=[
                ApiPath(path="/overview", answer=Overview(status, recorded=NothingRecorded()).answer),
                ApiPath(path="/mcp", answer=_mcp(components).answer, methods=("POST",)),
            ],
        )


def _mcp(components: Components) -> McpEndpoint:
    def endpoint() -> Endpoint:
        listeners = components.listeners()
        if listeners is None:
            raise RuntimeError("not listening")
        return listeners.http.streamable_http.handle

    return McpEndpoint(endpoint, find_view=components.dispatcher.view)
