"""`requestState`: what a call that waits for its client's answers must know when it is tried again.

MCP 2026-07-28 basic/patterns/mrtr. The server keeps nothing; the client carries the state and may read it, so it is
signed and holds no secret. It is bound to who asked, to the method and its arguments, and to the definition: a state of
another call is an error, and one that has expired or whose definition a reload has changed asks again.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import orjson
from itsdangerous import BadData, URLSafeSerializer

from gateway.errors import ErrorCode, ExecutionError, RpcError
from gateway.json_types import Json, JsonObject, empty

LARGEST: Final = 64 * 1024
"""Bytes of a sealed state."""
LIFETIME: Final = timedelta(minutes=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What a state belongs to. Digests, so that it stays small."""

    call: str
    """The principal, the method and its parameters."""
    definition: str

    @classmethod
    def of(cls, *, principal: str | None, method: str, params: JsonObject, definition: str) -> "Binding":
        """The binding of a call; what changes between tries (`_meta` and the answers) does not count."""
        same = {name: value for name, value in params.items() if name in _BOUND_PARAMS}
        digest = hashlib.sha256(orjson.dumps([principal, method, same], option=orjson.OPT_SORT_KEYS))
        return cls(call=digest.hexdigest(), definition=definition)


_BOUND_PARAMS: Final = ("name", "uri", "arguments")


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What earlier tries have learnt."""

    answers: Mapping[str, Json] = field(default_factory=empty)
    """By key, as the client gave them."""
    results: Mapping[str, Json] = field(default_factory=empty)
    """By key, what `context.once` has brought."""
    nonce: str = ""
    """Names a state that may be used once; empty otherwise."""


class StateSeal:
    """Signs states, opens them, and remembers which of those that may be used once have been."""

    def __init__(self, secret_key: bytes, *, clock: Callable[[], float] = time.time) -> None:
        self._serializer: Final = URLSafeSerializer(secret_key, salt="request-state")
        self._clock: Final = clock
        self._spent: Final[dict[str, float]] = {}
        """Nonce → when its state has expired anyway. In order of use, which is nearly that of expiry."""

    def seal(self, state: State, binding: Binding, *, only_once: bool) -> str:
        """Sign a state.

        Raises:
            ExecutionError: it is larger than `LARGEST`.
        """
        nonce = secrets.token_hex(8) if only_once else ""
        expires = self._clock() + LIFETIME.total_seconds()
        content = [int(expires), binding.call, binding.definition, nonce, dict(state.answers), dict(state.results)]
        sealed = str(self._serializer.dumps(content))
        if len(sealed) > LARGEST:
            raise ExecutionError(f"What was answered so far is more than {LARGEST} bytes and cannot be carried on")
        return sealed

    def open(self, sealed: Json, binding: Binding) -> State | None:
        """The state; None if it is right and no longer good, so that what it answered must be asked again.

        Raises:
            RpcError: -32602, it is not ours, or it belongs to another call.
        """
        content = self._content(sealed)
        expires, call, definition, nonce, answers, results = content
        if call != binding.call:
            raise _invalid("belongs to another call")
        if expires < self._clock() or definition != binding.definition or nonce in self._spent:
            return None
        if nonce:
            self._spend(nonce, expires)
        return State(answers=answers, results=results, nonce=nonce)

    def _content(self, sealed: Json) -> list[Json]:
        if not isinstance(sealed, str) or len(sealed) > LARGEST:
            raise _invalid("is malformed")
        try:
            content: list[Json] = self._serializer.loads(sealed)
        except BadData:
            raise _invalid("is not one of this server's") from None
        if self._serializer.dumps(content) != sealed:  # the decoder is lenient about its base64
            raise _invalid("is not one of this server's")
        return content

    def _spend(self, nonce: str, expires: float) -> None:
        now = self._clock()
        for old in [each for each, until in self._spent.items() if until < now]:
            del self._spent[old]
        self._spent[nonce] = expires


def _invalid(reason: str) -> RpcError:
    return RpcError(ErrorCode.INVALID_PARAMS, f"`requestState` {reason}")
