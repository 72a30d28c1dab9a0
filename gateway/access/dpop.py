"""Verifies DPoP proofs (RFC 9449).

Threats:

- Stolen tokens: the proof must be signed with the key that the token names (`cnf.jkt`).
- Stolen proofs: a proof is valid once, for one token, method and URL, and for about a minute.
- Proofs created in advance: a proof must contain a recent nonce of this server.
"""

import hashlib
import hmac
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from gateway.access.access_tokens import normal_audience
from gateway.access.auth_error import AuthError, temporarily_unavailable
from gateway.access.jose import TokenError, encoded, read_proof
from gateway.errors import StoreUnavailableError
from gateway.json_types import Json, JsonObject
from gateway.state.used_request_states import UsedStates

_AGE_SECONDS: Final = 60
_CLOCK_SKEW_SECONDS: Final = 10
NONCE_SECONDS: Final = 300
_MAX_ID_LENGTH: Final = 512


class ProofRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a request that a DPoP proof must match."""

    proofs: Sequence[str]
    method: str
    url: str
    """Public URL without the query."""


class ProofVerifier:
    def __init__(self, key: bytes, *, used: UsedStates, clock: Callable[[], float] = time.time) -> None:
        """`key` signs nonces, so replicas with the same key accept each other's nonces. `used` records used proofs."""
        self._key: Final = hmac.digest(key, b"mcp-gateway dpop nonce", "sha256")
        self._clock: Final = clock
        self._used: Final = used

    def nonce(self) -> str:
        return self._nonce_of(int(self._clock() // NONCE_SECONDS))

    async def refusal(self, request: ProofRequest, *, token: str, thumbprint: str) -> AuthError | None:
        """Return an error unless the request contains a valid proof (RFC 9449 §4.3)."""
        try:
            claims = self._checked_claims(request, token=token, thumbprint=thumbprint)
            if not self._is_ours(claims.get("nonce")):
                return self._error("use_dpop_nonce", "The DPoP proof must contain the nonce of this response")
            await self._use(claims, thumbprint)
        except TokenError as error:
            return self._error("invalid_dpop_proof", str(error))
        except StoreUnavailableError:
            return temporarily_unavailable("The store of used DPoP proofs is unavailable", retry_after=5)
        return None

    def _checked_claims(self, request: ProofRequest, *, token: str, thumbprint: str) -> JsonObject:
        if len(request.proofs) != 1:
            raise TokenError("The token is bound to a key. Send exactly one `DPoP` header, with a proof")
        claims, proven = read_proof(request.proofs[0])
        if proven != thumbprint:
            raise TokenError("The DPoP proof is not signed with the key that the token is bound to")
        if claims.get("htm") != request.method:
            raise TokenError("The DPoP proof was created for a different HTTP method")
        url = claims.get("htu")
        if not isinstance(url, str) or normal_audience(url.partition("?")[0]) != normal_audience(request.url):
            raise TokenError("The DPoP proof was created for a different URL")
        issued_at = claims.get("iat")
        if not isinstance(issued_at, int | float):
            raise TokenError("The DPoP proof has no iat claim")
        if not -_CLOCK_SKEW_SECONDS <= self._clock() - issued_at <= _AGE_SECONDS:
            raise TokenError("The iat claim of the DPoP proof is too old or in the future")
        if claims.get("ath") != encoded(hashlib.sha256(token.encode()).digest()):
            raise TokenError("The DPoP proof was created for a different token")
        return claims

    async def _use(self, claims: JsonObject, thumbprint: str) -> None:
        identifier = claims.get("jti")
        if not isinstance(identifier, str) or not 0 < len(identifier) <= _MAX_ID_LENGTH:
            raise TokenError("The DPoP proof has no valid jti claim")
        key = hashlib.sha256(f"{thumbprint} {identifier}".encode()).hexdigest()
        expires = self._clock() + _AGE_SECONDS + _CLOCK_SKEW_SECONDS
        if not await self._used.use(key, expires=expires):
            raise TokenError("The DPoP proof has already been used")

    def _is_ours(self, nonce: Json) -> bool:
        period = int(self._clock() // NONCE_SECONDS)
        known = (self._nonce_of(period), self._nonce_of(period - 1))
        return isinstance(nonce, str) and any(hmac.compare_digest(nonce.encode(), each.encode()) for each in known)

    def _nonce_of(self, period: int) -> str:
        return encoded(hmac.digest(self._key, str(period).encode(), "sha256")[:16])

    def _error(self, code: str, message: str) -> AuthError:
        return AuthError(status=401, error=code, message=message, is_for_proof=True, nonce=self.nonce())


def thumbprint_of(claims: JsonObject) -> str | None:
    """Return the thumbprint of the key that a token is bound to (RFC 9449 §6.1), or None."""
    confirmation = claims.get("cnf")
    found = confirmation.get("jkt") if isinstance(confirmation, dict) else None
    return found if isinstance(found, str) else None
