"""Models of `auth` in connections and upstreams: authentication to other services."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Final, Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.auth import IssuerUrl, TrustedUrl
from gateway.config.models.base import (
    DISTINCT,
    ONE_OR_MANY,
    Flag,
    Model,
    NotEmpty,
    ScopeToken,
    exactly_one,
    matching,
    not_together,
    requires,
)
from gateway.config.models.quantities import PositiveDuration
from gateway.json_types import Json

MAX_TOKEN_LENGTH: Final = 16 * 1024
"""The maximum number of characters."""
PEM: Final = "-----BEGIN"
"""Start of a private key. Other text is the path of a key file."""
SubjectIssuers = Annotated[list[IssuerUrl], DISTINCT, ONE_OR_MANY]
_NoControls = matching(r"[^\x00-\x1f\x7f]*", "text without control characters")


class BasicAuth(Model):
    """A user name and a password (RFC 7617)."""

    # RFC 7617 §2: the first colon ends the user name.
    username: Annotated[str, matching(r"[^:\x00-\x1f\x7f]*", "a user name without `:` and control characters")]
    """User name."""
    password: Annotated[str, _NoControls]
    """Password."""


class TokenRequest(Model):
    """Settings to request an access token from an authorization server: credentials, scopes and the called service."""

    issuer: IssuerUrl | None = None
    """Issuer of the authorization server; its metadata names the token endpoint (RFC 8414, OpenID Connect Discovery).
    Without `issuer` and `token_url`, the called service names its authorization server (RFC 9728). `token_exchange`
    then uses the issuer of `auth.oauth`."""
    token_url: TrustedUrl | None = None
    """Token endpoint, instead of `issuer`."""
    client_id: Annotated[NotEmpty, _NoControls]
    """Client ID of the gateway at the authorization server."""
    client_secret: Annotated[NotEmpty, _NoControls] | None = None
    """Client secret."""
    client_auth: Literal["basic", "post"] | None = None
    """Send the secret as HTTP Basic or in the form. Default: as the server's metadata states. If the server rejects the
    client, the other method is tried once."""
    private_key: NotEmpty | None = None
    """Private key for private_key_jwt (RFC 7523), instead of the secret: PEM, or the path of a PEM file."""
    key_id: NotEmpty | None = None
    """Key ID (`kid`) of the private key at the authorization server."""
    scopes: Annotated[list[ScopeToken], DISTINCT] = []
    """Scopes to request."""
    # RFC 8707 §2: an absolute URI without a fragment.
    resource: (
        Annotated[str, matching(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s#]+", "a URL such as https://api.example.com")] | None
    ) = None
    """URI of the service that the token is for (RFC 8707)."""
    audience: NotEmpty | None = None
    """Name of that service at the authorization server (RFC 8693). Required by Auth0."""

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        not_together(self, "issuer", "token_url")
        self._check_credential()
        return self

    _check_key_id = requires("key_id", "private_key")
    _check_client_auth = requires("client_auth", "client_secret")

    def _check_credential(self) -> None:
        exactly_one(self, of=("client_secret", "private_key"), what="a client credential")


class ClientCredentials(TokenRequest):
    """Access tokens that an authorization server issues to the gateway itself (RFC 6749 §4.4)."""

    client_id: Annotated[str, _NoControls] = ""
    """Client ID of the gateway at the authorization server. Optional with `assertion`."""
    assertion: NotEmpty | None = None
    """JWT of a workload, such as `${file:/var/run/secrets/token}`. Used with the JWT bearer grant (RFC 7523 §2.1)
    instead of a client credential."""

    def _check_credential(self) -> None:
        exactly_one(self, of=("client_secret", "private_key", "assertion"), what="a client credential")
        if not self.client_id and self.assertion is None:
            raise PydanticCustomError("nothing_given", "needs `client_id`")


class TokenExchange(TokenRequest):
    """Access tokens issued in exchange for the callers' access tokens (RFC 8693). Requires `auth.oauth`."""

    subject_issuers: SubjectIssuers = []
    """Issuers of the callers' tokens that are exchanged here. Default: `issuer`, or the only issuer of `auth.oauth`."""


class IdentityProvider(Model):
    """The identity provider of an enterprise."""

    issuer: IssuerUrl
    """Issuer URL of the identity provider."""
    client_id: Annotated[NotEmpty, _NoControls]
    """Client ID of the gateway at the identity provider."""
    client_secret: Annotated[NotEmpty, _NoControls] | None = None
    """Client secret at the identity provider."""
    subject_token: NotEmpty | None = None
    """ID token to exchange. By default, the caller's access token is exchanged. This requires `auth.oauth`."""
    subject_issuers: SubjectIssuers = []
    """Issuers of the callers' tokens that are exchanged here. Default: `issuer`, or the only issuer of `auth.oauth`."""


class EnterpriseAuth(TokenRequest):
    """Access tokens that the identity provider of an enterprise allows (MCP enterprise-managed authorization).

    The identity provider exchanges a token for an identity assertion (ID-JAG). The authorization server of the service
    exchanges the assertion for an access token.
    """

    idp: IdentityProvider
    """The identity provider."""


class AuthorizationCode(Model):
    """Access tokens of users who sign in with a browser (RFC 6749 §4.1, with PKCE). Each user signs in once."""

    issuer: IssuerUrl | None = None
    """Issuer URL of the authorization server. Default: the server that the called service names (RFC 9728)."""
    client_id: Annotated[str, _NoControls] = ""
    """Client ID of the gateway at the authorization server. It can be the URL of a client metadata document. By
    default, the gateway registers itself."""
    client_secret: Annotated[NotEmpty, _NoControls] | None = None
    """Client secret."""
    private_key: NotEmpty | None = None
    """Private key for private_key_jwt (RFC 7523), instead of the secret: PEM, or the path of a PEM file."""
    key_id: NotEmpty | None = None
    """Key ID (`kid`) of the private key at the authorization server."""
    scopes: Annotated[list[ScopeToken], DISTINCT] = []
    """Scopes to request. Default: the scopes that the service asks for."""
    shared: Flag = False
    """A caller with the scope `gateway:admin` signs in once, and every caller uses that account."""
    idle: PositiveDuration = timedelta(days=30)
    """Revoke and forget tokens that were not used for this time."""

    @model_validator(mode="after")
    def _check_client(self) -> Self:
        not_together(self, "client_secret", "private_key")
        return self

    _check_client_secret = requires("client_secret", "client_id")
    _check_private_key = requires("private_key", "client_id")
    _check_key_id = requires("key_id", "private_key")


class OutboundAuth(Model):
    """Authentication of the gateway to a service. Exactly one key is required."""

    bearer: (
        Annotated[
            str,
            matching(
                rf"[\x21-\x7e]{{1,{MAX_TOKEN_LENGTH}}}",
                "only ASCII characters without spaces, because a token is sent in a header",
            ),
        ]
        | None
    ) = None
    """A token, sent as `Authorization: Bearer` (RFC 6750)."""
    basic: BasicAuth | None = None
    """A user name and a password."""
    client_credentials: ClientCredentials | None = None
    """Access tokens for the gateway itself."""
    token_exchange: TokenExchange | None = None
    """Access tokens in exchange for the caller's token, which is never forwarded."""
    enterprise: EnterpriseAuth | None = None
    """Access tokens that the identity provider of your enterprise allows."""
    authorization_code: AuthorizationCode | None = None
    """Access tokens of users who sign in with a browser."""

    @property
    def token_request(self) -> TokenRequest | None:
        """The settings to request access tokens without a sign-in, or None for other methods."""
        return self.client_credentials or self.token_exchange or self.enterprise

    @property
    def is_per_caller(self) -> bool:
        """Whether requests use the access token of the individual caller."""
        return (
            self.token_exchange is not None
            or (self.enterprise is not None and self.enterprise.idp.subject_token is None)
            or (self.authorization_code is not None and not self.authorization_code.shared)
        )

    @property
    def client(self) -> TokenRequest | AuthorizationCode | None:
        """The settings with a `client_id` at an authorization server, or None for other methods."""
        return self.token_request or self.authorization_code

    @model_validator(mode="after")
    def _check_one_key(self) -> Self:
        exactly_one(self, of=tuple(type(self).model_fields), what="a way to sign in")
        return self

    def secrets(self) -> Iterator[str]:
        """Yield all secrets, including interpolated ones."""
        yield from _secrets_in(self.model_dump(exclude_unset=True))


_SECRETS: Final = frozenset({"bearer", "password", "client_secret", "private_key", "assertion", "subject_token"})
"""Keys of secrets in the models of this module."""


def _secrets_in(values: dict[str, Json]) -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _secrets_in(value)
        # The path of a private key is no secret.
        elif value and key in _SECRETS and (key != "private_key" or PEM in value):
            yield value
