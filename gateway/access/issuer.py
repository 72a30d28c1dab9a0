"""Finds the key set of an authorization server in its metadata (RFC 8414, OpenID Connect Discovery).

The issuer's URL comes from the operator, so that private addresses are allowed. Its answer is not trusted as much: it
must name the same issuer as the file (RFC 8414 §3.3), and its keys must have an https URL.
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
    """A JSON document could not be fetched. The text says why, for the operator's log."""


class NotFoundError(FetchError):
    """The server has no document at that URL."""


class Fetch(Protocol):
    """Fetches a JSON document, bounded in time and size, without following redirects."""

    async def __call__(self, url: str) -> Json:
        """Return the document.

        Raises:
            FetchError: it could not be fetched.
        """


async def discover_keys_url(issuer: str, fetch: Fetch) -> str:
    """Return the URL of the issuer's key set.

    Raises:
        FetchError: its metadata cannot be fetched, or is not acceptable.
    """
    missing = f"{issuer} has no metadata at a well-known place; name its keys with auth.oauth.jwks_url"
    url, metadata = await first_document(metadata_urls(issuer), fetch, missing=missing)
    return _keys_url(metadata, issuer=issuer, url=url)


async def first_document(urls: Iterator[str], fetch: Fetch, *, missing: str) -> tuple[str, JsonObject]:
    """Return the first document that there is, and its URL.

    Raises:
        FetchError: there is none, with the text `missing`, or it cannot be fetched.
    """
    for url in urls:
        try:
            document = await fetch(url)
        # Any other failure ends the search: it does not say that the document is elsewhere.
        except NotFoundError:
            continue
        if not isinstance(document, dict):
            raise FetchError(f"{url}: is no JSON object")
        return url, document
    raise FetchError(missing)


def is_trustworthy(url: str) -> bool:
    """Whether nobody on the way can answer in the place of this URL's host: https, or http to this machine."""
    try:
        parts = urlsplit(url)
        host = host_of(parts.netloc)
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback_name(host)))


def metadata_urls(issuer: str) -> Iterator[str]:
    """Yield well-known URLs (MCP 2025-11-25 basic/authorization, "Authorization Server Metadata Discovery")."""
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
        raise FetchError(f"{url}: names no jwks_uri; name it with auth.oauth.jwks_url")
    # Whoever can change the keys on their way can sign tokens.
    if not is_trustworthy(keys_url):
        raise FetchError(f"{url}: its jwks_uri {keys_url!r} is no https URL")
    return keys_url
