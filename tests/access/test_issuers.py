"""Several issuers, opaque tokens and DPoP-bound tokens, by the whole `Authenticator`."""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
from aiohttp import web

from gateway.access.auth_error import NO_CHALLENGE, AuthError
from gateway.access.authenticator import Authenticator
from gateway.access.dpop import ProofRequest
from gateway.access.identity import Identity
from gateway.config.models.auth import Auth
from gateway.net.clients import HttpClients
from gateway.net.server_metadata import fetch_json, issuer_sender, post
from gateway.state.replica import Replica
from gateway.state.used_request_states import UsedStates
from tests.access.introspecting import SECRET, OpaqueIssuer, opaque_issuer
from tests.authorization_server import JWKS, METADATA, AuthorizationServer, Key, authorization_server
from tests.local_server import listening
from tests.redis_server import redis_server

AUDIENCE: Final = "https://tools.example.com/mcp"
CLIENT: Final = {"client_id": "gateway", "client_secret": SECRET}
NOW: Final = int(time.time())


@asynccontextmanager
async def authenticating(*entries: Mapping[str, Any], store: str | None = None) -> AsyncIterator[Authenticator]:
    async with AsyncExitStack() as stack:
        sender = issuer_sender(await stack.enter_async_context(HttpClients()))
        shared = None
        if store is not None:
            shared = (await stack.enter_async_context(Replica(store, clock=time.time))).store
        authenticator = Authenticator(
            partial(fetch_json, sender), post=partial(post, sender), key=b"key", used_proofs=UsedStates(shared=shared)
        )
        stack.push_async_callback(authenticator.close)
        authenticator.configure(Auth.model_validate({"oauth": list(entries)}))
        authenticator.set_audiences([AUDIENCE])
        yield authenticator


async def identified(authenticator: Authenticator, token: str, *, scheme: str = "Bearer", **more: Any) -> Any:
    return await authenticator.identify(authorization=[f"{scheme} {token}"], api_key=(), **more)


async def status(authenticator: Authenticator, token: str, **more: Any) -> int:
    found = await identified(authenticator, token, **more)
    return found.status if isinstance(found, AuthError) else 200


@pytest.fixture
async def opaque() -> AsyncIterator[OpaqueIssuer]:
    async with opaque_issuer() as issuer:
        yield issuer


async def test_issuer_of_a_token_selects_its_entry() -> None:
    async with authorization_server() as first, authorization_server() as second:
        entries = ({"issuer": first.issuer, "audience": "first"}, {"issuer": second.issuer, "audience": "second"})
        async with authenticating(*entries) as authenticator:
            assert await status(authenticator, first.token("first")) == 200
            assert await status(authenticator, second.token("second")) == 200
            # Neither audiences nor keys are shared between entries.
            assert await status(authenticator, first.token("second")) == 401
            assert await status(authenticator, first.token("first", iss=second.issuer)) == 401
            assert await status(authenticator, second.token("second", key=first.keys[-1])) == 401


async def test_nothing_is_fetched_for_a_token_of_an_unknown_issuer() -> None:
    async with authorization_server() as issuer, authenticating({"issuer": issuer.issuer}) as authenticator:
        assert await status(authenticator, issuer.token(AUDIENCE)) == 200
        issuer.asked.clear()
        found = await identified(
            authenticator, issuer.token(AUDIENCE, iss="https://other.example.com", headers={"kid": "x"})
        )
        assert found.message == "The token was issued by a different authorization server"
        assert not issuer.asked


async def test_equal_subjects_of_two_issuers_are_two_callers() -> None:
    async with (
        authorization_server() as first,
        authorization_server() as second,
        authenticating({"issuer": first.issuer}, {"issuer": second.issuer}) as authenticator,
    ):
        found = [await identified(authenticator, each.token(AUDIENCE)) for each in (first, second)]
    assert found[0].principal == found[1].principal
    assert found[0].subject_key != found[1].subject_key


async def test_only_listed_algorithms_are_accepted() -> None:
    async with authorization_server("ES256") as issuer:
        async with authenticating({"issuer": issuer.issuer, "algorithms": ["RS256"]}) as authenticator:
            assert await status(authenticator, issuer.token(AUDIENCE)) == 401
        async with authenticating({"issuer": issuer.issuer, "algorithms": ["ES256"]}) as authenticator:
            assert await status(authenticator, issuer.token(AUDIENCE)) == 200


async def test_changed_roles_end_earlier_identities() -> None:
    async with authorization_server() as issuer:
        entry = {"issuer": issuer.issuer, "roles": {"scopes": {"ops": ["a"]}}}
        async with authenticating(entry) as authenticator:
            identity = await identified(authenticator, issuer.token(AUDIENCE, roles=["ops"], scope="s"))
            assert identity.scopes == {"a", "s"}
            entry["roles"] = {"scopes": {"ops": ["b"], "*": ["c"]}}
            authenticator.configure(Auth.model_validate({"oauth": entry}))
            assert authenticator.revalidate(identity) is None
            renewed = await identified(authenticator, issuer.token(AUDIENCE, roles=["ops"], scope="s"))
            assert renewed.scopes == {"b", "c", "s"}
            assert authenticator.revalidate(renewed) == renewed


def entry_of(issuer: OpaqueIssuer, **more: Any) -> dict[str, Any]:
    return {"issuer": issuer.issuer, "introspection": CLIENT, **more}


async def test_opaque_token_is_introspected(opaque: OpaqueIssuer) -> None:
    opaque.tokens["opaque"] = {"sub": "ann", "scope": "a b", "aud": AUDIENCE, "exp": NOW + 300, "groups": ["ops"]}
    entry = entry_of(opaque, roles={"scopes": {"ops": ["c"]}})
    async with authenticating(entry) as authenticator:
        identity = await identified(authenticator, "opaque")
        assert (identity.principal, identity.realm, identity.scopes) == ("ann", opaque.issuer, {"a", "b", "c"})
        assert await status(authenticator, "opaque") == 200
        assert await status(authenticator, "unknown") == 401
        assert await status(authenticator, "unknown") == 401
    # Both responses are cached, and the credentials are not in the form.
    assert [form["token"] for form in opaque.forms] == ["opaque", "unknown"]
    assert "client_secret" not in opaque.forms[0]


async def test_credentials_are_posted_if_the_issuer_does_not_accept_basic(opaque: OpaqueIssuer) -> None:
    opaque.tokens["opaque"] = {"sub": "ann", "aud": AUDIENCE}
    opaque.server.metadata["introspection_endpoint_auth_methods_supported"] = ["client_secret_post"]
    async with authenticating(entry_of(opaque)) as authenticator:
        assert await status(authenticator, "opaque") == 200
    assert opaque.forms[0]["client_secret"] == SECRET


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({}, 200),
        ({"aud": AUDIENCE}, 200),
        ({"aud": ["x", AUDIENCE]}, 200),
        ({"aud": "https://other.example.com/mcp"}, 401),
        ({"aud": []}, 401),
        ({"iss": "https://other.example.com"}, 401),
        ({"exp": NOW - 1}, 401),
        ({"exp": "soon"}, 401),
        ({"nbf": NOW + 3600}, 401),
        ({"sub": None}, 401),
        ({"sub": ""}, 401),
    ],
)
async def test_claims_of_an_introspected_token_are_checked(
    opaque: OpaqueIssuer, claims: dict[str, Any], expected: int
) -> None:
    opaque.tokens["opaque"] = {"sub": "ann", **claims}
    async with authenticating(entry_of(opaque)) as authenticator:
        assert await status(authenticator, "opaque") == expected


async def test_entry_with_an_audience_requires_it(opaque: OpaqueIssuer) -> None:
    opaque.tokens |= {"with": {"sub": "ann", "aud": "api"}, "without": {"sub": "ann"}}
    async with authenticating(entry_of(opaque, audience="api")) as authenticator:
        assert await status(authenticator, "with") == 200
        assert await status(authenticator, "without") == 401


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(status=500),
        web.Response(status=401),
        web.Response(text="{"),
        web.Response(text="[]"),
        web.Response(text='{"active": "yes", "sub": "ann"}'),
        web.Response(text="{}"),
        web.Response(text="x.y.z", content_type="application/token-introspection+jwt"),
        web.Response(status=302, headers={"Location": "https://other.example.com"}),
    ],
)
async def test_malformed_introspection_response_is_an_error(opaque: OpaqueIssuer, answer: web.Response) -> None:
    opaque.answer = answer
    async with authenticating(entry_of(opaque)) as authenticator:
        found = await identified(authenticator, "opaque")
        assert found.status == 503
        assert found.retry_after


async def test_signed_introspection_response_is_verified(opaque: OpaqueIssuer) -> None:
    opaque.tokens["opaque"] = {"sub": "ann", "aud": AUDIENCE}
    opaque.signs = True
    async with authenticating(entry_of(opaque)) as authenticator:
        assert await status(authenticator, "opaque") == 200
    for wrong in ({"aud": "another-client"}, {"iss": "https://other.example.com"}, {"token_introspection": None}):
        opaque.signed_claims = wrong
        async with authenticating(entry_of(opaque)) as authenticator:
            assert await status(authenticator, "opaque") == 503


async def test_issuers_are_asked_in_the_order_of_the_file(opaque: OpaqueIssuer) -> None:
    async with opaque_issuer() as second:
        opaque.tokens["one"] = {"sub": "ann"}
        second.tokens |= {"one": {"sub": "eve"}, "two": {"sub": "bob"}}
        async with authenticating(entry_of(opaque), entry_of(second)) as authenticator:
            assert (await identified(authenticator, "one")).principal == "ann"
            assert (await identified(authenticator, "two")).principal == "bob"
            # An unavailable issuer does not prevent the use of the next one, and does not cause a 401.
            opaque.server.is_down = True
            second.tokens["three"] = {"sub": "cid"}
            assert (await identified(authenticator, "three")).principal == "cid"
            assert await status(authenticator, "four") == 503


async def test_signed_token_is_never_introspected(opaque: OpaqueIssuer) -> None:
    async with authorization_server() as other, authenticating(entry_of(opaque)) as authenticator:
        assert await status(authenticator, other.token(AUDIENCE)) == 401
        # The tokens of the issuer itself are verified with its keys.
        assert await status(authenticator, opaque.server.token(AUDIENCE)) == 200
    assert opaque.forms == []


async def test_github_token_is_introspected() -> None:
    seen: list[tuple[str | None, Any]] = []

    async def respond(request: web.Request) -> web.Response:
        body = await request.json()
        seen.append((request.headers.get("Authorization"), body))
        if body["access_token"] != "gho_good":
            return web.json_response({"message": "Not Found"}, status=404)
        return web.json_response(
            {"scopes": ["repo", "read:org"], "user": {"id": 7, "login": "ann"}, "app": {"client_id": "Iv1"}}
        )

    async with authorization_server() as server:
        application = web.Application()
        application.router.add_post("/applications/Iv1/token", respond)
        async with listening(application) as port:
            introspection = {
                "type": "github",
                "client_id": "Iv1",
                "client_secret": "s",
                "url": f"http://127.0.0.1:{port}/applications/Iv1/token",
            }
            async with authenticating({"issuer": server.issuer, "introspection": introspection}) as authenticator:
                identity = await identified(authenticator, "gho_good")
                assert (identity.principal, identity.scopes) == ("7", {"repo", "read:org"})
                assert identity.claims["username"] == "ann"
                assert await status(authenticator, "gho_bad") == 401
    assert seen[0][0] == f"Basic {base64.b64encode(b'Iv1:s').decode()}"


URL: Final = "https://tools.example.com/mcp"


class Holder:
    """A client with a key for DPoP proofs."""

    def __init__(self, issuer: AuthorizationServer) -> None:
        self.issuer = issuer
        self.key = Key.make("ES256")
        self.nonce: str | None = None

    @property
    def jwk(self) -> dict[str, Any]:
        return {name: self.key.jwk[name] for name in ("kty", "crv", "x", "y")}

    @property
    def thumbprint(self) -> str:
        return encoded(json.dumps(self.jwk, sort_keys=True, separators=(",", ":")).encode())

    def token(self, **claims: Any) -> str:
        return self.issuer.token(AUDIENCE, cnf={"jkt": self.thumbprint}, **claims)

    def proof(
        self,
        token: str,
        *,
        headers: Mapping[str, Any] | None = None,
        key: Any = None,
        unsigned: bool = False,
        **claims: Any,
    ) -> str:
        body = {
            "jti": secrets.token_urlsafe(12),
            "htm": "POST",
            "htu": URL,
            "iat": int(time.time()),
            "ath": encoded(token.encode()),
            "nonce": self.nonce,
            **claims,
        }
        head = {"typ": "dpop+jwt", "jwk": self.jwk, **(headers or {})}
        algorithm = head.pop("alg", "ES256")
        payload = {name: value for name, value in body.items() if value is not None}
        signing: Any = None if unsigned else key or self.key.private
        return jwt.encode(payload, signing, algorithm=algorithm, headers=head)


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


async def used(authenticator: Authenticator, token: str, *proofs: str, scheme: str = "DPoP") -> Any:
    request = ProofRequest(proofs=proofs, method="POST", url=URL)
    return await identified(authenticator, token, scheme=scheme, request=request)


@asynccontextmanager
async def holding(*, store: str | None = None, **entry: Any) -> AsyncIterator[tuple[Authenticator, Holder]]:
    """A client that has the nonce of the server."""
    async with (
        authorization_server() as issuer,
        authenticating({"issuer": issuer.issuer, **entry}, store=store) as authenticator,
    ):
        holder = Holder(issuer)
        token = holder.token()
        first = await used(authenticator, token, holder.proof(token))
        assert first.error == "use_dpop_nonce"
        headers = first.headers(NO_CHALLENGE)
        assert headers["WWW-Authenticate"].startswith('DPoP error="use_dpop_nonce"')
        holder.nonce = headers["DPoP-Nonce"]
        yield authenticator, holder


async def test_bound_token_is_accepted_with_a_proof() -> None:
    async with holding() as (authenticator, holder):
        token = holder.token(scope="a")
        identity = await used(authenticator, token, holder.proof(token))
        assert identity.scopes == {"a"}
        # The path can be written with another case of the host, and with a query.
        assert isinstance(
            await used(authenticator, token, holder.proof(token, htu="HTTPS://Tools.example.com:443/mcp?x=1")), Identity
        )


async def test_proof_is_accepted_once() -> None:
    async with holding() as (authenticator, holder):
        token = holder.token()
        proof = holder.proof(token)
        assert isinstance(await used(authenticator, token, proof), Identity)
        assert (await used(authenticator, token, proof)).message == "The DPoP proof has already been used"


async def test_proof_is_rejected_by_other_replicas(tmp_path: Path) -> None:
    async with (
        redis_server(tmp_path) as server,
        holding(store=server.url) as (first, holder),
        authenticating({"issuer": holder.issuer.issuer}, store=server.url) as second,
    ):
        token = holder.token()
        for one, other in ((first, second), (second, first)):
            proof = holder.proof(token)
            assert isinstance(await used(one, token, proof), Identity)
            assert (await used(other, token, proof)).message == "The DPoP proof has already been used"
            assert isinstance(await used(other, token, holder.proof(token)), Identity)
        await server.stop()
        refusal = await used(first, token, holder.proof(token))
        assert (refusal.status, "unavailable" in refusal.message) == (503, True)


@pytest.mark.parametrize(
    "claims",
    [
        {"htm": "GET"},
        {"htu": "https://tools.example.com/other"},
        {"htu": "https://evil.example.com/mcp"},
        {"htu": None},
        {"iat": NOW - 3600},
        {"iat": NOW + 3600},
        {"iat": None},
        {"iat": "now"},
        {"ath": None},
        {"ath": encoded(b"another token")},
        {"jti": None},
        {"jti": "x" * 1000},
        {"nonce": "of another user"},
        {"nonce": 7},
    ],
)
async def test_claims_of_a_proof_are_checked(claims: dict[str, Any]) -> None:
    async with holding() as (authenticator, holder):
        token = holder.token()
        error = await used(authenticator, token, holder.proof(token, **claims))
        assert error.status == 401
        assert error.headers(NO_CHALLENGE)["WWW-Authenticate"].startswith("DPoP ")
        assert isinstance(await used(authenticator, token, holder.proof(token)), Identity)


async def test_headers_and_keys_of_a_proof_are_checked() -> None:
    async with holding() as (authenticator, holder):
        token, other = holder.token(), Holder(holder.issuer)
        other.nonce = holder.nonce
        private = json.loads(json.dumps({**holder.jwk, "d": "AAAA"}))
        for proof in (
            other.proof(token),  # another key than the token is bound to
            holder.proof(token, key=other.key.private),  # not signed with the key that it names
            holder.proof(token, headers={"typ": "JWT"}),
            holder.proof(token, headers={"alg": "HS256"}, key=b"x" * 32),
            holder.proof(token, headers={"alg": "none"}, unsigned=True),
            holder.proof(token, headers={"jwk": private}),
            holder.proof(token, headers={"jwk": {"kty": "EC"}}),
            holder.proof(token, headers={"crit": ["x"]}),
            "x",
            "",
        ):
            assert (await used(authenticator, token, proof)).status == 401
        assert (await used(authenticator, token)).status == 401
        assert (await used(authenticator, token, holder.proof(token), holder.proof(token))).status == 401


async def test_authorization_scheme_must_match_the_binding() -> None:
    async with holding() as (authenticator, holder):
        token = holder.token()
        # A bound token is refused as a bearer token, also with a proof.
        for proofs in ((), (holder.proof(token),)):
            error = await used(authenticator, token, *proofs, scheme="Bearer")
            assert error.headers(NO_CHALLENGE)["WWW-Authenticate"].startswith('DPoP error="invalid_token"')
        key = "key-of-ci-0123456789"
        entry = {"issuer": holder.issuer.issuer}
        authenticator.configure(Auth.model_validate({"oauth": entry, "api_keys": {"ci": {"secret": key}}}))
        assert isinstance(await used(authenticator, key, scheme="Bearer"), Identity)
        assert (await used(authenticator, key)).status == 401
        unbound = holder.issuer.token(AUDIENCE)
        assert (await used(authenticator, unbound, holder.proof(unbound))).status == 401
        assert isinstance(await used(authenticator, unbound, scheme="Bearer"), Identity)


async def test_required_dpop_rejects_bearer_tokens() -> None:
    async with holding(dpop="required") as (authenticator, holder):
        error = await used(authenticator, holder.issuer.token(AUDIENCE), scheme="Bearer")
        assert error.status == 401
        assert "DPoP" in error.headers(NO_CHALLENGE)["WWW-Authenticate"]
        token = holder.token()
        assert isinstance(await used(authenticator, token, holder.proof(token)), Identity)
        missing = await authenticator.identify(authorization=(), api_key=())
        assert isinstance(missing, AuthError)
        assert missing.headers(NO_CHALLENGE)["WWW-Authenticate"].startswith("DPoP algs=")


async def test_nonce_is_accepted_by_a_replica_with_the_same_key() -> None:
    async with holding() as (_, holder), authenticating({"issuer": holder.issuer.issuer}) as replica:
        token = holder.token()
        assert isinstance(await used(replica, token, holder.proof(token)), Identity)


async def test_unknown_key_ids_cause_few_fetches() -> None:
    async with authorization_server() as issuer, authenticating({"issuer": issuer.issuer}) as authenticator:
        for number in range(50):
            await status(authenticator, issuer.token(AUDIENCE, headers={"kid": f"flood-{number}"}))
        assert issuer.asked[JWKS] <= 4
        assert issuer.asked[METADATA] <= 4
