"""Finds the key set of an authorization server in its metadata (RFC 8414, OpenID Connect Discovery).

The operator chooses the URL of the issuer, so private addresses are allowed. The metadata must name the same issuer
(RFC 8414 §3.3) and an https URL for the keys.
"""

from collections.abc import Iterator
from typing import Final, Protocol
from urllib.parse import urlsplit, urlunsplit

from gateway.config.models.address import host_of, is_loopback_name
from gateway.errors import ExecutionError
from gateway.json_types import Json, JsonObject

_WELL_KNOWN: Final = "/.well-known"
_RFC_8414: Final = f"{_WELL_KNOWN}/oauth-authorization-server"
_OPENID: Final = f"{_WELL_KNOWN}/openid-configuration"


class FetchError(ExecutionError):
    """A request to an authorization server failed. The text is for the log of the operator."""


class NotFoundError(FetchError):
    """There is no document at the URL."""


class Fetch(Protocol):
    """Fetches a JSON document, bounded in time and size, without following redirects."""

    async def __call__(self, url: str) -> Json:
        """Return the document.

        Raises:
            FetchError: it could not be fetched.
        """


async def discover_keys_url(issuer: str, fetch: Fetch) -> str:
    """Return the URL of the key set.

    Raises:
        FetchError: the metadata cannot be fetched, or is not valid.
    """
    missing = f"{issuer} has no metadata at its well-known URLs; set auth.oauth.jwks_url"
    url, metadata = await first_document(metadata_urls(issuer), fetch, missing=missing)
    return _keys_url(metadata, issuer=issuer, url=url)


async def first_document(urls: Iterator[str], fetch: Fetch, *, missing: str) -> tuple[str, JsonObject]:
    """Return the first document that exists, and its URL.

    Raises:
        FetchError: no document exists, with the text `missing`, or one cannot be fetched.
    """
    for url in urls:
        try:
            document = await fetch(url)
        # Other failures end the search: the document can exist at this URL.
        except NotFoundError:
            continue
        if not isinstance(document, dict):
            raise FetchError(f"{url} is not a JSON object")
        return url, document
    raise FetchError(missing)


def is_trustworthy(url: str) -> bool:
    """Whether the network cannot forge responses from a URL: https, or http on this machine."""
    try:
        parts = urlsplit(url)
        host = host_of(parts.netloc)
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback_name(host)))


def metadata_urls(issuer: str) -> Iterator[str]:
    """Yield the well-known URLs (MCP 2025-11-25 basic/authorization, "Authorization Server Metadata Discovery")."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    yield urlunsplit(parts._replace(path=f"{_RFC_8414}{path}"))
    yield urlunsplit(parts._replace(path=f"{_OPENID}{path}"))
    if path:
        yield urlunsplit(parts._replace(path=f"{path}{_OPENID}"))


def _keys_url(metadata: JsonObject, *, issuer: str, url: str) -> str:
    named = metadata.get("issuer")
    if named != issuer:
        raise FetchError(f"{url}: its issuer is {named!r}, and auth.oauth.issuer is {issuer!r}; they must be the same")
    keys_url = metadata.get("jwks_uri")
    if not isinstance(keys_url, str):
        raise FetchError(f"{url} has no jwks_uri; set auth.oauth.jwks_url")
    # An attacker who can change the keys on the network can sign tokens.
    if not is_trustworthy(keys_url):
        raise FetchError(f"{url}: its jwks_uri {keys_url!r} must be an https URL")
    return keys_url
