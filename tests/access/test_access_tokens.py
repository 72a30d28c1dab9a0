"""Access tokens: which of them let in, and how the issuer's keys are come by."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pytest

from gateway.access.access_tokens import AccessTokens, TokenRules, normal_audience
from gateway.access.auth_error import AuthError
from gateway.access.identity import Identity
from gateway.access.issuer import FetchError, metadata_urls
from gateway.access.jwks import JwksCache, KeysUnavailableError
from gateway.net.clients import HttpClients
from gateway.net.json_fetcher import fetch_json, issuer_sender
from tests.authorization_server import JWKS, METADATA, OPENID, AuthorizationServer, Key, authorization_server

US: Final = "https://tools.example.com/ops/mcp"
THEM: Final = "https://other.example.com/mcp"
NOW: Final = int(time.time())


@dataclass
class Clock:
    """Time that passes when a test says so."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(kw_only=True)
class Desk:
    """An issuer, and those who check its tokens."""

    issuer: AuthorizationServer
    tokens: AccessTokens
    clock: Clock = field(default_factory=Clock)

    async def status(self, token: str) -> int:
        """What a token is answered with: 200 where it lets in."""
        identity = await self.tokens.identify(token)
        return identity.status if isinstance(identity, AuthError) else 200


@asynccontextmanager
async def desk_of(
    issuer: AuthorizationServer,
    *,
    required: tuple[str, ...] = (),
    keys_url: str | None = None,
    audience: str = US,
    takes_client_id: bool = False,
) -> AsyncIterator[Desk]:
    clock = Clock()
    rules = TokenRules(
        issuer=issuer.issuer,
        audiences=frozenset({normal_audience(audience)}),
        required_scopes=required,
        takes_client_id=takes_client_id,
    )
    async with HttpClients() as clients:
        keys = JwksCache(
            issuer=issuer.issuer, keys_url=keys_url, fetch=partial(fetch_json, issuer_sender(clients)), clock=clock
        )
        try:
            yield Desk(issuer=issuer, tokens=AccessTokens(rules, keys), clock=clock)
        finally:
            await keys.close()


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with authorization_server() as issuer, desk_of(issuer) as it:
        yield it


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "ES384", "EdDSA"])
async def test_a_token_lets_its_subject_in_with_its_scopes(algorithm: str) -> None:
    async with authorization_server(algorithm) as issuer, desk_of(issuer) as desk:
        identity = await desk.tokens.identify(issuer.token(US, scope="ops.read ops.write"))
    assert isinstance(identity, Identity)
    assert (identity.principal, identity.realm) == ("alice", issuer.issuer)
    assert identity.scopes == frozenset({"ops.read", "ops.write"})
    assert identity.expires_at is not None
    assert 250 <= identity.expires_at - time.time() <= 350


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"audience": [THEM, US]},
        {"audience": f"{US}/"},
        {"audience": US.replace("https://tools", "HTTPS://Tools").replace(".com/", ".com:443/")},
        {"iat": NOW + 5},  # an issuer whose clock is ahead of ours
        {"nbf": NOW - 60},
        {"iat": None},
        {"headers": {"typ": "JWT"}},
        {"headers": {"typ": "application/at+jwt"}},
        {"headers": {"kid": None}},
        {"headers": {"jku": "http://127.0.0.1:9/keys", "x5u": "http://127.0.0.1:9/cert", "jwk": {"kty": "oct"}}},
    ],
)
async def test_a_good_token_lets_in(desk: Desk, claims: dict[str, Any]) -> None:
    audience = claims.pop("audience", US)
    assert await desk.status(desk.issuer.token(audience, **claims)) == 200


@pytest.mark.parametrize(
    "claims",
    [
        {"audience": THEM},
        {"audience": US.removesuffix("/mcp")},
        {"audience": []},
        {"aud": None},
        {"aud": {"0": US}},
        {"exp": NOW - 3600},
        {"lasts": -1},
        {"lasts": 0},
        {"exp": None},
        {"exp": "never"},
        {"exp": float("inf")},
        {"nbf": float("inf")},
        {"nbf": NOW + 1_000_000},
        {"iat": NOW + 1_000_000},
        {"iss": "https://idp.example.com"},
        {"iss": None},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"headers": {"typ": "logout+jwt"}},
        {"headers": {"typ": "dpop+jwt"}},
        {"headers": {"kid": "unknown"}},
        {"headers": {"kid": "x" * 5000}},
        {"headers": {"crit": ["exp"]}},
        {"padding": "x" * 20_000},
    ],
)
async def test_no_other_token_lets_in(desk: Desk, claims: dict[str, Any]) -> None:
    audience = claims.pop("audience", US)
    assert await desk.status(desk.issuer.token(audience, **claims)) == 401
    assert await desk.status(desk.issuer.token(US)) == 200


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
async def test_scopes_are_read_as_issuers_write_them(desk: Desk, claims: dict[str, Any], scopes: set[str]) -> None:
    identity = await desk.tokens.identify(desk.issuer.token(US, **claims))
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
async def test_the_client_id_replaces_a_missing_audience_where_the_file_says_so(
    claims: dict[str, Any], status: int
) -> None:
    async with (
        authorization_server() as issuer,
        desk_of(issuer, audience="cognito-client", takes_client_id=True) as desk,
        desk_of(issuer, audience="cognito-client") as strict,
    ):
        token = issuer.token("", **{"aud": None, **claims})
        assert await desk.status(token) == status
        # Access tokens of Amazon Cognito are recognised by `token_use`.
        assert await strict.status(token) == (200 if claims.get("token_use") == "access" else 401)


async def test_a_token_without_a_scope_that_all_need_is_asked_for_more() -> None:
    async with authorization_server() as issuer, desk_of(issuer, required=("tools.use", "b")) as desk:
        auth_error = await desk.tokens.identify(issuer.token(US, scope="b"))
        assert isinstance(auth_error, AuthError)
        assert (auth_error.status, auth_error.error) == (403, "insufficient_scope")
        assert set(auth_error.scopes) == {"tools.use", "b"}
        assert await desk.status(issuer.token(US, scope="b tools.use")) == 200


# Keys.


async def test_keys_are_looked_up_once_for_many_tokens(desk: Desk) -> None:
    tokens = [desk.issuer.token(US, sub=f"user-{number}") for number in range(20)]
    assert await asyncio.gather(*map(desk.status, tokens)) == [200] * 20
    assert desk.issuer.asked == {METADATA: 1, JWKS: 1}


async def test_a_new_key_is_looked_up_when_a_token_brings_it_however_soon(desk: Desk) -> None:
    assert await desk.status(desk.issuer.token(US)) == 200
    old = desk.issuer.token(US)
    desk.issuer.turn_keys()
    assert await desk.status(desk.issuer.token(US)) == 200
    assert await desk.status(old) == 401
    desk.clock.now += 600
    desk.issuer.turn_keys()
    assert await desk.status(desk.issuer.token(US)) == 200


async def test_unknown_key_ids_cannot_make_us_ask_again_and_again(desk: Desk) -> None:
    async def bring_unknown_ones() -> int:
        for number in range(20):
            assert await desk.status(desk.issuer.token(US, headers={"kid": f"unknown-{number}"})) == 401
        return desk.issuer.asked[JWKS]

    assert await bring_unknown_ones() == 3
    desk.clock.now += 14
    assert await bring_unknown_ones() == 3
    desk.issuer.turn_keys()
    desk.clock.now += 1
    assert await desk.status(desk.issuer.token(US)) == 200
    assert await bring_unknown_ones() == 4


async def test_old_keys_are_renewed_beside_the_requests_that_use_them(desk: Desk) -> None:
    token = desk.issuer.token(US)
    assert await desk.status(token) == 200
    desk.clock.now += 3600
    desk.issuer.turn_keys()
    assert await desk.status(token) == 200  # with what was known
    async with asyncio.timeout(10):
        while await desk.status(token) == 200:
            await asyncio.sleep(0.01)
    assert desk.issuer.asked[JWKS] == 3  # for their age, and for a key that is not there any more


async def test_known_keys_work_while_the_issuer_is_down_and_unknown_ones_can_be_tried_later(desk: Desk) -> None:
    token = desk.issuer.token(US)
    assert await desk.status(token) == 200
    desk.issuer.is_down = True
    desk.clock.now += 3600
    assert await desk.status(token) == 200
    other = Key.make()
    auth_error = await desk.tokens.identify(desk.issuer.token(US, key=other))
    assert isinstance(auth_error, AuthError)
    assert auth_error.status == 503
    assert auth_error.retry_after is not None
    assert await desk.status(token) == 200


async def test_an_issuer_that_is_down_is_asked_ever_more_rarely(desk: Desk) -> None:
    desk.issuer.is_down = True
    attempts = []
    for _ in range(400):  # seconds
        assert await desk.status(desk.issuer.token(US)) == 503
        attempts.append(desk.issuer.asked[METADATA])
        desk.clock.now += 1
    assert attempts[0] == 1
    assert attempts[10] <= 5
    assert attempts[-1] <= 12
    desk.issuer.is_down = False
    desk.clock.now += 120
    assert await desk.status(desk.issuer.token(US)) == 200


async def test_a_request_waits_only_so_long_for_an_issuer_that_is_slow() -> None:
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
        patience_seconds=0.02,
    )
    with pytest.raises(KeysUnavailableError):
        await keys.find(key.kid, "ES256")
    answered.set()
    async with asyncio.timeout(10):
        while not len(keys):
            await asyncio.sleep(0.01)
    assert [each.kid for each in await keys.find(key.kid, "ES256")] == [key.kid]


async def test_an_issuer_may_be_down_for_days() -> None:
    asked = 0

    async def nobody(url: str) -> Any:
        nonlocal asked
        asked += 1
        raise FetchError(f"{url}: nobody is there")

    clock = Clock()
    keys = JwksCache(issuer="https://idp.example.com", keys_url=None, fetch=nobody, clock=clock)
    for _ in range(1500):
        clock.now += 120
        with pytest.raises(KeysUnavailableError) as caught:
            await keys.find("a", "ES256")
        assert 1 <= caught.value.seconds <= 120
    assert asked == 1500


@pytest.mark.parametrize("missing", [{METADATA}, set[str]()])
async def test_metadata_is_found_at_either_place(missing: set[str]) -> None:
    async with authorization_server() as issuer, desk_of(issuer) as desk:
        issuer.missing = missing
        assert await desk.status(issuer.token(US)) == 200
        assert issuer.asked[OPENID] == len(missing)


async def test_keys_may_be_named_in_the_file() -> None:
    async with authorization_server() as issuer, desk_of(issuer, keys_url=f"{issuer.issuer}{JWKS}") as desk:
        issuer.missing = {METADATA, OPENID}
        assert await desk.status(issuer.token(US)) == 200
        assert issuer.asked == {JWKS: 1}


@pytest.mark.parametrize(
    "other", ["https://[::1].evil/mcp", "https://[::1]x/mcp", "https://[::1]:1/mcp", "http://[::1]/mcp"]
)
def test_an_audience_is_ours_by_its_whole_host(other: str) -> None:
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
async def test_metadata_that_cannot_be_believed_brings_no_keys(metadata: dict[str, Any]) -> None:
    async with authorization_server() as issuer, desk_of(issuer) as desk:
        issuer.metadata = metadata
        assert await desk.status(issuer.token(US)) == 503
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
async def test_a_key_set_without_a_key_is_none(key_set: Any) -> None:
    async with authorization_server() as issuer, desk_of(issuer) as desk:
        issuer.key_set = key_set
        assert await desk.status(issuer.token(US)) == 503


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
async def test_a_key_is_for_what_its_issuer_says(change: Any, status: int) -> None:
    async with authorization_server() as issuer, desk_of(issuer) as desk:
        issuer.key_set = {"keys": [change(issuer.keys[0].jwk)]}
        assert await desk.status(issuer.token(US)) == status


def test_metadata_is_looked_for_where_both_specifications_put_it() -> None:
    assert list(metadata_urls("https://idp.example.com")) == [
        "https://idp.example.com/.well-known/oauth-authorization-server",
        "https://idp.example.com/.well-known/openid-configuration",
    ]
    assert list(metadata_urls("https://idp.example.com/realms/a/")) == [
        "https://idp.example.com/.well-known/oauth-authorization-server/realms/a",
        "https://idp.example.com/.well-known/openid-configuration/realms/a",
        "https://idp.example.com/realms/a/.well-known/openid-configuration",
    ]


async def test_keys_are_not_followed_to_another_place() -> None:
    async with authorization_server() as elsewhere, authorization_server() as issuer, desk_of(issuer) as desk:
        issuer.moved = {JWKS: f"{elsewhere.issuer}{JWKS}"}
        assert await desk.status(issuer.token(US)) == 503
        assert not elsewhere.asked


async def test_a_token_that_was_proven_lets_in_no_longer_than_it_is_valid(desk: Desk) -> None:
    assert await desk.status(desk.issuer.token(US)) == 200
    token = desk.issuer.token(US, exp=time.time() + 1)
    assert await desk.status(token) == 200
    async with asyncio.timeout(30):
        while await desk.status(token) == 200:
            await asyncio.sleep(0.05)
    assert await desk.status(token) == 401


async def test_a_token_is_proven_once_until_the_keys_are_got_again(desk: Desk) -> None:
    token = desk.issuer.token(US, scope="a")
    first = await desk.tokens.identify(token)
    assert await desk.tokens.identify(token) is first
    desk.clock.now += 3600
    async with asyncio.timeout(10):
        while await desk.tokens.identify(token) is first:
            await asyncio.sleep(0.01)
    assert await desk.tokens.identify(token) == first
