"""Reads the header fields of a request that endpoints and the protocol look at."""

from collections.abc import Mapping
from typing import Final

import msgspec
from aiohttp import web

from gateway.wire.accept import Accepted, parse_accept

_CREDENTIALS: Final = ("authorization", "cookie", "proxy-authorization", "x-api-key")


class HeaderFields(msgspec.Struct, frozen=True):
    """The header fields of a request. Two requests with the same ones may share this."""

    by_name: Mapping[str, str]
    """By lower-case name; differing values of one name are joined (RFC 9110 §5.3) and match neither.

    Without credentials: they have done their work in the middleware, and nobody further in can pass them on.
    """
    accepted: Accepted

    def with_length(self, length: str) -> "HeaderFields":
        """The same, of a request with a body of another length."""
        return HeaderFields({**self.by_name, "content-length": length}, self.accepted)


def read_fields(raw: web.BaseRequest) -> HeaderFields:
    fields = {name.lower(): value for name, value in raw.headers.items()}
    if len(fields) < len(raw.headers):
        for name in fields:
            fields[name] = ", ".join(dict.fromkeys(raw.headers.getall(name)))
    for name in _CREDENTIALS:
        fields.pop(name, None)
    return HeaderFields(fields, parse_accept(raw.headers.get("Accept")))
