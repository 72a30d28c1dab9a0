"""Client authentication: how the gateway proves to a token endpoint which client it is. Sends nothing.

`client_secret_basic` and `client_secret_post` (RFC 6749 §2.3.1), or `private_key_jwt` (RFC 7523 §2.2).
"""

import base64
import secrets
import time
from collections.abc import Mapping
from typing import Final, Protocol
from urllib.parse import quote_plus

import msgspec

from gateway.access.identity.jose import PrivateKey, sign
from gateway.executors.outbound_auth.metadata import ServerMetadata

_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_SECONDS: Final = 60
"""How long an assertion is valid: it is used at once."""


class ClientProof(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a token request that proves which client sends it."""

    form: Mapping[str, str]
    authorization: str | None = None
    """The value of the header field Authorization."""


class ClientAuthentication(Protocol):
    def prove(self, server: ServerMetadata) -> ClientProof: ...


class ClientSecret(msgspec.Struct, frozen=True, kw_only=True):
    client_id: str
    secret: str

    def prove(self, server: ServerMetadata) -> ClientProof:
        """Use HTTP Basic, which every server supports (RFC 6749 §2.3.1), unless this one says that it does not."""
        methods = server.auth_methods
        if "client_secret_post" in methods and "client_secret_basic" not in methods:
            return ClientProof(form={"client_id": self.client_id, "client_secret": self.secret})
        pair = f"{quote_plus(self.client_id)}:{quote_plus(self.secret)}"
        return ClientProof(form={}, authorization=f"Basic {base64.b64encode(pair.encode()).decode('ascii')}")


class ClientKey(msgspec.Struct, frozen=True, kw_only=True):
    client_id: str
    key: PrivateKey
    key_id: str | None

    def prove(self, server: ServerMetadata) -> ClientProof:
        now = int(time.time())
        claims = {
            "iss": self.client_id,
            "sub": self.client_id,
            "aud": server.token_url,  # RFC 7523 §3: a single string, which more servers take than a list
            "jti": secrets.token_urlsafe(24),
            "iat": now,
            "exp": now + _ASSERTION_SECONDS,
        }
        assertion = sign(claims, self.key, key_id=self.key_id, preferred=server.signing_algorithms)
        form = {"client_id": self.client_id, "client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion}
        return ClientProof(form=form)
