"""The views that a caller of the console may use, by `?view=`."""

from collections.abc import Callable
from typing import Final

from gateway.access.identity.identity import Identity
from gateway.protocol.exchange import ViewEntry
from gateway.transports.errors import HttpError

NO_VIEW: Final = HttpError(status=404, message="There is no such view")


class OpenViews:
    """Decides as the daemon's endpoints do, but for telling who lacks scopes that a view is there."""

    def __init__(self, find: Callable[[str], ViewEntry | None]) -> None:
        self._find: Final = find

    def lets_in(self, identity: Identity, name: str | None) -> bool:
        """Tell whether a caller may use a view; None is the endpoint without one."""
        if not identity.may_enter(name):
            return False
        view = None if name is None else self._find(name)
        return name is None or (view is not None and identity.holds(view.scopes))
