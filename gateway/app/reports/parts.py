"""The parts of a running daemon of which reports tell."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gateway.access.authenticator import Authenticator
from gateway.app.listening.listeners import Listeners
from gateway.app.offer import Build, Offer
from gateway.app.reports.auditing import Auditing
from gateway.executors.services import Services
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.reloader.reloader import Reloader
from gateway.transports.ration import Ration


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Whom to ask. Nothing is asked before somebody looks."""

    offer: Offer
    reloader: Reloader[Build]
    dispatcher: Dispatcher
    services: Services
    authenticator: Authenticator
    auditing: Auditing
    listeners: Callable[[], Listeners | None]
    """They are there once the daemon listens."""

    @property
    def rations(self) -> Mapping[str, Ration]:
        """Of what there is a limited number, by its name under `limits`."""
        listeners = self.listeners()
        return {} if listeners is None else listeners.rations

    @property
    def refusals(self) -> Mapping[str, int]:
        """How often a limit has refused somebody, by the limit's name."""
        return {
            "rate": self.dispatcher.rates.refused,
            "concurrency": self.dispatcher.slots.refused,
            **{name: ration.refused for name, ration in self.rations.items()},
        }

    def open_sessions(self) -> Iterator[tuple[Binding, Session]]:
        """The sessions of the legacy era, with the transport that each has."""
        listeners = self.listeners()
        return iter(()) if listeners is None else listeners.open_sessions()
