"""A request, ready to be sent. Sends nothing."""

import msgspec
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
