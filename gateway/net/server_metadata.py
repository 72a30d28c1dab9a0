"""Discovers authorization servers and their endpoints (RFC 8414, OpenID Connect Discovery, RFC 9728).

Threat: forged metadata could send secrets to another server. Therefore, metadata must contain the requested issuer (RFC
8414 §3.3), and a service's metadata must contain the service's URL (RFC 9728 §3.3). URLs must use https, except for
loopback addresses. Redirects are not followed. `allow_private` of the connection also applies to these requests.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
import orjson
from yarl import URL

from gateway.access.introspection import PostResponse
from gateway.access.issuer import FetchError, NotFoundError, first_document, is_trustworthy, issuer_metadata
from gateway.errors import ExecutionError
from gateway.json_types import Json, JsonObject
from gateway.net.address_guard import ANYWHERE
from gateway.net.clients import HttpClients
from gateway.net.request import Header, Request, bound, parse_url
from gateway.net.sender import Sender

REQUEST_SECONDS: Final = 10.0
"""The timeout of a request to an authorization server."""
MAX_BYTES: Final = 512 * 1024
"""The maximum size of a response of an authorization server."""
ACCEPT_JSON: Final = Header(name="Accept", value="application/json", is_bound=False)
_PROTECTED_RESOURCE: Final = "/.well-known/oauth-protected-resource"
# The lookbehind and the possessive quantifier prevent quadratic time for a long name without `=`.
_AUTH_PARAM: Final = re.compile(
    r"(?<![!#$%&'*+.^_`|~\w-])([!#$%&'*+.^_`|~\w-]++)[ \t]*=[ \t]*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s\",]+))"
)
"""A parameter of a challenge, whose value is a token or a quoted string (RFC 9110 §11.2)."""
_DPOP: Final = re.compile(r"(?:^|,)\s*DPoP(?=\s|,|$)", re.IGNORECASE)


class ServerMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an authorization server's metadata that the gateway uses."""

    token_url: str
    issuer: str | None = None
    auth_methods: Sequence[str] = ()
    """The value of `token_endpoint_auth_methods_supported`. Empty if missing."""
    signing_algorithms: Sequence[str] = ()
    """The value of `token_endpoint_auth_signing_alg_values_supported`. Empty if missing."""
    resource: str | None = None
    """The resource identifier for token requests (RFC 8707), which is usually the URL of the service."""
    authorization_url: str = ""
    """URL of the page on which users sign in, or an empty string."""
    registration_url: str | None = None
    revocation_url: str | None = None
    scopes: Sequence[str] = ()
    resource_scopes: Sequence[str] = ()
    challenge_methods: Sequence[str] | None = None
    """The value of `code_challenge_methods_supported`. None if missing."""
    returns_issuer: bool = False
    """Whether authorization responses contain `iss` (RFC 9207)."""
    reads_client_documents: bool = False
    """Whether a client ID can be the URL of a client metadata document."""
    dpop_algorithms: Sequence[str] = ()
    """The value of `dpop_signing_alg_values_supported` (RFC 9449 §5.1). Empty if missing."""
    binds_tokens: bool = False
    """Whether the service requires tokens that are bound to a private key (DPoP)."""


def issuer_sender(clients: HttpClients) -> Sender:
    """Return a sender for requests to issuers. The operator names them, so private addresses are allowed."""
    return Sender(clients=clients, policy=ANYWHERE, max_bytes=MAX_BYTES)


async def post(sender: Sender, url: str, headers: Mapping[str, str], body: bytes) -> PostResponse:
    """Send a POST request to an endpoint of an authorization server. Raise FetchError if the request fails."""
    deadline = asyncio.get_running_loop().time() + REQUEST_SECONDS
    try:
        request = Request(method="POST", url=parse_url(url, encoded=True), headers=bound(headers), body=body)
        response = await sender.send(request, deadline=deadline)
    except (ExecutionError, ValueError) as error:
        raise FetchError(f"{url}: {error}") from error
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return response.status, media_type, response.body


async def fetch_json(sender: Sender, url: str) -> Json:
    """Fetch a JSON document of an authorization server or a service.

    Raises:
        NotFoundError: The document does not exist.
        FetchError: The document cannot be fetched.
    """
    deadline = asyncio.get_running_loop().time() + REQUEST_SECONDS
    try:
        # encoded=True: send the URL as written, without normalizing its path.
        request = Request(method="GET", url=parse_url(url, encoded=True), headers=(ACCEPT_JSON,))
        response = await sender.send(request, deadline=deadline)
    except (ExecutionError, ValueError) as error:
        raise FetchError(f"{url}: {error}") from error
    # After 4xx, callers try the next well-known URL (RFC 8414 §3.1). A 5xx error can be temporary.
    if 400 <= response.status < 500:
        raise NotFoundError(f"{url} returned status {response.status}")
    if response.status != 200:
        raise FetchError(f"{url} returned status {response.status} instead of 200")
    try:
        return orjson.loads(response.body)
    except orjson.JSONDecodeError as error:
        raise FetchError(f"The document at {url} is not JSON: {error}") from error


async def discover(issuer: str, sender: Sender) -> ServerMetadata:
    """Fetch the metadata of an issuer. Raise ExecutionError if the metadata is missing or invalid."""
    url, found = await issuer_metadata(issuer, partial(fetch_json, sender))
    token_url, methods = found.get("token_endpoint"), found.get("code_challenge_methods_supported")
    if not isinstance(token_url, str) or not is_trustworthy(token_url):
        raise ExecutionError(f"{url} contains no token_endpoint with an https URL")
    return ServerMetadata(
        token_url=token_url,
        issuer=issuer,
        authorization_url=_trusted_url(found, "authorization_endpoint") or "",
        registration_url=_trusted_url(found, "registration_endpoint"),
        revocation_url=_trusted_url(found, "revocation_endpoint"),
        scopes=_strings(found.get("scopes_supported")),
        challenge_methods=_strings(methods) if isinstance(methods, list) else None,
        returns_issuer=found.get("authorization_response_iss_parameter_supported") is True,
        reads_client_documents=found.get("client_id_metadata_document_supported") is True,
        dpop_algorithms=_strings(found.get("dpop_signing_alg_values_supported")),
        auth_methods=_strings(found.get("token_endpoint_auth_methods_supported")),
        signing_algorithms=_strings(found.get("token_endpoint_auth_signing_alg_values_supported")),
    )


async def discover_of_service(service_url: str, sender: Sender, *, named: str | None = None) -> ServerMetadata:
    """Return the metadata of the first authorization server that a service announces.

    `named` is the metadata URL in a challenge of the service, if there was a challenge.

    Raises:
        NotFoundError: The service has no metadata.
        ExecutionError: The metadata cannot be fetched or is invalid.
    """
    missing = f"{service_url} has no metadata about its authorization server (RFC 9728). Set `issuer`"
    binds_tokens = False
    if named is None:
        challenges = await _challenges(service_url, sender)
        named, binds_tokens = (
            trusted_metadata_url(challenge_parameters(challenges), service_url),
            asks_for_dpop(challenges),
        )
    urls = _resource_metadata_urls(service_url)
    if named is not None:
        urls = iter((named,))
    url, found = await first_document(urls, partial(fetch_json, sender), missing=missing)
    resource = found.get("resource")
    # RFC 9728 §3.3: without this check, forged metadata could obtain tokens for another service.
    if not isinstance(resource, str) or not _is_of(resource, service_url):
        raise ExecutionError(f"{url} contains the metadata of a different service, not {service_url}")
    issuer = next(iter(_strings(found.get("authorization_servers"))), "")
    if not is_trustworthy(issuer):
        raise ExecutionError(f"{url} contains no authorization server with an https URL")
    return msgspec.structs.replace(
        await discover(issuer, sender),
        resource=resource,
        resource_scopes=_strings(found.get("scopes_supported")),
        binds_tokens=binds_tokens or found.get("dpop_bound_access_tokens_required") is True,
    )


def check_pinned(known: str | None, found: str | None, *, service_url: str) -> None:
    """Raise ExecutionError if a service now names a different issuer (`found`) than before (`known`).

    MCP 2026-07-28 basic/authorization/client-registration: credentials must only be sent to the issuer that issued
    them. Without a configured issuer, the first issuer that the service names is therefore final.
    """
    if known != found:
        raise ExecutionError(
            f"The gateway cannot sign in: {service_url} now names the authorization server {found} instead of {known}. "
            "If this is correct, set `issuer` to the new one"
        )


def challenge_parameters(fields: Iterable[str]) -> dict[str, str]:
    """Return the parameters of `WWW-Authenticate` challenges (RFC 9110 §11.6.1).

    If a name is repeated, use its first value.
    """
    found: dict[str, str] = {}
    for field in fields:
        for name, quoted, token in _AUTH_PARAM.findall(field):
            # RFC 9110 §5.6.4: in quoted strings, a backslash precedes a literal character.
            found.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) or token)
    return found


def asks_for_dpop(fields: Iterable[str]) -> bool:
    """Return whether `WWW-Authenticate` contains a challenge with the scheme DPoP (RFC 9449 §7.1)."""
    return any(_DPOP.search(field) for field in fields)


def trusted_metadata_url(parameters: Mapping[str, str], service_url: str) -> str | None:
    """Return the metadata URL from a challenge (RFC 9728 §5.1). Raise ExecutionError unless the URL uses https."""
    url = parameters.get("resource_metadata")
    if url is not None and not is_trustworthy(url):
        raise ExecutionError(f"The metadata URL {url} of {service_url} does not use https")
    return url


def url_of(text: str) -> URL:
    """Parse a URL. Raise ExecutionError if the URL is invalid."""
    try:
        return parse_url(text, encoded=True)
    except ValueError:
        raise ExecutionError(f"{text} is not a valid URL") from None


async def _challenges(service_url: str, sender: Sender) -> Sequence[str]:
    deadline = asyncio.get_running_loop().time() + REQUEST_SECONDS
    request = Request(method="GET", url=url_of(service_url), headers=(ACCEPT_JSON,))
    try:
        response = await sender.send(request, deadline=deadline)
    except ExecutionError:
        return ()  # Ignore errors such as endless responses. If the service is down, the well-known URLs fail too.
    # RFC 9728 §5.1: `resource_metadata` is part of a challenge, and only a 401 response contains challenges.
    return response.headers.getall("WWW-Authenticate", ()) if response.status == 401 else ()


def _resource_metadata_urls(service_url: str) -> Iterator[str]:
    parts = urlsplit(service_url)._replace(query="", fragment="")
    path = parts.path.rstrip("/")
    yield urlunsplit(parts._replace(path=f"{_PROTECTED_RESOURCE}{path}"))
    if path:
        yield urlunsplit(parts._replace(path=_PROTECTED_RESOURCE))


def _is_of(resource: str, service_url: str) -> bool:
    try:
        one, other = urlsplit(resource), urlsplit(service_url)
    except ValueError:
        return False
    if (one.scheme, one.netloc.lower()) != (other.scheme, other.netloc.lower()) or one.query:
        return False
    # Compare with a final slash, so that `/api` is not a parent of `/apis`.
    return f"{other.path.rstrip('/')}/".startswith(f"{one.path.rstrip('/')}/")


def _trusted_url(found: JsonObject, name: str) -> str | None:
    url = found.get(name)
    return url if isinstance(url, str) and is_trustworthy(url) else None


def _strings(value: Json) -> Sequence[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
