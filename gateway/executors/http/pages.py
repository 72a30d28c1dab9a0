"""Joins the pages of a paginated response (`http.pages`)."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec
import orjson
from jmespath.parser import ParsedResult
from msgspec.structs import replace

from gateway import exact_json
from gateway.errors import ExecutionError
from gateway.executors.output.formats import select
from gateway.executors.output.media_types import declared_encoding
from gateway.json_types import Json
from gateway.net.request import Request, origin_of
from gateway.net.sender import MAX_RESPONSE_BYTES, Response, resolved, valid_text

# Both patterns take linear time: a match ends before the next match starts, and an unterminated string is scanned once.
_LINK: Final = re.compile(r"""<([^<>]*)>((?:[^,"<\\]|"(?:[^"\\]|\\.)*")*)""")
_PARAMETER: Final = re.compile(r"""; *([\w*-]+) *(?:= *("(?:[^"\\]|\\.)*"|[^;, ]*))?""")
_MAX_LINK_SIZE: Final = 16 * 1024


class Pages(msgspec.Struct, frozen=True, kw_only=True):
    next: ParsedResult | None
    """Selects the URL of the next page. None to read the `Link` header instead."""
    max: int
    max_bytes: int
    """The limit in bytes for the JSON of all pages together, after `select` is applied."""
    select: ParsedResult | None

    def next_of(self, links: str, page: Json) -> str | None:
        """Return the URL of the next page. `links` is the value of the `Link` header.

        Raises:
            ExecutionError: the expression does not select a URL.
        """
        if self.next is None:
            return next(_next_links(valid_text(links)), None)
        found = select(self.next, page, key="pages.next", source="response")
        if isinstance(found, str):
            return found or None
        if found is None or found is False:
            return None
        raise ExecutionError(f"`pages.next` must select a URL (got {exact_json.dumps(found).decode()[:100]})")

    def size_of(self, page: Json) -> int:
        try:
            return len(exact_json.dumps(page if self.select is None else select(self.select, page, key="select")))
        except (ExecutionError, TypeError, ValueError):
            return 0  # the output shaper reports the error


class JoinedPages:
    def __init__(self, pages: Pages, request: Request, *, crosses_origins: bool) -> None:
        self._pages: Final = pages
        self._first: Final = request
        self._crosses_origins: Final = crosses_origins
        self._seen: Final = {str(request.url)}
        self._raw_size = 0
        self._size = 0
        self.value: Json = None
        self.count = 0
        self.note: str | None = None
        """The reason why later pages are missing."""

    def add(self, response: Response, request: Request) -> Request | None:
        """Add a page, and return the request for the next page, if any. Set `note` if later pages are left out.

        Raises:
            ExecutionError: the page cannot be joined.
        """
        number, pages = self.count + 1, self._pages
        self._raw_size += len(response.body)
        page = _parsed(response)
        links = ", ".join(response.headers.getall("Link", ()))
        if pages.next is None and len(links) > _MAX_LINK_SIZE:
            self.note, links = f"the `Link` header of page {number} exceeds 16 KiB", ""
        location = pages.next_of(links, page)
        if page is _NOT_JSON:
            if number == 1 and location is None and pages.next is None:
                self.count = 1
                return None  # a single page of any type
            raise ExecutionError(f"page {number} is not JSON, so pages cannot be joined")
        size = pages.size_of(page)
        if number > 1 and (self._size + size > pages.max_bytes or self._raw_size > MAX_RESPONSE_BYTES):
            self.note = f"page {number} would exceed the output size limit (max_size)"
            return None
        if number == 1 and location is not None and not isinstance(page, list | dict):
            raise ExecutionError("page 1 is neither a list nor an object, so pages cannot be joined")
        try:
            self.value = page if number == 1 else _joined(self.value, page, number)
        except RecursionError as error:
            raise ExecutionError(f"page {number} is nested too deeply to be joined") from error
        self._size += size
        self.count = number
        return None if location is None else self._following(request, location)

    def _following(self, current: Request, location: str) -> Request | None:
        target = resolved(current.url, location, verb="links")
        if str(target) in self._seen:
            self.note = f"page {self.count} links to a page that was already fetched"
        elif self._size >= self._pages.max_bytes:
            self.note = "the output size limit (max_size) is reached"
        elif self.count >= self._pages.max:
            self.note = f"`pages.max` is {self._pages.max}"
        home = origin_of(self._first.url)
        if origin_of(target) != home and not self._crosses_origins:
            self.note = "the next page has another origin, and `follow_redirects` is 0"
        if self.note is not None:
            return None
        self._seen.add(str(target))
        if origin_of(target) == home:
            return replace(self._first, url=target)
        # Omit the headers and the body, which can contain secrets and values from the caller.
        return Request(method="GET", url=target, headers=(), home=home)


def _next_links(value: str) -> Iterator[str]:
    """Yield the targets of links with the relation `next` (RFC 8288 §3)."""
    for link in _LINK.finditer(value):
        parameters = {name.lower(): text.strip('"') for name, text in reversed(_PARAMETER.findall(link[2]))}
        # A link with `anchor` belongs to another resource.
        if "next" in parameters.get("rel", "").lower().split() and "anchor" not in parameters:
            yield link[1].strip()


_NOT_JSON: Final = object()


def _parsed(response: Response) -> Json:
    encoding = declared_encoding(response.body, response.headers.get("Content-Type"))
    try:
        return exact_json.loads(response.body if encoding is None else response.body.decode(encoding, errors="replace"))
    except orjson.JSONDecodeError:
        return _NOT_JSON


def _joined(before: Json, page: Json, number: int) -> Json:
    """Join lists, including lists inside objects. For other values, use the value of the last page."""
    if isinstance(before, list) and isinstance(page, list):
        return before + page
    if isinstance(before, dict) and isinstance(page, dict):
        return before | {
            name: _joined(before[name], value, number) if name in before else value for name, value in page.items()
        }
    if isinstance(before, list | dict) and page is not None and type(page) is not type(before):
        raise ExecutionError(f"page {number} has a different structure than earlier pages, so they cannot be joined")
    return before if isinstance(before, list) else page
