"""`requestState`: what a call that waits for its client's answers must know when it is tried again.

MCP 2026-07-28 basic/patterns/mrtr. The server keeps nothing; the client carries the state and may read it, so it is
signed and holds no secret. It is bound to who asked, to the method and its arguments, and to the definition: a state of
another call is an error, and one that has expired or whose definition a reload has changed asks again.

That a state is used once is known to the process that opened it, and to no other.
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import orjson
from itsdangerous import Signer

from gateway.errors import ErrorCode, ExecutionError, RpcError
from gateway.json_types import Json, JsonObject, empty
from gateway.protocol import jsonrpc

LARGEST: Final = 64 * 1024
"""Bytes of a sealed state."""
LIFETIME: Final = timedelta(minutes=15)
MOST_SPENT: Final = 100_000
"""Used states that are remembered; the oldest are forgotten first."""

_BOUND_PARAMS: Final = ("name", "uri", "arguments")
"""What may not change between tries. `_meta` and the answers may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What a state belongs to."""

    owner: str | None
    """`Identity.owner` of who called."""
    method: str
    params: JsonObject
    definition: str
    """A digest of what was called, as it was at the time."""

    @property
    def call(self) -> Json:
        same = {name: value for name, value in self.params.items() if name in _BOUND_PARAMS}
        return [self.owner, self.method, same]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What earlier tries have learnt."""

    answers: Mapping[str, Json] = field(default_factory=empty)
    """By key, as the client gave them."""
    results: Mapping[str, Json] = field(default_factory=empty)
    """By key, what `context.once` has brought."""


class StateSeal:
    """Signs states, opens them, and remembers which of those that may be used once have been."""

    def __init__(self, secret_key: bytes, *, clock: Callable[[], float] = time.time) -> None:
        self._signer: Final = Signer(
            secret_key, salt="request-state", key_derivation="hmac", digest_method=hashlib.sha256
        )
        self._key: Final = self._signer.derive_key()
        self._clock: Final = clock
        self._spent: Final[dict[str, float]] = {}
        """Nonce → when its state has expired anyway. In order of use, which is nearly that of expiry."""

    def seal(self, state: State, binding: Binding, *, only_once: bool) -> str:
        """Sign a state.

        Raises:
            ExecutionError: it is larger than `LARGEST`.
        """
        nonce = secrets.token_urlsafe(9) if only_once else ""
        expires = int(self._clock() + LIFETIME.total_seconds())
        marks = [self._mark(binding.call), self._mark(binding.definition)]
        content = orjson.dumps([expires, *marks, nonce, state.answers, state.results], default=jsonrpc.plain)
        sealed = self._signer.sign(base64.urlsafe_b64encode(content)).decode()
        if len(sealed) > LARGEST:
            raise ExecutionError(f"What was answered so far is more than {LARGEST} bytes and cannot be carried on")
        return sealed

    def open(self, sealed: Json, binding: Binding) -> State | None:
        """The state; None if it is right and no longer good, so that what it answered must be asked again.

        Raises:
            RpcError: -32602, it is not ours, or it belongs to another call.
        """
        expires, call, definition, nonce, answers, results = self._content(sealed)
        if call != self._mark(binding.call):
            raise _invalid("belongs to another call")
        if expires < self._clock() or definition != self._mark(binding.definition) or nonce in self._spent:
            return None
        if nonce:
            self._spend(nonce, expires)
        return State(answers=answers, results=results)

    def _content(self, sealed: Json) -> list[Json]:
        if not isinstance(sealed, str) or len(sealed) > LARGEST:
            raise _invalid("is malformed")
        given = sealed.encode()
        content = given.rpartition(b".")[0]
        if not hmac.compare_digest(self._signer.sign(content), given):  # to the byte, where a decoder would be lenient
            raise _invalid("is not one of this server's")
        read: list[Json] = orjson.loads(base64.urlsafe_b64decode(content))
        return read

    def _mark(self, value: Json) -> str:
        """A keyed digest: clients can read the state, and learn nothing of what it is bound to."""
        written = orjson.dumps(value, default=jsonrpc.plain, option=orjson.OPT_SORT_KEYS)
        return base64.urlsafe_b64encode(hmac.digest(self._key, written, "sha256")[:16]).decode()

    def _spend(self, nonce: str, expires: float) -> None:
        now = self._clock()
        while self._spent and (self._spent[oldest := next(iter(self._spent))] < now or len(self._spent) >= MOST_SPENT):
            del self._spent[oldest]
        self._spent[nonce] = expires


def _invalid(reason: str) -> RpcError:
    return RpcError(ErrorCode.INVALID_PARAMS, f"`requestState` {reason}")
