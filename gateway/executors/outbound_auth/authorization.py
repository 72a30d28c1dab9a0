"""The ways to sign in to one service: see `gateway.executors.http.authorization`."""

import asyncio
import hashlib
from typing import Final

import msgspec

from gateway.access.identity.credentials import Credential
from gateway.errors import ExecutionError
from gateway.executors.deadline import DeadlineExceededError
from gateway.executors.outbound_auth.metadata import ServerMetadata
from gateway.executors.outbound_auth.outbound_tokens import OutboundTokens
from gateway.executors.outbound_auth.token_client import AccessToken, TokenClient
from gateway.executors.threads import DaemonThreadPool

_FETCH_SECONDS: Final = 30.0
"""The longest time that a token may take, the authorization server's metadata included."""
_METADATA_SECONDS: Final = 600.0
"""How long the metadata of an authorization server is kept."""


class FixedAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    """An authorization whose value the file fixes: `bearer` and `basic`."""

    summary: str
    value: str
    is_per_caller: bool = False

    def __repr__(self) -> str:
        """Leave the value out, because tracebacks and logs show it."""
        return f"FixedAuthorization({self.summary})"

    async def header(self, caller_token: Credential | None, *, deadline: float) -> str:  # noqa: ARG002 - the protocol's
        return self.value

    def reject(self, header: str, caller_token: Credential | None) -> bool:  # noqa: ARG002 - the protocol's
        return False


class TokenAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    """An authorization by an access token: `client_credentials` and `token_exchange`."""

    summary: str
    is_per_caller: bool
    """Whether the caller's token is exchanged."""
    client: TokenClient
    key: bytes
    """Identifies the client, its server and what it asks for: only equal ones share tokens."""
    outbound: OutboundTokens
    threads: DaemonThreadPool

    async def header(self, caller_token: Credential | None, *, deadline: float) -> str:
        if self.is_per_caller and caller_token is None:
            raise ExecutionError(
                "The service is asked in the caller's name, whose access token is exchanged, and this request came "
                "without one: sign in at the gateway with OAuth (API keys and stdio bring no access token)"
            )
        subject = caller_token if self.is_per_caller else None
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(deadline):
                token = await self.outbound.tokens.get(self._key_of(subject), lambda: self._fetch(subject))
        except TimeoutError as error:
            raise DeadlineExceededError("Signing in", deadline - began) from error
        return _bearer(token)

    def reject(self, header: str, caller_token: Credential | None) -> bool:
        # Compared with what was sent: by the time of the 401 another call may have fetched a new token.
        key = self._key_of(caller_token if self.is_per_caller else None)
        self.outbound.tokens.discard(key, lambda token: _bearer(token) == header)
        return True

    def _key_of(self, subject: Credential | None) -> bytes:
        # The key has one length, so that no two pairs of key and token are joined to the same bytes.
        return self.key if subject is None else hashlib.sha256(self.key + subject.secret.encode()).digest()

    async def _fetch(self, subject: Credential | None) -> tuple[AccessToken, float]:
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                server = await self.outbound.servers.get(self.key, self._find_server)
                token = await self.client.obtain(server, subject=None if subject is None else subject.secret)
        except ExecutionError:
            self.outbound.servers.discard(self.key, lambda _: True)  # it may have moved its token endpoint
            raise
        except TimeoutError as error:
            raise DeadlineExceededError("Signing in", _FETCH_SECONDS) from error
        # Before it is sent anywhere; in a thread, because many forms of it are worked out.
        await self.threads.run(self.outbound.secrets.add, token.value, deadline=began + 2 * _FETCH_SECONDS)
        return token, token.seconds

    async def _find_server(self) -> tuple[ServerMetadata, float]:
        return await self.client.find_server(), _METADATA_SECONDS


def _bearer(token: AccessToken) -> str:
    return f"Bearer {token.value}"
