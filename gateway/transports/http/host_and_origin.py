"""Checks hosts, origins and message framing. No I/O.

Threats:

- DNS rebinding: a web page points its domain at this machine. `Host` must be a configured name. An IP address cannot
  be a rebound name, so a listener on a wildcard address accepts any IP address.
- A web page of another site sends requests to a loopback listener. `Origin` must be allowed. `Origin: null` (a
  sandboxed frame or a local file) is rejected unless it is configured.
- Request smuggling: aiohttp's parser (llhttp in strict mode) rejects ambiguous lengths, codings, line endings and
  chunks. Codings other than `chunked` are rejected here.
- A target in absolute form with a different host than `Host`: the target's host is checked (RFC 9112 §3.2.2).
"""

import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from aiohttp import HttpVersion10, web

from gateway.config.models.address import Address, is_loopback_name
from gateway.transports.errors import HttpError
from gateway.transports.http.forwarded import plain_address

ALLOWED_METHODS: Final = "POST, GET, DELETE, OPTIONS"
# Browser clients need these two headers. By default, pages of other origins can only read safelisted headers (Fetch).
EXPOSED_HEADERS: Final = "Mcp-Session-Id, WWW-Authenticate"
PREFLIGHT_SECONDS: Final = 600

_ANY: Final = "*"
_NO_ORIGIN: Final = ""
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to
_ALLOWED_HEADERS: Final = {
    name.lower(): name
    for name in (
        "Content-Type",
        "Accept",
        "Authorization",
        "DPoP",
        "X-API-Key",
        "Mcp-Session-Id",
        "MCP-Protocol-Version",
        "Last-Event-ID",
        "Mcp-Method",
        "Mcp-Name",
    )
}
_PARAMETER_HEADER: Final = re.compile(r"mcp-param-[!#$%&'*+.^_`|~0-9a-z-]+", re.IGNORECASE)
_HOST: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\s:/@\[\]]+)(?::(?P<port>[0-9]{1,5}))?", re.IGNORECASE)
_ORIGIN: Final = re.compile(r"null|(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[^\s/?#@]+)", re.IGNORECASE)
"""Matches an origin (RFC 6454 §7.1), or `null`. `_HOST` then checks the host and the port."""
_MAX_SHOWN_LENGTH: Final = 200
_HIGHEST_PORT: Final = 65535


class Guard:
    def __init__(
        self,
        *,
        address: Address,
        public_url: str | None = None,
        allowed_hosts: Iterable[str] | None = None,
        allowed_origins: Iterable[str] | None = None,
    ) -> None:
        hosts = _default_hosts(address, public_url) if allowed_hosts is None else allowed_hosts
        self._hosts = frozenset(host.lower() for host in hosts)
        # Keep the dot: `*.example.com` must not match `evilexample.com`.
        self._suffixes = tuple(host[1:] for host in self._hosts if host.startswith("*."))
        self._takes_addresses = allowed_hosts is None and address.host in _WILDCARDS
        self._takes_loopback_origins = allowed_origins is None
        origins = [public_url] if allowed_origins is None and public_url else allowed_origins or ()
        self._origins = frozenset(origin_of(_without_path(origin)) for origin in origins)

    def check(self, *, host: str | None, origin: str | None) -> HttpError | None:
        """Return an error unless the host and origin are allowed.

        1. `Host` must be allowed (otherwise 421, RFC 9110 §15.5.20).
        2. `Origin` must be missing or allowed (otherwise 403, MCP 2025-11-25 basic/transports, "Security Warning").
        """
        if not self._is_our_host(host):
            return HttpError(
                status=421,
                message=f"This server does not accept {_named('Host', host or '', _HOST)}. "
                "Add the name to listen.allowed_hosts, or set listen.public_url.",
            )
        if origin is not None and not self.is_allowed_origin(origin):
            return HttpError(
                status=403,
                message=f"Requests from {_named('Origin', origin, _ORIGIN)} are not allowed. "
                "To allow them, add the origin to listen.allowed_origins.",
            )
        return None

    def is_allowed_origin(self, origin: str) -> bool:
        normal = origin_of(origin)
        if _ANY in self._origins or (normal in self._origins and normal != _NO_ORIGIN):
            return True
        return self._takes_loopback_origins and _is_loopback_origin(normal)

    def cors(self, origin: str | None) -> Mapping[str, str]:
        """Return the CORS headers of a response to this origin."""
        # Fetch, "CORS protocol and HTTP caches": without `Vary`, caches could return a response for the wrong origin.
        if origin is None or not self.is_allowed_origin(origin):
            return _VARY
        return {
            # No `Access-Control-Allow-Credentials`: the console's cookie is only for our own origin.
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": EXPOSED_HEADERS,
            "Vary": "Origin",
        }

    def preflight(self, origin: str, *, requested_headers: str) -> Mapping[str, str]:
        # Fetch §3.2.3 has no patterns, so list each requested `Mcp-Param-*` header.
        names = [name.strip() for name in requested_headers.split(",")]
        parameters = [name for name in names if _PARAMETER_HEADER.fullmatch(name)]
        return {
            **self.cors(origin),
            "Access-Control-Allow-Methods": ALLOWED_METHODS,
            "Access-Control-Allow-Headers": ", ".join([*_ALLOWED_HEADERS.values(), *parameters]),
            "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
        }

    def _is_our_host(self, host: str | None) -> bool:
        if _ANY in self._hosts:
            return True
        match = _HOST.fullmatch((host or "").lower())
        if match is None:
            return False
        # RFC 3986 §3.2.2: a fully qualified name can end with a dot.
        name = match["name"].removesuffix(".")
        if name in self._hosts or match[0] in self._hosts or name.endswith(self._suffixes):
            return True
        return self._takes_addresses and _is_ip_address(name)


def _named(field: str, value: str, form: re.Pattern[str]) -> str:
    return f"the {field} {value!r}" if len(value) <= _MAX_SHOWN_LENGTH and form.fullmatch(value) else f"this {field}"


_VARY: Final[Mapping[str, str]] = {"Vary": "Origin"}


def is_loopback_host(host: str | None) -> bool:
    match = _HOST.fullmatch((host or "").lower())
    return match is not None and match["name"].removesuffix(".") in _LOOPBACK_NAMES


def is_loopback_address(address: str) -> bool:
    return is_loopback_name(plain_address(address))


def _default_hosts(address: Address, public_url: str | None) -> Iterable[str]:
    yield from _LOOPBACK_NAMES
    if address.host not in _WILDCARDS:
        yield f"[{address.host}]" if ":" in address.host else address.host
    if public_url and (name := urlsplit(public_url).hostname):
        yield f"[{name}]" if ":" in name else name


def origin_of(text: str) -> str:
    """Normalize an origin (RFC 6454 §6.2): lower case, without the default port."""
    text = text.lower()
    if text in {_ANY, "null"}:
        return text
    origin = _ORIGIN.fullmatch(text)
    host = _HOST.fullmatch(origin["host"]) if origin else None
    if origin is None or host is None or (host["port"] and int(host["port"]) > _HIGHEST_PORT):
        return _NO_ORIGIN
    scheme, name = origin["scheme"], host["name"]
    # Browsers omit the default port, but the configuration can contain it.
    is_default = host["port"] is None or (scheme, int(host["port"])) in {("http", 80), ("https", 443)}
    return f"{scheme}://{name}" if is_default else f"{scheme}://{name}:{int(host['port'])}"


def _without_path(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.partition('/')[0]}"


def _is_loopback_origin(origin: str) -> bool:
    scheme, separator, host = origin.partition("://")
    return bool(separator) and scheme in {"http", "https"} and is_loopback_host(host)


def _is_ip_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


_CHUNKED: Final = "chunked"


def refusal_of(request: web.BaseRequest) -> HttpError | None:
    """Return an error unless the HTTP version and the transfer coding are supported.

    1. The version is HTTP/1.0 or later (otherwise 505).
    2. The transfer coding is `chunked` or missing (otherwise 501).
    """
    if request.version < HttpVersion10:
        return HttpError(status=505, message="HTTP/1.1 is required", headers={"Connection": "close"})
    coding = request.headers.get("Transfer-Encoding")
    if coding is not None and coding.strip().lower() != _CHUNKED:
        # RFC 9112 §6.1: 501 for an unknown transfer coding.
        return HttpError(status=501, message="The only supported transfer coding is chunked")
    return None


def host_of(request: web.BaseRequest) -> str:
    """Return the host of the request target, or `Host` if the target has none."""
    target = request.raw_path
    if target.startswith("/") or "://" not in target:
        return request.headers.get("Host", "")
    # Keep credentials, so that a host with credentials does not match the guard's pattern.
    return target.partition("://")[2].partition("/")[0].partition("?")[0]
