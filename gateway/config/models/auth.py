"""Models of `auth`: API keys, access tokens and rules."""

from collections import Counter
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.address import host_of, is_loopback_name
from gateway.config.models.base import (
    DISTINCT,
    ONE_OR_MANY,
    SOME_DISTINCT,
    Flag,
    Model,
    NotEmpty,
    ScopeToken,
    matching,
    misplaced,
)
from gateway.config.models.definition_keys import ToolHint

MAX_KEY_LENGTH: Final = 4096
"""The maximum number of characters, because servers limit the length of header fields."""
MIN_KEY_LENGTH: Final = 16
"""The minimum number of characters, because shorter keys are too easy to guess."""


def _trustworthy(value: str) -> str:
    """Reject a URL without TLS, because responses could be forged (RFC 8414 §2 requires https)."""
    try:
        parts = urlsplit(value)
        # `port` raises ValueError for an invalid port.
        is_url = bool(host_of(parts.netloc)) and not parts.fragment and not (parts.port is not None and parts.port < 1)
    except ValueError:
        is_url = False
    if not is_url or parts.scheme not in {"http", "https"} or any(char.isspace() for char in value):
        raise PydanticCustomError("url", "expected a URL such as https://idp.example.com")
    if parts.scheme == "http" and not is_loopback_name(host_of(parts.netloc)):
        raise PydanticCustomError("insecure_url", "must start with https:// (http:// is allowed only for localhost)")
    return value


Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
KeyText = Annotated[
    str,
    matching(
        rf"[\x21-\x7e]{{1,{MAX_KEY_LENGTH}}}",
        f"1 to {MAX_KEY_LENGTH} ASCII characters without spaces, because a key is sent in a header",
    ),
]
Digest = Annotated[
    str,
    matching("[0-9A-Fa-f]{64}", "the SHA-256 of the key in 64 hexadecimal digits (printf %s KEY | sha256sum)"),
    AfterValidator(str.lower),
]
TrustedUrl = Annotated[str, AfterValidator(_trustworthy)]
IssuerUrl = Annotated[TrustedUrl, matching(r"[^?]*", "an issuer URL without a query")]  # RFC 8414 §2


class ApiKey(Model):
    """An API key, sent as a Bearer token or in `X-API-Key`."""

    secret: Annotated[list[KeyText], ONE_OR_MANY] = []
    """The key, or a list of keys while you rotate them."""
    sha256: Annotated[list[Digest], ONE_OR_MANY] = []
    """The SHA-256 digest of the key in hexadecimal, instead of `secret`."""
    scopes: Annotated[list[ScopeToken], DISTINCT] = []
    """Scopes that the key grants."""

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        if not self.secret and not self.sha256:
            raise PydanticCustomError("nothing_given", "needs a key: `secret` or `sha256`")
        return self


class Roles(Model):
    """Scopes that roles or groups in a token grant, in addition to the scopes of the token."""

    claim: NotEmpty | None = None
    """JMESPath of the roles: a list, or a string with spaces. By default, the claims of common providers are used."""
    scopes: dict[NotEmpty, Annotated[list[ScopeToken], ONE_OR_MANY, DISTINCT]] = {}
    """Scopes by role. `"*"` means every caller of this issuer."""


class Introspection(Model):
    """Credentials for token introspection at the issuer (RFC 7662)."""

    client_id: NotEmpty
    """Client ID of this server at the issuer."""
    client_secret: NotEmpty
    """Client secret of this server at the issuer."""
    url: TrustedUrl | None = None
    """URL of the introspection endpoint. Default: discovered from the issuer's metadata."""
    type: Literal["rfc7662", "github"] = "rfc7662"
    """`github`: the endpoint is GitHub's `POST /applications/{client_id}/token`. Requires `url`."""

    @model_validator(mode="after")
    def _check_url_of_github(self) -> Self:
        if self.type == "github" and self.url is None:
            raise misplaced("type", requires="url")
        return self


class BrowserClient(Model):
    """The client for sign-in on the pages of this server, with OpenID Connect.

    Register the redirect URI `<public_url>/-/sign-in/browser/callback` at the issuer. If `listen.admin` is set, also
    register the same path with the URL of the admin listener.
    """

    client_id: NotEmpty
    """Client ID of this server at the issuer."""
    client_secret: NotEmpty | None = None
    """Client secret of this server at the issuer."""


class OAuth(Model):
    """An authorization server whose access tokens are accepted."""

    issuer: Annotated[list[IssuerUrl], SOME_DISTINCT, ONE_OR_MANY]
    """Issuer URL of the authorization server, exactly as in the tokens. Use a list for several servers."""
    audience: Annotated[list[NotEmpty], SOME_DISTINCT, ONE_OR_MANY] | None = None
    """Accepted audiences: one, or a list. Default: `public_url` followed by `path`."""
    audience_claim: Literal["aud", "client_id"] = "aud"
    """`client_id`: accept tokens without `aud` if their `client_id` is listed in `audience`. For Amazon Cognito."""
    jwks_url: TrustedUrl | None = None
    """URL of the key set (JWKS). Default: discovered from the issuer's metadata."""
    algorithms: Annotated[list[Algorithm], SOME_DISTINCT] | None = None
    """Accepted signature algorithms. Default: all asymmetric algorithms."""
    roles: Roles | None = None
    """Scopes that roles or groups grant."""
    introspection: Introspection | None = None
    """Accept opaque tokens, and validate each token at the issuer."""
    browser: BrowserClient | None = None
    """Let users sign in to the console and to `/-/connections` with this issuer."""
    dpop: Literal["accepted", "required"] = "accepted"
    """`required`: reject tokens that are not bound to a key of the client (RFC 9449)."""
    required_scopes: Annotated[list[ScopeToken], DISTINCT] = []
    """Scopes that every token must have."""
    scopes_supported: Annotated[list[ScopeToken], DISTINCT] = []
    """Scopes that are advertised to clients."""

    @model_validator(mode="after")
    def _check_introspection(self) -> Self:
        if self.audience_claim != "aud" and self.audience is None:
            raise misplaced("audience_claim", requires="audience")
        for key in ("introspection", "browser"):
            if getattr(self, key) is not None and len(self.issuer) > 1:
                message = "allows only one `issuer`. Add an entry to `oauth` for each issuer"
                raise PydanticCustomError("many_issuers", message, {"culprit": key})
        return self


class Match(Model):
    """Selects the definitions that a rule applies to. A definition must match every key that is present."""

    kind: Literal["tools", "resources", "prompts"] | None = None
    """Only definitions of this kind."""
    name: NotEmpty | None = None
    """A glob that matches names as written in the configuration: `deploy_*`."""
    tag: NotEmpty | None = None
    """A tag that the definition must have."""
    annotation: ToolHint | None = None
    """A tool annotation that must be true in the configuration."""

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if not self.model_fields_set:
            raise PydanticCustomError("nothing_given", "needs at least one of `kind`, `name`, `tag`, `annotation`")
        return self


class Rule(Model):
    """Scopes required by all matching definitions, in addition to their own `access`."""

    match: Match
    """The definitions that require the scopes."""
    scopes: Annotated[list[ScopeToken], Field(min_length=1), DISTINCT]
    """Scopes that the caller must hold. Without them, the definition appears not to exist."""
    visible: Flag = False
    """List the definitions to callers without the scopes, unless another rule or their own `access` hides them."""


class Auth(Model):
    """Authentication of callers, and scopes that definitions require."""

    api_keys: dict[str, ApiKey] = {}
    """API keys by name of the holder."""
    oauth: Annotated[list[OAuth], ONE_OR_MANY] = []
    """Access tokens from an authorization server, or a list with an entry for each server."""
    rules: list[Rule] = []
    """Scopes required by groups of definitions."""

    @property
    def issuers(self) -> list[str]:
        """Issuers whose tokens are accepted."""
        return [issuer for entry in self.oauth for issuer in entry.issuer]

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        repeated = [issuer for issuer, count in Counter(self.issuers).items() if count > 1]
        if repeated:
            message = f"the issuer {repeated[0]} is in two entries. Combine them into one entry"
            raise PydanticCustomError("repeated_issuer", message, {"culprit": "oauth"})
        if not self.api_keys and not self.oauth:
            raise PydanticCustomError("nothing_given", "no one can authenticate: set `api_keys` or `oauth`")
        if "" in self.api_keys:
            raise PydanticCustomError("no_name", "an API key must have a name", {"culprit": "api_keys"})
        if not all(map(str.isprintable, self.api_keys)):
            message = "the holder's name contains invisible characters, which are misleading in logs"
            raise PydanticCustomError("unprintable_name", message, {"culprit": "api_keys"})
        return self
