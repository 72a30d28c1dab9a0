"""Signs and opens `requestState`: what a call that waits for input must know when it is retried.

MCP 2026-07-28 basic/patterns/mrtr. The server keeps nothing; the client carries the state and may read it, so it is
signed and holds no secret. It is bound to who asked, to the method and its arguments, and to the definition: a state of
another call is an error, and one that has expired or whose definition a reload has changed asks again.

That a state is used once is known to those who share its `UsedStates`.
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

import msgspec
import orjson
from itsdangerous import Signer

from gateway import exact_json
from gateway.errors import ExecutionError, InvalidRetryError
from gateway.json_types import Json, JsonObject, empty
from gateway.state.keys import FromKeys, SigningKeys
from gateway.state.used_request_states import UsedStates
from gateway.wire import jsonrpc

MAX_BYTES: Final = 64 * 1024
"""Bytes of a signed state."""
LIFETIME: Final = timedelta(minutes=15)

_BOUND_PARAMS: Final = ("name", "uri", "arguments")
"""What may not change between tries. `_meta` and the answers may."""


class StateScope(msgspec.Struct, frozen=True, kw_only=True):
    """The call that a state belongs to."""

    owner: str | None
    """`Identity.owner` of who called."""
    view: str | None = None
    """The view that it was sent to."""
    method: str
    params: JsonObject
    definition: str
    """A digest of what was called, as it was at the time."""

    @property
    def call(self) -> Json:
        same = {name: value for name, value in self.params.items() if name in _BOUND_PARAMS}
        return [self.owner, self.method, same, *([] if self.view is None else [self.view])]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The answers and results of earlier tries."""

    answers: Mapping[str, Json] = msgspec.field(default_factory=empty)
    """By key, as the client gave them."""
    results: Mapping[str, Json] = msgspec.field(default_factory=empty)
    """By key, what `context.once` has brought."""


class RequestStateSigner:
    """Signs states, opens them, and remembers which of those that may be used once have been."""

    def __init__(
        self, keys: SigningKeys, *, clock: Callable[[], float] = time.time, used: UsedStates | None = None
    ) -> None:
        self._signers: Final = FromKeys(keys, lambda newest_first: [_signer(key) for key in newest_first])
        self._used: Final = UsedStates(clock=clock) if used is None else used
        self._clock: Final = self._used.clock

    def sign(self, state: State, binding: StateScope, *, only_once: bool) -> str:
        """Sign a state.

        Raises:
            ExecutionError: it is larger than `MAX_BYTES`.
        """
        nonce = secrets.token_urlsafe(9) if only_once else ""
        expires = int(self._clock() + LIFETIME.total_seconds())
        signer = self._signers()[0]
        # basic/patterns/mrtr, "Server Requirements": against replay the principal, a short expiry, and the request.
        marks = [_mark(signer, binding.call), _mark(signer, binding.definition)]
        content = exact_json.dumps([expires, *marks, nonce, state.answers, state.results], default=jsonrpc.plain)
        signed = signer.sign(base64.urlsafe_b64encode(content)).decode()
        if len(signed) > MAX_BYTES:
            raise ExecutionError(f"What was answered so far is more than {MAX_BYTES} bytes and cannot be carried on")
        return signed

    def open(self, signed: Json, binding: StateScope) -> State | None:
        """The state; None if it is right and no longer good, so that what it answered must be asked again.

        Raises:
            InvalidRetryError: it is not ours, or it belongs to another call.
        """
        content = self._current(signed, binding)
        if content is None:
            return None
        expires, nonce, answers, results = content
        if nonce and not self._used.take(nonce, expires=expires + 1):  # at `expires` itself it is good still
            return None
        return State(answers=answers, results=results)

    async def claim(self, signed: Json, binding: StateScope) -> None:
        """Learn whether another replica has used the state, where there are others. To be awaited before `open`.

        Raises:
            InvalidRetryError: see `open`.
            StoreAwayError: the store, which knows it, is away.
        """
        if signed is not None and self._used.shared is not None:
            content = self._current(signed, binding)
            if content is not None and content[1]:
                await self._used.claim(content[1], expires=content[0] + 1)

    def _current(self, signed: Json, binding: StateScope) -> tuple[int, str, Json, Json] | None:
        """The content of a state of this call; None if it has expired, or another definition has come."""
        signer, (expires, call, definition, nonce, answers, results) = self._content(signed)
        if call != _mark(signer, binding.call):
            raise _invalid("belongs to another call")
        if expires < self._clock() or definition != _mark(signer, binding.definition):
            return None
        return expires, nonce, answers, results

    def _content(self, signed: Json) -> tuple[Signer, list[Json]]:
        """The state, and what signed it."""
        if not isinstance(signed, str) or len(signed) > MAX_BYTES:
            raise _invalid("is malformed")
        given = signed.encode()
        content = given.rpartition(b".")[0]
        # Retired keys, too: a state that was signed just before its key was replaced is good until it expires.
        for signer in self._signers():
            if hmac.compare_digest(signer.sign(content), given):  # to the byte, where a decoder would be lenient
                return signer, exact_json.loads(base64.urlsafe_b64decode(content))
        raise _invalid("is not one of this server's")


def _signer(key: bytes) -> Signer:
    return Signer(key, salt="request-state", key_derivation="hmac", digest_method=hashlib.sha256)


def _mark(signer: Signer, value: Json) -> str:
    """A keyed digest: clients can read the state, and learn nothing of what it is bound to."""
    # Sorted: a client may send the members of the same arguments in another order when it tries again.
    written = exact_json.dumps(value, default=jsonrpc.plain, option=orjson.OPT_SORT_KEYS)
    return base64.urlsafe_b64encode(hmac.digest(signer.derive_key(), written, "sha256")[:16]).decode()


def _invalid(reason: str) -> InvalidRetryError:
    return InvalidRetryError(f"`requestState` {reason}")
