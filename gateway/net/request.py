"""A request, ready to be sent, and URLs that others write: in answers, documents and messages. Sends nothing."""

from collections.abc import Mapping
from typing import Final

import msgspec
from multidict import CIMultiDictProxy
from yarl import URL

from gateway.net.streamed_body import StreamedBody


class Header(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str
    is_bound: bool
    """Whether it is meant for the request's own origin alone, and is not carried to another by a redirect."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request, ready to be sent."""

    method: str
    url: URL
    headers: tuple[Header, ...]
    body: bytes | StreamedBody | None = None
    has_secret_body: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Identifies the request: equal only for two that are the same, whatever boundary a multipart body has."""
        if isinstance(self.body, StreamedBody):
            boundary = self.body.boundary.decode()
            values = [
                (each.name, each.value.replace(boundary, "") if boundary else each.value) for each in self.headers
            ]
            return self.method, str(self.url), values, self.body.key
        return self.method, str(self.url), self.headers, self.body


REJECTIONS: Final = frozenset({401, 403})
"""Statuses of responses to requests whose credentials are not sufficient."""


class Rejection(msgspec.Struct, frozen=True):
    """A response with a status of `REJECTIONS`, and the request that it answers."""

    request: Request
    status: int
    headers: CIMultiDictProxy[str]
    attempt: int
    """How often the request has been sent."""


def bound(fields: Mapping[str, str]) -> tuple[Header, ...]:
    """Return header fields that no redirect carries to another origin."""
    return tuple(Header(name=name, value=value, is_bound=True) for name, value in fields.items())


def parse_url(text: str, *, encoded: bool = False) -> URL:
    """Return a URL or a URL reference (RFC 3986 §4.1); with `encoded`, exactly as it is written.

    Raises:
        ValueError: it is none.
    """
    try:
        return URL(text, encoded=encoded)
    except IndexError as error:  # for `//[]@`: https://github.com/aio-libs/yarl/issues/1822
        raise ValueError("the host is not valid") from error


def origin_of(url: URL) -> tuple[str, str | None, int | None]:
    """RFC 6454 §4: scheme, host in lower case, and port, also where it is the scheme's own."""
    return url.scheme, url.raw_host and url.raw_host.lower(), url.port
