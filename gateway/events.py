"""Events that parts of the daemon send to each other, and a small publish/subscribe.

Handlers run on the event loop in the order of subscription.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

import msgspec

E = TypeVar("E")


class Events:
    def __init__(self) -> None:
        self._handlers: Final[defaultdict[type, list[Callable[[Any], None]]]] = defaultdict(list)

    def subscribe(self, kind: type[E], handler: Callable[[E], None]) -> None:
        """Call the handler for each event of a class. Handlers must not block or raise exceptions."""
        self._handlers[kind].append(handler)

    def publish(self, event: object) -> None:
        for handler in self._handlers.get(type(event), ()):
            handler(event)


class SessionOpened(msgspec.Struct, frozen=True):
    session_id: str


class SessionEnded(msgspec.Struct, frozen=True):
    session_id: str


class RootsChanged(msgspec.Struct, frozen=True):
    """The client of a session has reported new roots."""

    session_id: str


class SignInsChanged(msgspec.Struct, frozen=True):
    """A user has signed in to a service or signed out."""

    entry: str
    """Path of the service in the file, such as `upstreams.github`."""
    is_of_replica: bool = False
    """Whether the change happened at another replica."""


class WatchedResourcesChanged(msgspec.Struct, frozen=True):
    pass


class UpstreamResourceUpdated(msgspec.Struct, frozen=True):
    """An upstream server has updated a resource."""

    uri: str
    """The URI that this daemon's clients use."""


Change = Literal["changed", "updated", "enabled", "disabled"]


class PluginChange(msgspec.Struct, frozen=True):
    """A change by a plugin at run time that the other replicas must apply."""

    what: Change
    kind: str
    """`tools`, `prompts` or `resources`."""
    name: str
    """The name of the primitive or its URI. Empty if the whole list has changed."""
