"""Refuses requests that a proxy before us could have read differently, or that name two hosts. Pure.

Threats answered here, and by the parser beneath (aiohttp's, which is llhttp without its leniences):

- Request smuggling: where one message ends and the next begins is read differently by two parsers, and what a client
  hid in between is answered to somebody else. The parser refuses a length given twice or beside `Transfer-Encoding`,
  lengths that are no plain number, codings that do not end in `chunked`, folded lines, bare CR and LF, spaces before a
  colon, control characters, and chunks whose sizes or ends are not exact; it closes the connection then. That each of
  these is so is tested, with and without a real nginx in front. Left for us: a coding besides `chunked`.
- A target in absolute form whose host is not that of `Host`: RFC 9112 §3.2.2 has the target's win, so the guard looks
  at that one.
- HTTP/0.9, which has no fields, and so neither a host nor an end that can be told.

`Upgrade` is not taken up; the request is answered as though it were not there (RFC 9110 §7.8).
"""

from typing import Final

from aiohttp import HttpVersion10, web

from gateway.transports.errors import HttpError

_CHUNKED: Final = "chunked"


def refusal_of(request: web.BaseRequest) -> HttpError | None:
    """Why a request is not looked at, or None.

    1. it is of HTTP/1.0 or later: 505
    2. its body comes in chunks or whole: 501
    """
    if request.version < HttpVersion10:
        return HttpError(status=505, message="HTTP/1.1 is spoken here", headers={"Connection": "close"})
    coding = request.headers.get("Transfer-Encoding")
    if coding is not None and coding.strip().lower() != _CHUNKED:
        # RFC 9112 §6.1: 501 is the answer to a coding that is not understood.
        return HttpError(status=501, message="The only transfer coding that is understood is chunked")
    return None


def host_of(request: web.BaseRequest) -> str:
    """The host that a request is for: its target's, where that has one, and otherwise that of `Host`."""
    target = request.raw_path
    if target.startswith("/") or "://" not in target:
        return request.headers.get("Host", "")
    # Credentials before an `@` are not cut off: a host with some has not the form that the guard asks for.
    return target.partition("://")[2].partition("/")[0].partition("?")[0]
