"""Requests tokens from the token endpoint of an authorization server, and adds them to requests.

The time and size of each response are limited. Secrets of the request are masked in the server's error descriptions. A
token can be bound to a key of the gateway (DPoP, RFC 9449). Keys and proofs require the extra `auth`.
"""

import asyncio
import base64
import hashlib
import json
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal
from urllib.parse import parse_qsl, quote_plus, urlencode

import msgspec
from msgspec.structs import replace
from multidict import MultiMapping
from yarl import URL

from gateway.access.jose import encoded, read_private_key, sign
from gateway.bounded_map import BoundedMap
from gateway.config.models.outbound_auth import MAX_TOKEN_LENGTH
from gateway.config.secrets.redactor import Redactor
from gateway.control_characters import strip_control_characters
from gateway.errors import ExecutionError
from gateway.json_types import Json
from gateway.net.request import Request, bound
from gateway.net.sender import Response, Sender
from gateway.net.server_metadata import REQUEST_SECONDS, ServerMetadata, url_of

ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - RFC 8693 §3, no secret
_JWT: Final = "urn:ietf:params:oauth:token-type:jwt"
# Wider than `b64token` (RFC 6750 §2.1): accept anything that a header can contain.
_SENDABLE: Final = re.compile(r"[\x21-\x7e]+")
_LIFETIME: Final = 300.0
"""The lifetime of tokens without `expires_in`, in seconds."""
_LONGEST_LIFETIME: Final = 86_400.0
_MARGIN_SECONDS: Final = 30.0
"""Tokens are replaced this many seconds before they expire, or after 90% of a lifetime of less than 300 s."""
_MEMBERS: Final = ("access_token", "error")
_REFUSALS: Final = ("invalid_client", "invalid_request", "unauthorized_client")
"""Errors after which another authentication method is tried. RFC 6749 §5.2 specifies `invalid_client`. Some servers
return the other errors if the form contains no client ID, or if the client must not use the method.
"""
_BEARER: Final = ("bearer", "bearertoken")
"""Lowercase values of `token_type`. RFC 6750 §6.1.1 specifies `bearer`, and Apigee sends `BearerToken`."""
_MAX_NONCES: Final = 100
ALGORITHM: Final = "ES256"
Nonces = BoundedMap[str, str]
"""The newest DPoP nonce from each server (RFC 9449 §8, §9). The keys are origins."""
_MAX_REASON: Final = 400
"""Longer error descriptions are truncated to this number of characters."""
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_SECONDS: Final = 60
"""How many seconds an assertion is valid. A short time is enough, because assertions are used immediately."""


class TokenRejectedError(ExecutionError):
    """The authorization server rejected a request for a token."""

    def __init__(self, text: str, *, error: str) -> None:
        super().__init__(text)
        self.error: Final = error
        """`error` of the response (RFC 6749 §5.2), or an empty string."""


ClientProof = tuple[Mapping[str, str], str | None]
"""The form fields and the `Authorization` header with which a client authenticates. The header can be None."""


class OAuthClient(msgspec.Struct, frozen=True, kw_only=True):
    """An OAuth client.

    The client authenticates at the token endpoint with its private key (`private_key_jwt`, RFC 7523 §2.2) or its secret
    (`client_secret_basic` or `client_secret_post`, RFC 6749 §2.3.1). A client without either is public (`none`).
    """

    client_id: str
    secret: str | None = None
    method: Literal["basic", "post"] | None = None
    """How the secret is sent. None means that both methods are tried."""
    private_key: str | None = None
    """The private key in PEM format."""
    key_id: str | None = None

    def __repr__(self) -> str:
        """Hide the secrets from tracebacks and logs."""
        return f"OAuthClient(client_id={self.client_id})"

    def proofs(self, server: ServerMetadata) -> Sequence[ClientProof]:
        """Return the authentication methods to try, with the one that the server most likely accepts first."""
        if self.private_key is not None:
            # RFC 7523 §3: more servers accept a single audience than a list. The issuer comes first, because no other
            # server accepts this audience (MCP extension oauth-client-credentials). Older servers expect the URL of the
            # token endpoint.
            audiences = dict.fromkeys([server.issuer or server.token_url, server.token_url])
            return [self._assertion(server, self.private_key, audience) for audience in audiences]
        if self.secret is None:
            return [({"client_id": self.client_id} if self.client_id else {}, None)]
        # RFC 6749 §2.3.1: form-encode the client ID and the secret (appendix B) before Basic authentication.
        pair = f"{quote_plus(self.client_id)}:{quote_plus(self.secret)}"
        ways: dict[str, ClientProof] = {
            "client_secret_basic": ({}, f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"),
            "client_secret_post": ({"client_id": self.client_id, "client_secret": self.secret}, None),
        }
        if self.method is not None:
            return [ways[f"client_secret_{self.method}"]]
        # Return both methods, because servers do not always accept the methods that they announce.
        return [ways[name] for name in sorted(ways, key=lambda name: name not in server.auth_methods)]

    def _assertion(self, server: ServerMetadata, private_key: str, audience: str) -> ClientProof:
        now = int(time.time())
        claims = {
            "iss": self.client_id,
            "sub": self.client_id,
            "aud": audience,
            # RFC 7523 §3: a server can reject a repeated id.
            "jti": secrets.token_urlsafe(24),
            "iat": now,
            "exp": now + _ASSERTION_SECONDS,
        }
        assertion = sign(claims, private_key, key_id=self.key_id, preferred=server.signing_algorithms)
        form = {"client_id": self.client_id, "client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion}
        return form, None


class TokenEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Sends requests to token endpoints. Error messages contain no secrets."""

    sender: Sender
    redactor: Redactor
    """Masks configured secrets in error descriptions of the server."""
    nonces: Nonces = msgspec.field(default_factory=lambda: Nonces(_MAX_NONCES))

    async def post(  # noqa: PLR0913 - the parts of a token request
        self,
        server: ServerMetadata,
        form: Mapping[str, str],
        client: OAuthClient,
        *,
        proof_key: str = "",
        secrets: Sequence[str] = (),
        is_revocation: bool = False,
    ) -> Response:
        """Send a token request. If the server rejects the client, try the other authentication methods of the client.

        If `proof_key` (a private key) is not empty, the token is bound to this key. `secrets` are masked in errors.

        Raises:
            TokenRejectedError: The server issued no token.
            ExecutionError: The request failed.
        """
        sent = [*secrets, form.get("subject_token"), form.get("assertion")]
        try:
            response = await self._authenticated(server, form, client, proof_key, sent)
            is_new_nonce = note_nonce(self.nonces, url_of(server.token_url), response.headers)
            if proof_key and is_new_nonce and content_of(response).get("error") == "use_dpop_nonce":  # RFC 9449 §8
                response = await self._authenticated(server, form, client, proof_key, sent)
            if not is_revocation or response.status != 200:  # RFC 7009 §2.2: the body is ignored.
                _check_success(response, server)
        except TokenRejectedError as error:
            text = self._shown(str(error), secrets=sent)
            raise TokenRejectedError(text, error=error.error) from error
        except ExecutionError as error:
            raise self.failure(str(error), secrets=sent) from error
        return response

    async def _authenticated(
        self,
        server: ServerMetadata,
        form: Mapping[str, str],
        client: OAuthClient,
        proof_key: str,
        sent: list[str | None],
    ) -> Response:
        methods = client.proofs(server)
        sent += [each for fields, value in methods for each in (fields.get("client_assertion"), value)]
        for method in methods:
            response = await self._send(server, form, method, proof_key)
            if response.status != 401 and content_of(response).get("error") not in _REFUSALS:
                break
        return response

    def failure(self, reason: str, *, secrets: Iterable[str | None] = ()) -> ExecutionError:
        return ExecutionError(self._shown(reason, secrets=secrets))

    def _shown(self, reason: str, *, secrets: Iterable[str | None]) -> str:
        text = self.redactor.text(strip_control_characters(reason))
        # Mask the caller's token, assertions and Basic credentials too, which no configuration file contains.
        text = Redactor(filter(None, secrets)).text(text)
        shown = text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"
        return f"The gateway cannot sign in: {shown}"

    async def _send(
        self, server: ServerMetadata, form: Mapping[str, str], method: ClientProof, proof_key: str
    ) -> Response:
        (fields, authorization), url = method, url_of(server.token_url)
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if authorization is not None:
            headers["Authorization"] = authorization
        if proof_key:
            headers["DPoP"] = _proof(proof_key, "POST", url, access_token=None, nonces=self.nonces)
        request = Request(
            method="POST",
            url=url,
            headers=bound(headers),
            body=urlencode({**form, **fields}).encode(),
            has_secret_body=True,
        )
        return await self.sender.send(request, deadline=asyncio.get_running_loop().time() + REQUEST_SECONDS)


def _check_success(response: Response, server: ServerMetadata) -> None:
    answer = content_of(response)
    # GitHub responds with status 200 and an `error`.
    if response.status != 200 or not answer or ("error" in answer and not answer.get("access_token")):
        error = answer.get("error")
        raise TokenRejectedError(
            f"{_host(server)} returned {response.status}{_reason(answer)}",
            error=error if isinstance(error, str) else "",
        )


def read_token(
    response: Response, server: ServerMetadata, *, kinds: Sequence[str] = (ACCESS_TOKEN, _JWT), proof_key: str = ""
) -> tuple[str, str, float]:
    """Check a token response (RFC 6749 §5, RFC 8693 §2.2). Return the token, its DPoP key, and the seconds to keep it.

    1. The token only contains characters that a header can contain.
    2. `issued_token_type` is missing or one of `kinds`.
    3. An access token is a bearer token, or bound to `proof_key`.
    """
    answer = content_of(response)
    token, kind = answer.get("access_token"), answer.get("token_type") or "bearer"
    if not isinstance(token, str) or len(token) > MAX_TOKEN_LENGTH or not _SENDABLE.fullmatch(token):
        raise ExecutionError(f"{_host(server)} returned 200 without a valid access token")
    # RFC 8693 §2.2.1: `token_type` is N_A for a token that is not an access token.
    kind = kind.strip().lower() if isinstance(kind, str) else ""
    is_bound = bool(proof_key) and kind == "dpop"
    is_known = is_bound or kind in _BEARER or ACCESS_TOKEN not in kinds
    if not is_known or answer.get("issued_token_type") not in (None, *kinds):
        raise ExecutionError(f"{_host(server)} issued an unsupported type of token. Only bearer tokens are supported")
    seconds = _seconds_to_keep(answer.get("expires_in"))
    return token, proof_key if is_bound else "", seconds


def content_of(response: Response) -> Mapping[str, Json]:
    """Return the members of a token response (JSON or a form), or an empty mapping for other content."""
    text = response.body.decode("utf-8-sig", "replace")
    try:
        # Parse numbers as floats, which have no limit on digits.
        content = json.loads(text, parse_int=float)
    except (ValueError, RecursionError):
        content = dict(parse_qsl(text))
    return content if isinstance(content, dict) and not content.keys().isdisjoint(_MEMBERS) else {}


def _host(server: ServerMetadata) -> str:
    return url_of(server.token_url).raw_host or ""


def _reason(answer: Mapping[str, Json]) -> str:
    said = [answer.get(name) for name in ("error", "error_description")]
    texts = [each if isinstance(each, str) else json.dumps(each) for each in said if each is not None]
    return "".join(f"{before}{text[: 16 * _MAX_REASON]}" for before, text in zip((" ", ": "), texts, strict=False))


def _seconds_to_keep(expires_in: Json) -> float:
    try:  # Some servers write the number as a string.
        seconds = _LIFETIME if expires_in is None else min(float(expires_in), _LONGEST_LIFETIME)
    except (TypeError, ValueError, OverflowError):
        seconds = _LIFETIME
    return seconds - min(_MARGIN_SECONDS, seconds / 10) if seconds > 0 else 0.0


def note_nonce(nonces: Nonces, url: URL, headers: MultiMapping[str]) -> bool:
    """Save the DPoP nonce of a response. Return whether the response contains a nonce."""
    nonce = headers.get("DPoP-Nonce")
    if nonce:
        nonces.put(str(url.origin()), nonce)
    return bool(nonce)


def with_token(request: Request, token: str, *, key: str, nonces: Nonces) -> Request:
    """Add an access token to a request. `key` is the private key of a DPoP token, or empty for a bearer token.

    The header is removed if a redirect leads to another origin.
    """
    headers = {"Authorization": f"Bearer {token}"}
    if key:
        text = _proof(key, request.method, request.url, access_token=token, nonces=nonces)
        headers = {"Authorization": f"DPoP {token}", "DPoP": text}
    return replace(request, headers=(*request.headers, *bound(headers)))


def new_key() -> str:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key  # noqa: PLC0415 - extra
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - of the extra
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = generate_private_key(SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _proof(key: str, method: str, url: URL, *, access_token: str | None, nonces: Nonces) -> str:
    import jwt  # noqa: PLC0415 - of the extra
    from jwt.algorithms import ECAlgorithm  # noqa: PLC0415 - of the extra

    private, _ = read_private_key(key)
    public = ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
    claims: dict[str, Json] = {
        "jti": secrets.token_urlsafe(16),
        "htm": method,
        "htu": str(url.with_query(None).with_fragment(None)),
        "iat": int(time.time()),
    }
    if access_token is not None:
        claims["ath"] = encoded(hashlib.sha256(access_token.encode()).digest())
    nonce = nonces.get(str(url.origin()))
    if nonce is not None:
        claims["nonce"] = nonce
    return jwt.encode(claims, private, algorithm=ALGORITHM, headers={"typ": "dpop+jwt", "jwk": public})
