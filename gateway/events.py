"""Events between parts of the daemon: a part publishes what has happened, and does not know who reacts.

An event is an instance of a class. Events that cross rooms in both directions are defined here; others in the room that
publishes them. Everything happens on the event loop, in the order of subscription.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

import msgspec

E = TypeVar("E")


class Events:
    """The subscriptions of one daemon."""

    def __init__(self) -> None:
        self._handlers: Final[defaultdict[type, list[Callable[[Any], None]]]] = defaultdict(list)

    def subscribe(self, kind: type[E], handler: Callable[[E], None]) -> None:
        """Call the handler with each event of a class. It must neither block nor raise."""
        self._handlers[kind].append(handler)

    def publish(self, event: object) -> None:
        for handler in self._handlers.get(type(event), ()):
            handler(event)


class SessionOpened(msgspec.Struct, frozen=True):
    """A session of the legacy era began here, or was taken over from another process."""

    session_id: str


class SessionEnded(msgspec.Struct, frozen=True):
    """A session of the legacy era has ended."""

    session_id: str


class RootsChanged(msgspec.Struct, frozen=True):
    """The client of a session has other roots than before."""

    session_id: str


class WatchedResourcesChanged(msgspec.Struct, frozen=True):
    """Clients watch other resources than before."""


class UpstreamResourceUpdated(msgspec.Struct, frozen=True):
    """An upstream says that a resource was updated."""

    uri: str
    """As clients of this daemon know it."""


Change = Literal["changed", "updated", "enabled", "disabled"]
"""A list was changed, a resource updated, a primitive enabled or disabled."""


class PluginChange(msgspec.Struct, frozen=True):
    """A plugin has changed something at run time that other replicas have to follow."""

    what: Change
    kind: str
    """The list: `tools`, `prompts` or `resources`."""
    name: str
    """Of the primitive or the URI; empty for a list."""
