"""Verification of access tokens, and the cache of the issuer's keys."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pytest

from gateway.access.access_tokens import AccessTokens, normal_audience
from gateway.access.auth_error import AuthError
from gateway.access.identity import Identity
from gateway.access.issuer import FetchError, metadata_urls
from gateway.access.jwks import JwksCache, KeysUnavailableError
from gateway.config.models.auth import OAuth
from gateway.net.clients import HttpClients
from gateway.net.server_metadata import fetch_json, issuer_sender
from tests.authorization_server import JWKS, METADATA, OPENID, AuthorizationServer, Key, authorization_server
from tests.waiting import until

AUDIENCE: Final = "https://tools.example.com/ops/mcp"
OTHER_AUDIENCE: Final = "https://other.example.com/mcp"
NOW: Final = int(time.time())


@dataclass
class Clock:
    """A clock that tests set."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(kw_only=True)
class Verifier:
    """An issuer, and the verification of its tokens."""

    issuer: AuthorizationServer
    tokens: AccessTokens
    clock: Clock = field(default_factory=Clock)

    async def status(self, token: str) -> int:
        """Return the HTTP status for a token: 200 if it is accepted."""
        identity = await self.tokens.identify(token)
        return identity.status if isinstance(identity, AuthError) else 200


@asynccontextmanager
async def verifier_for(
    issuer: AuthorizationServer,
    *,
    required: tuple[str, ...] = (),
    keys_url: str | None = None,
    audience: str = AUDIENCE,
    takes_client_id: bool = False,
) -> AsyncIterator[Verifier]:
    clock = Clock()
    entry = OAuth(
        issuer=[issuer.issuer],
        audience=[audience],
        audience_claim="client_id" if takes_client_id else "aud",
        required_scopes=list(required),
    )
    async with HttpClients() as clients:
        keys = JwksCache(
            issuer=issuer.issuer, keys_url=keys_url, fetch=partial(fetch_json, issuer_sender(clients)), clock=clock
        )
        try:
            audiences = frozenset({normal_audience(audience)})
            tokens = AccessTokens(issuer.issuer, entry, keys, audiences=audiences, views={})
            yield Verifier(issuer=issuer, tokens=tokens, clock=clock)
        finally:
            await keys.close()


@pytest.fixture
async def verifier() -> AsyncIterator[Verifier]:
    async with authorization_server() as issuer, verifier_for(issuer) as it:
        yield it


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "ES384", "EdDSA"])
async def test_valid_token_has_its_subject_and_scopes(algorithm: str) -> None:
    async with authorization_server(algorithm) as issuer, verifier_for(issuer) as verifier:
        identity = await verifier.tokens.identify(issuer.token(AUDIENCE, scope="ops.read ops.write"))
    assert isinstance(identity, Identity)
    assert (identity.principal, identity.realm) == ("alice", issuer.issuer)
    assert identity.scopes == frozenset({"ops.read", "ops.write"})
    assert identity.expires_at is not None
    assert 250 <= identity.expires_at - time.time() <= 350


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"audience": [OTHER_AUDIENCE, AUDIENCE]},
        {"audience": f"{AUDIENCE}/"},
        {"audience": AUDIENCE.replace("https://tools", "HTTPS://Tools").replace(".com/", ".com:443/")},
        {"iat": NOW + 5},  # the clock of the issuer is ahead
        {"nbf": NOW - 60},
        {"iat": None},
        {"headers": {"typ": "JWT"}},
        {"headers": {"typ": "application/at+jwt"}},
        {"headers": {"kid": None}},
        {"headers": {"jku": "http://127.0.0.1:9/keys", "x5u": "http://127.0.0.1:9/cert", "jwk": {"kty": "oct"}}},
    ],
)
async def test_valid_token_is_accepted(verifier: Verifier, claims: dict[str, Any]) -> None:
    audience = claims.pop("audience", AUDIENCE)
    assert await verifier.status(verifier.issuer.token(audience, **claims)) == 200


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "a b"}, {"a", "b"}),
        ({"scope": ["a", "b", 1]}, {"a", "b"}),
        ({"scope": None, "scp": "a b"}, {"a", "b"}),
        ({"scope": None, "scp": ["a", "b"]}, {"a", "b"}),
        ({"scope": "a", "scp": "b"}, {"a"}),
        ({"scope": None}, set()),
        ({"scope": 7}, set()),
        ({"scope": "a", "permissions": ["b"]}, {"a", "b"}),
        ({"scope": None, "permissions": ["a", 1]}, {"a"}),
    ],
)
async def test_scopes_are_read_in_all_formats_of_issuers(
    verifier: Verifier, claims: dict[str, Any], scopes: set[str]
) -> None:
    identity = await verifier.tokens.identify(verifier.issuer.token(AUDIENCE, **claims))
    assert isinstance(identity, Identity)
    assert identity.scopes == frozenset(scopes)


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"token_use": "access", "client_id": "cognito-client"}, 200),
        ({"client_id": "another-client"}, 401),
        ({"client_id": None}, 401),
        ({"aud": "https://other.example.com", "client_id": "cognito-client"}, 401),
        ({"aud": [], "client_id": "cognito-client"}, 401),
        ({"aud": "cognito-client", "token_use": "id"}, 401),
    ],
)
async def test_client_id_replaces_a_missing_audience_if_configured(claims: dict[str, Any], status: int) -> None:
    async with (
        authorization_server() as issuer,
        verifier_for(issuer, audience="cognito-client", takes_client_id=True) as verifier,
        verifier_for(issuer, audience="cognito-client") as strict,
    ):
        token = issuer.token("", **{"aud": None, **claims})
        assert await verifier.status(token) == status
        # Access tokens of Amazon Cognito are recognised by `token_use`.
        assert await strict.status(token) == (200 if claims.get("token_use") == "access" else 401)


async def test_missing_required_scope_is_insufficient_scope() -> None:
    async with authorization_server() as issuer, verifier_for(issuer, required=("tools.use", "b")) as verifier:
        auth_error = await verifier.tokens.identify(issuer.token(AUDIENCE, scope="b"))
        assert isinstance(auth_error, AuthError)
        assert (auth_error.status, auth_error.error) == (403, "insufficient_scope")
        assert set(auth_error.scopes) == {"tools.use", "b"}
        assert await verifier.status(issuer.token(AUDIENCE, scope="b tools.use")) == 200


# Keys.


async def test_keys_are_fetched_once_for_many_tokens(verifier: Verifier) -> None:
    tokens = [verifier.issuer.token(AUDIENCE, sub=f"user-{number}") for number in range(20)]
    assert await asyncio.gather(*map(verifier.status, tokens)) == [200] * 20
    assert verifier.issuer.asked == {METADATA: 1, JWKS: 1}


async def test_new_key_is_fetched_at_once(verifier: Verifier) -> None:
    assert await verifier.status(verifier.issuer.token(AUDIENCE)) == 200
    old = verifier.issuer.token(AUDIENCE)
    verifier.issuer.rotate_keys()
    assert await verifier.status(verifier.issuer.token(AUDIENCE)) == 200
    assert await verifier.status(old) == 401
    verifier.clock.now += 600
    verifier.issuer.rotate_keys()
    assert await verifier.status(verifier.issuer.token(AUDIENCE)) == 200


async def test_fetches_for_unknown_key_ids_are_limited(verifier: Verifier) -> None:
    async def use_unknown_key_ids() -> int:
        for number in range(20):
            assert await verifier.status(verifier.issuer.token(AUDIENCE, headers={"kid": f"unknown-{number}"})) == 401
        return verifier.issuer.asked[JWKS]

    assert await use_unknown_key_ids() == 3
    verifier.clock.now += 14
    assert await use_unknown_key_ids() == 3
    verifier.issuer.rotate_keys()
    verifier.clock.now += 1
    assert await verifier.status(verifier.issuer.token(AUDIENCE)) == 200
    assert await use_unknown_key_ids() == 4


async def test_old_keys_are_renewed_in_the_background(verifier: Verifier) -> None:
    token = verifier.issuer.token(AUDIENCE)
    assert await verifier.status(token) == 200
    verifier.clock.now += 3600
    verifier.issuer.rotate_keys()
    assert await verifier.status(token) == 200  # with cached keys
    async with asyncio.timeout(10):
        while await verifier.status(token) == 200:
            await asyncio.sleep(0.01)
    assert verifier.issuer.asked[JWKS] == 3  # because of their age, and for an unknown key


async def test_issuer_outage_only_affects_unknown_keys(verifier: Verifier) -> None:
    token = verifier.issuer.token(AUDIENCE)
    assert await verifier.status(token) == 200
    verifier.issuer.is_down = True
    verifier.clock.now += 3600
    assert await verifier.status(token) == 200
    other = Key.make()
    auth_error = await verifier.tokens.identify(verifier.issuer.token(AUDIENCE, key=other))
    assert isinstance(auth_error, AuthError)
    assert auth_error.status == 503
    assert auth_error.retry_after is not None
    assert await verifier.status(token) == 200


async def test_failed_fetches_back_off(verifier: Verifier) -> None:
    verifier.issuer.is_down = True
    attempts = []
    for _ in range(400):  # seconds
        assert await verifier.status(verifier.issuer.token(AUDIENCE)) == 503
        attempts.append(verifier.issuer.asked[METADATA])
        verifier.clock.now += 1
    assert attempts[0] == 1
    assert attempts[10] <= 5
    assert attempts[-1] <= 12
    verifier.issuer.is_down = False
    verifier.clock.now += 120
    assert await verifier.status(verifier.issuer.token(AUDIENCE)) == 200


async def test_request_waits_a_limited_time_for_keys() -> None:
    answered = asyncio.Event()
    key = Key.make()

    async def slow(url: str) -> Any:
        await answered.wait()
        assert url.endswith("/keys")
        return {"keys": [key.jwk]}

    keys = JwksCache(
        issuer="https://idp.example.com",
        keys_url="https://idp.example.com/keys",
        fetch=slow,
        max_wait_seconds=0.02,
    )
    with pytest.raises(KeysUnavailableError):
        await keys.find(key.kid, "ES256")
    answered.set()
    await until(lambda: len(keys))
    [found] = await keys.find(key.kid, "ES256")
    assert found.public_numbers() == key.private.public_key().public_numbers()
    assert not await keys.find("other", "ES256")


async def test_backoff_does_not_overflow() -> None:
    asked = 0

    async def unreachable(url: str) -> Any:
        nonlocal asked
        asked += 1
        raise FetchError(f"{url}: unreachable is there")

    clock = Clock()
    keys = JwksCache(issuer="https://idp.example.com", keys_url=None, fetch=unreachable, clock=clock)
    for _ in range(1500):
        clock.now += 120
        with pytest.raises(KeysUnavailableError) as caught:
            await keys.find("a", "ES256")
        assert 1 <= caught.value.seconds <= 120
    assert asked == 1500


@pytest.mark.parametrize("missing", [{METADATA}, set[str]()])
async def test_metadata_is_found_at_either_url(missing: set[str]) -> None:
    async with authorization_server() as issuer, verifier_for(issuer) as verifier:
        issuer.missing = missing
        assert await verifier.status(issuer.token(AUDIENCE)) == 200
        assert issuer.asked[OPENID] == len(missing)


async def test_keys_url_can_be_configured() -> None:
    async with authorization_server() as issuer, verifier_for(issuer, keys_url=f"{issuer.issuer}{JWKS}") as verifier:
        issuer.missing = {METADATA, OPENID}
        assert await verifier.status(issuer.token(AUDIENCE)) == 200
        assert issuer.asked == {JWKS: 1}


@pytest.mark.parametrize(
    "other",
    ["https://[::1].evil/mcp", "https://[::1]x/mcp", "https://[::1]:1/mcp", "http://[::1]/mcp", "https://[::1/mcp"],
)
def test_audience_compares_the_whole_host(other: str) -> None:
    ours = normal_audience("https://[::1]/mcp")
    assert normal_audience("HTTPS://[::1]:443/mcp/") == ours
    assert normal_audience(other) != ours


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://idp.example.com"},
        {"jwks_uri": None},
        {"jwks_uri": "http://192.0.2.1/keys"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": "//["},
    ],
)
async def test_invalid_metadata_is_rejected(metadata: dict[str, Any]) -> None:
    async with authorization_server() as issuer, verifier_for(issuer) as verifier:
        issuer.metadata = metadata
        assert await verifier.status(issuer.token(AUDIENCE)) == 503
        assert issuer.asked[JWKS] == 0


@pytest.mark.parametrize(
    "key_set",
    [
        [],
        {"keys": {}},
        {"keys": [7, None, {}, {"kty": "oct", "k": "c2VjcmV0"}, {"kty": ["RSA"]}, {"kty": "EC", "crv": "P-256"}]},
        {"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}, {"kty": "OKP", "crv": "X25519", "x": "AAAA"}]},
        {"keys": "x" * 600_000},
    ],
)
async def test_key_set_without_usable_keys_is_rejected(key_set: Any) -> None:
    async with authorization_server() as issuer, verifier_for(issuer) as verifier:
        issuer.key_set = key_set
        assert await verifier.status(issuer.token(AUDIENCE)) == 503


def _with(**members: Any) -> Any:
    def change(entry: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in {**entry, **members}.items() if value is not None}

    return change


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (_with(), 200),
        (_with(use=None), 200),
        (_with(alg="ES256"), 200),
        (_with(key_ops=["verify"]), 200),
        (_with(use="enc"), 503),
        (_with(alg="ES384"), 401),
        (_with(key_ops=["sign"]), 503),
        (_with(d="AAAA"), 503),
        (_with(kid=["a"]), 503),
    ],
)
async def test_key_restrictions_are_enforced(change: Any, status: int) -> None:
    async with authorization_server() as issuer, verifier_for(issuer) as verifier:
        issuer.key_set = {"keys": [change(issuer.keys[0].jwk)]}
        assert await verifier.status(issuer.token(AUDIENCE)) == status


def test_metadata_urls() -> None:
    assert list(metadata_urls("https://idp.example.com")) == [
        "https://idp.example.com/.well-known/oauth-authorization-server",
        "https://idp.example.com/.well-known/openid-configuration",
    ]
    assert list(metadata_urls("https://idp.example.com/realms/a/")) == [
        "https://idp.example.com/.well-known/oauth-authorization-server/realms/a",
        "https://idp.example.com/.well-known/openid-configuration/realms/a",
        "https://idp.example.com/realms/a/.well-known/openid-configuration",
    ]


async def test_redirects_of_keys_are_not_followed() -> None:
    async with authorization_server() as elsewhere, authorization_server() as issuer, verifier_for(issuer) as verifier:
        issuer.moved = {JWKS: f"{elsewhere.issuer}{JWKS}"}
        assert await verifier.status(issuer.token(AUDIENCE)) == 503
        assert not elsewhere.asked


async def test_cached_token_expires(verifier: Verifier) -> None:
    assert await verifier.status(verifier.issuer.token(AUDIENCE)) == 200
    token = verifier.issuer.token(AUDIENCE, exp=time.time() + 1)
    assert await verifier.status(token) == 200
    async with asyncio.timeout(30):
        while await verifier.status(token) == 200:
            await asyncio.sleep(0.05)
    assert await verifier.status(token) == 401


async def test_token_is_verified_again_after_a_fetch_of_keys(verifier: Verifier) -> None:
    token = verifier.issuer.token(AUDIENCE, scope="a")
    first = await verifier.tokens.identify(token)
    assert await verifier.tokens.identify(token) is first
    verifier.clock.now += 3600
    async with asyncio.timeout(10):
        while await verifier.tokens.identify(token) is first:
            await asyncio.sleep(0.01)
    assert await verifier.tokens.identify(token) == first
