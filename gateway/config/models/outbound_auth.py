"""The key `auth` of connections and upstreams: how the gateway signs in to what it calls. Checks what is written."""

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.auth import IssuerUrl, ScopeToken, TrustedUrl
from gateway.config.models.base import DISTINCT, Model, NotEmpty, exactly_one, matching, misplaced, not_together

MAX_TOKEN_LENGTH: Final = 16 * 1024
"""Characters of an access token, which travels in a header field."""
PEM: Final = "-----BEGIN"
"""Tells a private key from the path of one."""
_TOKEN: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_TOKEN_LENGTH}}}")


def _sendable(value: str) -> str:
    """Refuse what no header field could carry; never shows it."""
    if _TOKEN.fullmatch(value) is None:
        raise PydanticCustomError(
            "token", "a token travels in a header field: it takes ASCII characters without spaces"
        )
    return value


_NoControls = matching(r"[^\x00-\x1f\x7f]*", "text without control characters")


class BasicAuth(Model):
    """A user name and a password (RFC 7617)."""

    # RFC 7617 §2: the first colon ends the user name.
    username: Annotated[str, matching(r"[^:\x00-\x1f\x7f]*", "a user name without `:` and control characters")]
    """The user."""
    password: Annotated[str, _NoControls]
    """The password."""


class ClientCredentials(Model):
    """Access tokens that an authorization server gives the gateway itself (RFC 6749 §4.4)."""

    issuer: IssuerUrl | None = None
    """The authorization server, whose token endpoint its metadata names (RFC 8414, OpenID Connect Discovery). Without
    `issuer` and `token_url` the service that is called says which it is (RFC 9728); `token_exchange` uses the issuer of
    `auth.oauth`."""
    token_url: TrustedUrl | None = None
    """The token endpoint, in place of `issuer`."""
    client_id: Annotated[NotEmpty, _NoControls]
    """The name under which the authorization server knows the gateway."""
    client_secret: Annotated[NotEmpty, _NoControls] | None = None
    """The gateway's secret there."""
    client_auth: Literal["basic", "post"] | None = None
    """Send the secret as HTTP Basic or in the form. By default as the metadata of the server says; if it refuses the
    client, the other way is tried once."""
    private_key: NotEmpty | None = None
    """A private key in place of the secret (private_key_jwt, RFC 7523): PEM, or the path of a PEM file."""
    key_id: NotEmpty | None = None
    """The `kid` by which the authorization server knows the private key."""
    scopes: Annotated[list[ScopeToken], DISTINCT] = []
    """Scopes to ask for."""
    # RFC 8707 §2: an absolute URI without a fragment.
    resource: (
        Annotated[str, matching(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s#]+", "a URL such as https://api.example.com")] | None
    ) = None
    """The service that the token is meant for (RFC 8707)."""
    audience: NotEmpty | None = None
    """The name under which the authorization server knows that service (RFC 8693; Auth0 needs it)."""

    @model_validator(mode="after")
    def _can_sign_in(self) -> Self:
        not_together(self, "issuer", "token_url")
        exactly_one(self, of=("client_secret", "private_key"), what="a credential of the client")
        if self.key_id is not None and self.private_key is None:
            raise misplaced("key_id", goes_with="private_key")
        if self.client_auth is not None and self.client_secret is None:
            raise misplaced("client_auth", goes_with="client_secret")
        return self


class TokenExchange(ClientCredentials):
    """Access tokens that an authorization server gives for those of callers (RFC 8693). Needs `auth.oauth`."""


class OutboundAuth(Model):
    """The gateway's way to sign in to what it calls; one of these."""

    bearer: Annotated[str, AfterValidator(_sendable)] | None = None
    """A token, sent as `Authorization: Bearer` (RFC 6750)."""
    basic: BasicAuth | None = None
    """A user name and a password."""
    client_credentials: ClientCredentials | None = None
    """Access tokens for the gateway itself."""
    token_exchange: TokenExchange | None = None
    """Access tokens in exchange for the caller's, which is never passed on."""

    @model_validator(mode="after")
    def _signs_in_one_way(self) -> Self:
        exactly_one(self, of=tuple(type(self).model_fields), what="a way to sign in")
        return self

    def secrets(self) -> Iterator[str]:
        """The secrets that are written here, or were filled in."""
        client = self.token_exchange or self.client_credentials
        found = [self.bearer, self.basic and self.basic.password]
        if client is not None:
            found += [client.client_secret, client.private_key if PEM in (client.private_key or "") else None]
        yield from filter(None, found)
