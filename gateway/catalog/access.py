"""Access: the scopes that a caller needs for a primitive, or for a view."""

from typing import Final

import msgspec


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The scopes that a caller needs."""

    scopes: frozenset[str] = frozenset()
    """All of these are required."""
    is_visible: bool = False
    """True if it is listed to callers who lack some, so that they can ask for more."""

    def is_listed_for(self, held: frozenset[str]) -> bool:
        return self.is_visible or self.scopes <= held


EVERYBODY: Final = Access()
