"""A path of the console's API, and the parts that add paths."""

from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from gateway.transports.http.middleware import Endpoint

READ: Final = ("GET", "HEAD")


class ApiPath(msgspec.Struct, frozen=True, kw_only=True):
    """One path of the API. Its endpoint is called for callers who may use the console, with their identity."""

    path: str
    """What stands behind `/-/api`, in the router's form: `/calls/{seq}`."""
    answer: Endpoint
    methods: tuple[str, ...] = READ


class ApiPart(Protocol):
    """A part of the API: it adds its paths."""

    def paths(self) -> Iterable[ApiPath]: ...
