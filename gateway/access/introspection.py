"""Introspects opaque tokens at an authorization server (RFC 7662), which can respond with a JWT (RFC 9701)."""

import asyncio
import base64
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import quote_plus, urlencode

import orjson

from gateway.access.claims import strings_of
from gateway.access.issuer import Fetch, FetchError, is_trustworthy, issuer_metadata
from gateway.access.jose import TokenError, read_header, read_signed_response
from gateway.access.jwks import JwksCache, KeysUnavailableError
from gateway.bounded_map import BoundedMap
from gateway.config.models.auth import Introspection
from gateway.json_types import Json, JsonObject

_CACHE_SECONDS: Final = 60.0
"""How long responses are cached, including responses about inactive tokens."""
_ENDPOINT_SECONDS: Final = 600.0
_MAX_RESPONSES: Final = 4096
_MAX_CONCURRENT: Final = 16
"""Maximum number of concurrent requests to an issuer, because anyone can send unknown tokens."""
_JWT: Final = "application/token-introspection+jwt"
_JWT_TYPE: Final = "token-introspection+jwt"
_ACCEPT: Final = f"application/json, {_JWT};q=0.5"


PostResponse = tuple[int, str, bytes]
"""Status, media type and body of a response."""
Post = Callable[[str, Mapping[str, str], bytes], Awaitable[PostResponse]]
"""Sends a POST request, given its URL, headers and body. Raises FetchError if there is no response.

The function must limit the time and the size, and must not follow redirects.
"""


class Introspector:
    def __init__(  # noqa: PLR0913 - the issuer, and ways to reach it
        self,
        issuer: str,
        config: Introspection,
        *,
        fetch: Fetch,
        post: Post,
        keys: JwksCache,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._issuer: Final = issuer
        self._config: Final = config
        self._fetch: Final = fetch
        self._post: Final = post
        self._keys: Final = keys
        self._clock: Final = clock
        self._responses: Final[BoundedMap[bytes, JsonObject]] = BoundedMap(_MAX_RESPONSES, clock=clock)
        """Claims by digest of the token. The claims of an inactive token are empty."""
        self._running: Final = asyncio.Semaphore(_MAX_CONCURRENT)
        self._metadata: JsonObject = {}
        self._metadata_until = 0.0

    async def claims_of(self, token: str) -> JsonObject | None:
        """Return the claims of a token, or None if the token is inactive. Raise FetchError if the request fails."""
        digest = hashlib.sha256(token.encode()).digest()
        claims = self._responses.get(digest)
        if claims is None:
            async with self._running:
                claims = await self._asked(token)
            until = self._clock() + _CACHE_SECONDS
            expires = claims.get("exp")
            if isinstance(expires, int | float):
                until = min(until, expires)
            self._responses.put(digest, claims, expires=until)
        return claims or None

    async def _asked(self, token: str) -> JsonObject:
        response = await self._send(token)
        status, _, body = response
        if self._config.type == "github":
            return _github_claims(status, body)
        # RFC 7009 §2.2.1. Some issuers reject text that looks like a signed token.
        if status == 400 and b'"unsupported_token_type"' in body:
            return {}
        if status != 200:
            raise FetchError(f"The introspection endpoint of {self._issuer} responded with status {status}")
        document = await self._document(response)
        if not isinstance(document, dict) or not isinstance(document.get("active"), bool):
            raise FetchError(f"The introspection response of {self._issuer} has no boolean `active`")
        return document if document["active"] else {}

    async def _send(self, token: str) -> PostResponse:
        config = self._config
        if config.url is None and self._clock() >= self._metadata_until:
            _, self._metadata = await issuer_metadata(self._issuer, self._fetch, advice=". Set `introspection.url`")
            self._metadata_until = self._clock() + _ENDPOINT_SECONDS
        metadata = self._metadata
        url = config.url or metadata.get("introspection_endpoint")
        if not isinstance(url, str) or not is_trustworthy(url):
            raise FetchError(f"The metadata of {self._issuer} has no introspection_endpoint with an https URL")
        # RFC 6749 §2.3.1: the client ID and the secret are form-encoded.
        pair = f"{quote_plus(config.client_id)}:{quote_plus(config.client_secret)}"
        basic = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        if config.type == "github":
            headers = {"Accept": "application/json", "Content-Type": "application/json", **basic}
            return await self._post(url, headers, orjson.dumps({"access_token": token}))
        form = {"token": token, "token_type_hint": "access_token"}
        methods = metadata.get("introspection_endpoint_auth_methods_supported")
        # RFC 8414 §2: the default is client_secret_basic.
        if isinstance(methods, list) and "client_secret_basic" not in methods and "client_secret_post" in methods:
            basic, form = {}, {**form, "client_id": config.client_id, "client_secret": config.client_secret}
        headers = {"Accept": _ACCEPT, "Content-Type": "application/x-www-form-urlencoded", **basic}
        return await self._post(url, headers, urlencode(form).encode())

    async def _document(self, response: PostResponse) -> Json:
        _, media_type, body = response
        if media_type != _JWT:
            return _json(body, self._issuer)
        try:
            text, issuer = body.decode(), self._issuer
            algorithm, kid = read_header(text, types=(_JWT_TYPE, _JWT))
            keys = await self._keys.find(kid, algorithm)
            audience = self._config.client_id
            claims = read_signed_response(text, keys, algorithm=algorithm, issuer=issuer, audience=audience)
        except (TokenError, UnicodeDecodeError, KeysUnavailableError) as error:
            raise FetchError(f"{self._issuer} sent an invalid signed introspection response: {error}") from error
        return claims.get("token_introspection")


def _github_claims(status: int, body: bytes) -> JsonObject:
    if status in {404, 422}:  # the token is unknown, or belongs to another app
        return {}
    document = _json(body, "GitHub") if status == 200 else None
    if not isinstance(document, dict) or not isinstance(user := document.get("user"), dict) or "id" not in user:
        raise FetchError(f"GitHub responded with status {status}" + ", but without a user" * (status == 200))
    scopes, app = strings_of(document.get("scopes")), document.get("app")
    return {
        "active": True,
        "sub": str(user["id"]),
        "username": user.get("login"),
        "scope": " ".join(scopes),
        "client_id": app.get("client_id") if isinstance(app, dict) else None,
    }


def _json(body: bytes, issuer: str) -> Json:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise FetchError(f"The introspection response of {issuer} is not JSON") from error
