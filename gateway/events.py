"""Events that components of the daemon publish, and the class that delivers them to subscribers.

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
        """Call the handler for each event of the class `kind`. Handlers must not block or raise exceptions."""
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
    """The configuration path of the service, such as `upstreams.github`."""
    is_of_replica: bool = False
    """Whether the change happened at another replica."""


class WatchedResourcesChanged(msgspec.Struct, frozen=True):
    pass


class UpstreamResourceUpdated(msgspec.Struct, frozen=True):
    """An upstream server has updated a resource."""

    uri: str
    """The URI of the resource, as this daemon's clients use it."""


Change = Literal["changed", "updated", "enabled", "disabled"]


class PluginChange(msgspec.Struct, frozen=True):
    """A change by a plugin at run time that the other replicas must apply."""

    what: Change
    kind: str
    """The list that has changed: `tools`, `prompts` or `resources`."""
    name: str
    """The name or URI of the definition. Empty if the whole list has changed."""
