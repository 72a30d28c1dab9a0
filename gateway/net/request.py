"""Requests that are ready to be sent, and functions that parse URLs. No I/O."""

from collections.abc import Mapping
from typing import Final

import msgspec
from multidict import CIMultiDictProxy
from yarl import URL

from gateway.json_types import Json


class Header(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str
    is_bound: bool
    """Whether the header is removed when a redirect leads to another origin."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    url: URL
    headers: tuple[Header, ...]
    body: bytes | None = None
    body_summary: Json = None
    """Describes the body in the output of `explain` if the body is not text."""
    has_secret_body: bool = False
    home: tuple[str, str | None, int | None] | None = None
    """The origin that receives the client certificate, or None for the origin of `url`."""

    @property
    def key(self) -> tuple[object, ...]:
        """A cache key, equal for identical requests."""
        return self.method, str(self.url), self.headers, self.body

    @property
    def credentials(self) -> str | None:
        """The value of the header `Authorization`."""
        return next((field.value for field in self.headers if field.name == AUTHORIZATION), None)


AUTHORIZATION: Final = "Authorization"
MAX_ATTEMPTS: Final = 4
"""The maximum number of attempts. A rejected token and each new DPoP nonce require another attempt."""
REJECTIONS: Final = frozenset({401, 403})
"""Statuses that can mean that the credentials of a request are missing or insufficient."""


class Rejection(msgspec.Struct, frozen=True):
    """A response with status 401 or 403, and the rejected request."""

    request: Request
    status: int
    headers: CIMultiDictProxy[str]
    attempt: int


def bound(fields: Mapping[str, str]) -> tuple[Header, ...]:
    """Return headers that are removed when a redirect leads to another origin."""
    return tuple(Header(name=name, value=value, is_bound=True) for name, value in fields.items())


def parse_url(text: str, *, encoded: bool = False) -> URL:
    """Parse a URL or a relative reference (RFC 3986 §4.1), or raise ValueError.

    If `encoded` is true, percent-encoding in the URL is not changed.
    """
    try:
        return URL(text, encoded=encoded)
    except IndexError as error:  # for `//[]@`: https://github.com/aio-libs/yarl/issues/1822
        raise ValueError("the host is not valid") from error


def origin_of(url: URL) -> tuple[str, str | None, int | None]:
    """Return the origin of a URL: scheme, lowercase host, and port, including default ports (RFC 6454 §4)."""
    return url.scheme, url.raw_host and url.raw_host.lower(), url.port
