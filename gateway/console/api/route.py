"""A route of the console's API."""

from typing import Final

import msgspec

from gateway.transports.http.middleware import Endpoint

READ: Final = ("GET", "HEAD")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One path of the API, and the endpoint that answers callers who may use the console, with their identity."""

    path: str
    """The path below `/-/api`, in the router's form: `/calls/{seq}`."""
    endpoint: Endpoint
    methods: tuple[str, ...] = READ
