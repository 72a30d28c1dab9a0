"""Stored sign-ins: concurrent changes and idle users, with a real authorization server and real stores."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from msgspec.structs import replace
from yarl import URL

from gateway.access.identity import Credential, Subject
from gateway.config.diagnostics.problems import Problems
from gateway.config.models.backends import Connection
from gateway.config.secrets.redactor import Redactor
from gateway.errors import ExecutionError
from gateway.events import Events
from gateway.executors.shared_services import running_services
from gateway.executors.sign_in import with_sign_in
from gateway.net.authorization import Authorization, FixedAuthorization, compile_connection
from gateway.net.authorization_code import ServiceEntry, Tokens, digest_of, offline_parameters
from gateway.net.outbound_tokens import AccessToken
from gateway.net.request import Request
from gateway.net.server_metadata import ServerMetadata
from gateway.net.sign_ins import SignInRequiredError, SignIns, record_name
from gateway.net.token_client import OAuthClient
from gateway.signin.browser import BrowserSignIn
from gateway.state.database import StateDatabase
from gateway.state.encrypted_store import ENCRYPTED, EncryptedStore
from gateway.state.keys import SigningKeys
from gateway.state.replica import Replica
from tests.executors.recording import make_invocation
from tests.redis_server import redis_server
from tests.sign_in_server import Provider, provider

SECONDS: Final = 90
DAY: Final = 86_400.0
ANN: Final = Subject("key ann")
KEYS: Final = SigningKeys([b"k" * 40])


class InterruptedStore(EncryptedStore):
    """A store with a change by another process directly after one read of tokens."""

    interrupt: Callable[[], Awaitable[object]] | None = None
    reads_before = 0
    loses_responses = False
    """Whether each deletion is sent again, because the first response was lost."""

    async def delete(self, name: str) -> bytes | None:
        content = await super().delete(name)
        return await super().delete(name) if self.loses_responses else content

    async def read(self, name: str) -> bytes | None:
        content = await super().read(name)
        self.reads_before -= name.startswith("tokens:")
        if self.interrupt is not None and self.reads_before < 0:
            interrupt, self.interrupt = self.interrupt, None
            await interrupt()
        return content


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class SignedIn:
    """Sign-ins to one service, at which the user `ann` has signed in."""

    def __init__(
        self,
        sign_ins: SignIns,
        entry: ServiceEntry,
        authorization: Authorization,
        store: InterruptedStore,
        other_store: EncryptedStore,
        clock: Clock,
    ) -> None:
        """`other_store` has another key and the same records, like the store of another gateway."""
        self.sign_ins = sign_ins
        self.entry = entry
        self.authorization = authorization
        self.store = store
        self.other_store = other_store
        self.clock = clock
        self.name = record_name(entry.key, "key ann")

    async def sign_in(self) -> None:
        sign_ins = self.sign_ins
        pending = await sign_ins.pending(await sign_ins.begin(SignInRequiredError(sign_ins, self.entry, ANN)))
        assert pending is not None
        url, browser = await sign_ins.start(pending, redirect_uri="http://127.0.0.1:9/callback")
        async with aiohttp.ClientSession() as http, http.get(url, allow_redirects=False) as response:
            query = {name: values[0] for name, values in parse_qs(urlsplit(response.headers["Location"]).query).items()}
        found = await sign_ins.returned(query["state"], browser, name=self.entry.name)
        assert found is not None
        await sign_ins.finish(found, query)

    async def tokens(self) -> Tokens | None:
        return (await self.sign_ins.tokens(self.entry, "key ann"))[1]

    async def sign_out(self) -> None:
        await self.sign_ins.sign_out(self.name)

    async def send(self, subject: Subject | None) -> None:
        """Sign a request, as a call or a list request does."""
        request = Request(method="GET", url=URL(self.entry.service_url), headers=())
        await self.authorization.sign(request, subject)


@asynccontextmanager
async def signed_in(idp: Provider, folder: Path, kind: str = "memory", idle: str = "720h") -> AsyncIterator[SignedIn]:
    clock = Clock()
    async with AsyncExitStack() as stack:
        services = await stack.enter_async_context(running_services())
        place = folder / "secrets.sqlite" if kind == "sqlite" else None
        database = await stack.enter_async_context(StateDatabase(place, (ENCRYPTED,)))
        shared = None
        if kind == "redis":
            server = await stack.enter_async_context(redis_server(folder / "redis"))
            shared = (await stack.enter_async_context(Replica(server.url, clock=time.time))).store
        store = InterruptedStore(database, keys=KEYS, clock=clock, shared=shared)
        other_store = EncryptedStore(database, keys=SigningKeys([b"o" * 40]), clock=clock, shared=shared)
        sign_ins = SignIns(clock=clock)
        sign_ins.open(store, Events())
        code = {"issuer": idp.issuer, "scopes": ["read"], "idle": idle}
        connection = {"base_url": f"{idp.issuer}/api", "allow_private": True, "auth": {"authorization_code": code}}
        authorization = compile_connection(
            Connection.model_validate(connection),
            services=replace(services, sign_ins=sign_ins),
            redactor=Redactor(),
            issuers=[],
            problems=Problems().at("connections", "api"),
        )
        assert authorization is not None
        [entry] = sign_ins.entries(frozenset({authorization.entry.key}))  # type: ignore[attr-defined]
        found = SignedIn(sign_ins, entry, authorization, store, other_store, clock)
        await found.sign_in()
        yield found
        await sign_ins.close()


@pytest.fixture
async def idp() -> AsyncIterator[Provider]:
    async with asyncio.timeout(SECONDS), provider() as found:
        yield found


@pytest.mark.parametrize("subject", [None, Subject("key bob")])
async def test_call_does_not_sign_in_for_the_caller_of_a_joined_attempt(
    tmp_path: Path, idp: Provider, subject: Subject | None
) -> None:
    async with signed_in(idp, tmp_path) as ann:
        required = [SignInRequiredError(ann.sign_ins, ann.entry, subject)]

        async def connect() -> str:
            if required:
                raise ExecutionError("cannot connect") from required.pop()
            return "connected"

        assert await with_sign_in(make_invocation(subject=ANN), connect) == "connected"


@pytest.mark.parametrize("kind", ["sqlite", "memory", "redis"])
@pytest.mark.parametrize("signs_out", [True, False])
async def test_sign_out_during_a_refresh_is_not_undone(
    tmp_path: Path, idp: Provider, kind: str, *, signs_out: bool
) -> None:
    async with signed_in(idp, tmp_path, kind) as user:
        stale = await user.tokens()
        assert stale is not None
        idp.free.clear()
        refresh = asyncio.create_task(user.sign_ins.refreshed(user.entry, user.name, stale))
        while not idp.grants["refresh_token"]:
            await asyncio.sleep(0.01)
        if signs_out:
            await user.sign_out()
        idp.free.set()
        fresh, stored = await refresh, await user.tokens()
        if signs_out:
            assert fresh is stored is None
            assert not idp.refresh  # the new token is revoked too
        else:
            assert fresh is not None
            assert fresh == stored
            assert fresh.access_token != stale.access_token


@pytest.mark.parametrize("kind", ["sqlite", "memory", "redis"])
@pytest.mark.parametrize("loses_responses", [True, False])
async def test_concurrent_sign_outs_revoke_the_tokens_once(
    tmp_path: Path, idp: Provider, kind: str, *, loses_responses: bool
) -> None:
    async with signed_in(idp, tmp_path, kind) as user:
        user.store.loses_responses = loses_responses
        await asyncio.gather(*(user.sign_out() for _ in range(4)))
        assert len(idp.revoked) == 1
        assert await user.tokens() is None


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_gateway_with_another_key_does_not_delete_tokens(tmp_path: Path, idp: Provider, kind: str) -> None:
    async with signed_in(idp, tmp_path, kind) as user:
        other = SignIns(clock=user.clock)
        other.open(user.other_store, Events())
        await other.keep(frozenset())
        assert await user.tokens() is not None


async def test_refresh_after_its_lease_has_expired_keeps_the_lease_of_another_process(
    tmp_path: Path, idp: Provider
) -> None:
    async with signed_in(idp, tmp_path) as user:
        stale, lease = await user.tokens(), f"lease:{digest_of(user.name)}"
        assert stale is not None
        idp.free.clear()
        refresh = asyncio.create_task(user.sign_ins.refreshed(user.entry, user.name, stale))
        while not idp.grants["refresh_token"]:
            await asyncio.sleep(0.01)
        user.clock.ahead = 60
        later = user.clock() + SECONDS
        assert await user.store.claim(lease, expires=later)
        idp.free.set()
        assert await refresh is not None
        assert not await user.store.claim(lease, expires=later)


async def test_refreshes_of_different_tokens_are_not_shared(tmp_path: Path, idp: Provider) -> None:
    async with signed_in(idp, tmp_path) as user:
        oldest = await user.tokens()
        assert oldest is not None
        older = await user.sign_ins.refreshed(user.entry, user.name, oldest)
        assert older is not None
        lease = f"lease:{digest_of(user.name)}"
        assert await user.store.claim(lease, expires=user.clock() + SECONDS)
        refreshes = [
            asyncio.create_task(user.sign_ins.refreshed(user.entry, user.name, stale)) for stale in (oldest, older)
        ]
        await asyncio.sleep(0)  # both wait for the lease
        await user.store.delete(lease)
        _, fresh = await asyncio.gather(*refreshes)
        assert fresh is not None
        assert fresh.access_token not in {oldest.access_token, older.access_token}


async def test_sign_in_during_a_refresh_is_kept(tmp_path: Path, idp: Provider) -> None:
    async with signed_in(idp, tmp_path) as user:
        stale = await user.tokens()
        assert stale is not None
        idp.free.clear()
        refresh = asyncio.create_task(user.sign_ins.refreshed(user.entry, user.name, stale))
        while not idp.grants["refresh_token"]:
            await asyncio.sleep(0.01)
        await user.sign_out()
        idp.user, again = "carol", asyncio.create_task(user.sign_in())
        idp.free.set()
        await again
        await refresh
        tokens = await user.tokens()
        assert tokens is not None
        assert idp.access[tokens.access_token] == "carol"


@pytest.mark.parametrize("reads_before", [0, 1])
@pytest.mark.parametrize("kind", ["sqlite", "memory", "redis"])
async def test_sign_out_during_a_call_is_not_undone(
    tmp_path: Path, idp: Provider, kind: str, reads_before: int
) -> None:
    idp.lifetime = None
    async with signed_in(idp, tmp_path, kind) as user:
        user.clock.ahead = DAY
        await user.send(ANN)
        assert await user.tokens() is not None
        user.clock.ahead = 2 * DAY
        user.store.interrupt, user.store.reads_before = user.sign_out, reads_before
        await user.send(ANN)
        assert await user.tokens() is None


async def test_call_during_a_refresh_keeps_the_new_tokens(tmp_path: Path, idp: Provider) -> None:
    async with signed_in(idp, tmp_path) as user:
        stale = await user.tokens()
        assert stale is not None
        user.clock.ahead = DAY

        async def refresh() -> None:
            await user.sign_ins.refreshed(user.entry, user.name, stale)

        user.store.interrupt = refresh
        await user.sign_ins.tokens(user.entry, "key ann", is_use=True)
        tokens = await user.tokens()
        assert tokens is not None
        assert tokens.refresh_token in idp.refresh


@pytest.mark.parametrize(("subject", "is_kept"), [(ANN, True), (replace(ANN, is_calling=False), False), (None, False)])
@pytest.mark.parametrize("idle", ["720h", "10m"])
async def test_idle_users_are_signed_out_unless_they_call(
    tmp_path: Path, idp: Provider, subject: Subject | None, idle: str, *, is_kept: bool
) -> None:
    async with signed_in(idp, tmp_path, idle=idle) as user:
        step = user.entry.config.idle.total_seconds() * 0.6
        for _ in range(2):
            user.clock.ahead += step
            await user.send(subject)
            await user.sign_ins.sign_out_idle()
        assert (await user.tokens() is not None) == is_kept
        assert [token[:3] for token in idp.revoked] == ([] if is_kept else ["rt-"])


@pytest.mark.parametrize(
    ("issuer", "scopes", "parameters"),
    [
        ("https://idp.example.com", ["read"], {}),
        ("https://idp.example.com", ["read", "offline_access"], {"prompt": "consent"}),
        ("https://accounts.google.com", ["openid"], {"access_type": "offline", "prompt": "consent"}),
    ],
)
def test_refresh_tokens_are_requested(issuer: str, scopes: list[str], parameters: dict[str, str]) -> None:
    server = ServerMetadata(token_url=f"{issuer}/token", issuer=issuer)
    assert offline_parameters(server, scopes) == parameters


_SERVER: Final = ServerMetadata(token_url="https://id.example.com/token")


@pytest.mark.parametrize(
    "value",
    [
        Credential("s3cret", is_bearer=True),
        FixedAuthorization(summary="bearer", value="s3cret"),
        AccessToken("s3cret", "s3cret"),
        OAuthClient(client_id="a", secret="s3cret", private_key="s3cret"),
        Tokens(entry="a", scopes=[], server=_SERVER, client=None, access_token="s3cret", refresh_token="s3cret"),
        BrowserSignIn(
            issuer="a", nonce="s3cret", verifier="s3cret", browser="", redirect_uri="", back="", server=_SERVER
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_repr_contains_no_secret(value: object) -> None:
    assert "s3cret" not in repr(value)
