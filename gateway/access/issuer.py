"""Finds the key set of an authorization server in its metadata (RFC 8414, OpenID Connect Discovery).

Private addresses are allowed, because the operator chooses the issuer.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from gateway.config.models.address import host_of, is_loopback_name
from gateway.errors import ExecutionError
from gateway.json_types import Json, JsonObject

_WELL_KNOWN: Final = "/.well-known"
_RFC_8414: Final = f"{_WELL_KNOWN}/oauth-authorization-server"
_OPENID: Final = f"{_WELL_KNOWN}/openid-configuration"


class FetchError(ExecutionError):
    """A request to an authorization server failed. The text is logged."""


class NotFoundError(FetchError):
    """The server has no document at the URL."""


Fetch = Callable[[str], Awaitable[Json]]
"""Fetches the JSON document at a URL, or raises FetchError.

The function must limit the time and the size, and must not follow redirects.
"""


async def discover_keys_url(issuer: str, fetch: Fetch) -> str:
    """Return the URL of the key set. Raise FetchError if the metadata cannot be fetched, or is not valid."""
    url, metadata = await issuer_metadata(issuer, fetch, advice=". Set `auth.oauth.jwks_url`")
    keys_url = metadata.get("jwks_uri")
    if not isinstance(keys_url, str):
        raise FetchError(f"{url} has no jwks_uri. Set `auth.oauth.jwks_url`")
    # Require https, because an attacker who can replace the keys can sign tokens.
    if not is_trustworthy(keys_url):
        raise FetchError(f"The jwks_uri in {url} must be an https URL (got {keys_url!r})")
    return keys_url


async def issuer_metadata(issuer: str, fetch: Fetch, *, advice: str = "") -> tuple[str, JsonObject]:
    """Return the URL and the content of an issuer's metadata.

    Raises:
        NotFoundError: The metadata does not exist. The text ends with `advice`.
        FetchError: The metadata cannot be fetched, or belongs to a different issuer.
    """
    missing = f"{issuer} has no metadata at its well-known URLs{advice}"
    url, metadata = await first_document(metadata_urls(issuer), fetch, missing=missing)
    # RFC 8414 §3.3: the issuers must be identical, not merely equivalent.
    if (named := metadata.get("issuer")) != issuer:
        raise FetchError(f"{url} contains the metadata of a different issuer: {named!r}, not {issuer}")
    return url, metadata


async def first_document(urls: Iterator[str], fetch: Fetch, *, missing: str) -> tuple[str, JsonObject]:
    """Return the URL and the content of the first document that exists, or raise NotFoundError(`missing`)."""
    for url in urls:
        try:
            document = await fetch(url)
        # Other failures end the search, because the document could exist.
        except NotFoundError:
            continue
        if not isinstance(document, dict):
            raise FetchError(f"The document at {url} is not a JSON object")
        return url, document
    raise NotFoundError(missing)


def is_trustworthy(url: str) -> bool:
    """Return whether responses from a URL are protected from forgery: https, or http on this machine."""
    try:
        parts = urlsplit(url)
        host = host_of(parts.netloc)
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback_name(host)))


def metadata_urls(issuer: str) -> Iterator[str]:
    """Yield the metadata URLs (MCP 2025-11-25 basic/authorization, "Authorization Server Metadata Discovery")."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    yield urlunsplit(parts._replace(path=f"{_RFC_8414}{path}"))
    yield urlunsplit(parts._replace(path=f"{_OPENID}{path}"))
    if path:
        yield urlunsplit(parts._replace(path=f"{path}{_OPENID}"))
