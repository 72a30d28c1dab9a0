"""Typed events between parts of the daemon, which do not know each other.

Events used in several rooms are defined here, others in the room that publishes them. Handlers run on the event loop,
in
order of subscription.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

import msgspec

E = TypeVar("E")


class Events:
    """The subscriptions of a daemon."""

    def __init__(self) -> None:
        self._handlers: Final[defaultdict[type, list[Callable[[Any], None]]]] = defaultdict(list)

    def subscribe(self, kind: type[E], handler: Callable[[E], None]) -> None:
        """Call the handler for each event of a class. The handler must neither block nor raise."""
        self._handlers[kind].append(handler)

    def publish(self, event: object) -> None:
        for handler in self._handlers.get(type(event), ()):
            handler(event)


class SessionOpened(msgspec.Struct, frozen=True):
    """A legacy session was opened, or restored from another process."""

    session_id: str


class SessionEnded(msgspec.Struct, frozen=True):
    """A legacy session has ended."""

    session_id: str


class RootsChanged(msgspec.Struct, frozen=True):
    """The roots of a session's client have changed."""

    session_id: str


class SignInsChanged(msgspec.Struct, frozen=True):
    """A user has signed in to a service, or out of it."""

    entry: str
    """Path of the service in the file, such as `upstreams.github`."""


class WatchedResourcesChanged(msgspec.Struct, frozen=True):
    """The set of resources that clients watch has changed."""


class UpstreamResourceUpdated(msgspec.Struct, frozen=True):
    """An upstream has reported an update of a resource."""

    uri: str
    """The URI for clients of this daemon."""


Change = Literal["changed", "updated", "enabled", "disabled"]
"""A changed list, an updated resource, or an enabled or disabled primitive."""


class PluginChange(msgspec.Struct, frozen=True):
    """A plugin has made a change at run time that the other replicas must apply."""

    what: Change
    kind: str
    """The list: `tools`, `prompts` or `resources`."""
    name: str
    """The name of the primitive or the URI; empty for a list."""
