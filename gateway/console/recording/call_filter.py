"""The filter of `/-/api/calls`. It ignores bodies, because a search could reveal their secrets."""

from collections.abc import Mapping
from typing import Final, Self

import msgspec

from gateway.console.recording.call_record import CallRecord
from gateway.json_types import Json

MAX_LISTED: Final = 2000
_DEFAULT_LISTED: Final = 200
_EXACT: Final = ("method", "name", "outcome", "caller", "kind", "view", "revision", "transport", "sessionId")
"""Query parameters that filter the member with the same name. Values are separated by commas."""
_SEARCHED: Final = ("id", "method", "name", "caller", "address", "client", "sessionId")


class CallFilter(msgspec.Struct, frozen=True, kw_only=True):
    after: int | None = None
    before: int | None = None
    limit: int = _DEFAULT_LISTED
    exact: Mapping[str, frozenset[str]] = {}
    client: str = ""
    """Part of the client's name, in lower case."""
    text: str = ""
    """Part of any searched member, in lower case."""

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> Self:
        """Parse a query.

        Raises:
            ValueError: a number is malformed. The message names the parameter.
        """
        return cls(
            after=_number(query, "after"),
            before=_number(query, "before"),
            limit=min(_number(query, "limit") or _DEFAULT_LISTED, MAX_LISTED),
            exact={name: frozenset(query[name].split(",")) for name in _EXACT if query.get(name)},
            client=query.get("client", "").lower(),
            text=query.get("q", "").lower(),
        )

    def takes(self, record: CallRecord) -> dict[str, Json] | None:
        """Return the summary of a call that matches, or None."""
        if (self.after is not None and record.seq <= self.after) or (
            self.before is not None and record.seq >= self.before
        ):
            return None
        shown = record.summary()
        is_wanted = (
            all(shown[name] in values for name, values in self.exact.items())
            and self.client in shown["client"].lower()
            and (not self.text or any(self.text in str(shown[name] or "").lower() for name in _SEARCHED))
        )
        return shown if is_wanted else None


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"{name}: expected a number that is not negative")
    return int(text)
