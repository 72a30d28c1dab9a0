"""Where a redirect leads, and what of the request goes there. Pure: request and response facts in, request out."""

import re
from dataclasses import replace
from typing import Final

from yarl import URL

from gateway.errors import ExecutionError
from gateway.executors.http.request import Request

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]+(%25\w+)?")
"""A name, an address, and nothing that a proxy or a server could decode to another (RFC 3986 §3.2.2 allows `%31`)."""


def redirected(request: Request, *, status: int, location: str) -> Request:
    """Return the request that follows a redirect, as browsers have it.

    1. The target must be http or https at a plain host, and never http after https.
    2. 303 becomes GET, and so does a POST at 301 and 302; the body goes with the method (Fetch, "HTTP-redirect fetch").
    3. At another origin, headers that are bound to the first one are dropped, and a body that holds a secret of the
       file is not sent.

    Raises:
        ExecutionError: it must not be followed.
    """
    target = _target(request.url, location)
    following = replace(request, url=target)
    if _becomes_get(request.method, status):
        headers = tuple(header for header in request.headers if not header.name.lower().startswith("content-"))
        following = replace(following, method="GET", headers=headers, body=None)
    if origin_of(target) == origin_of(request.url):
        return following
    if following.body is not None and request.has_secret_body:
        raise ExecutionError(f"{request.url.host} redirects to another origin; a body that holds a secret stays here")
    return replace(following, headers=tuple(header for header in following.headers if not header.is_bound))


def origin_of(url: URL) -> tuple[str, str | None, int | None]:
    """RFC 6454 §4: scheme, host in lower case, and port, also where it is the scheme's own."""
    return url.scheme, url.host and url.host.lower(), url.port


def _target(base: URL, location: str) -> URL:
    try:
        target = base.join(URL(location)).with_fragment(None)
        if target.scheme not in {"http", "https"} or not _HOST.fullmatch(target.raw_host or ""):
            raise ExecutionError(f"{base.host} redirects to what is not a web address")
        target = target.with_user(None)
    except ValueError as error:
        raise ExecutionError(f"{base.host} redirects to what is not a URL") from error
    if base.scheme == "https" and target.scheme == "http":
        raise ExecutionError(f"{base.host} redirects from https to http, which is not followed")
    return target


def _becomes_get(method: str, status: int) -> bool:
    return (status == 303 and method not in {"GET", "HEAD"}) or (status in {301, 302} and method == "POST")
