"""What all listeners of the daemon are opened with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.access.authenticator import Authenticator
from gateway.config.document import Document
from gateway.config.settings import Settings
from gateway.errors import Problem
from gateway.transports.listener.inherited_sockets import Inherited
from gateway.transports.listener.server_tls import ServerTls
from gateway.transports.own_paths import OwnPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    settings: Settings
    document: Document
    """As it was at the start: `listen` and `limits` hold until the end."""
    exposures: Mapping[str, Problem]
    """The keys that name addresses which must not be listened on, and why."""
    authenticator: Authenticator
    own: OwnPaths
    mask: Callable[[str], str]
    """Takes the secrets out of text; follows reloads."""
    inherited: Inherited
    tls: ServerTls | None
