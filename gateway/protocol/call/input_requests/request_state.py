"""Signs and verifies `requestState`, which carries the state of a call between retries.

The client stores the state and can read it, so the state contains no secrets (MCP 2026-07-28 basic/patterns/mrtr). The
state is bound to the caller, the method, the arguments and the version of the primitive. A state from another call is
rejected. If the state has expired or the primitive has changed, the input requests are sent again.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec
import orjson
from itsdangerous import Signer

from gateway import exact_json
from gateway.errors import ExecutionError, InvalidRetryError
from gateway.json_types import Json, JsonObject, empty
from gateway.state.keys import SigningKeys, from_keys
from gateway.state.used_request_states import UsedStates
from gateway.wire import jsonrpc

MAX_BYTES: Final = 64 * 1024
LIFETIME: Final = timedelta(minutes=15)

_BOUND_PARAMS: Final = ("name", "uri", "arguments")


class StateScope(msgspec.Struct, frozen=True, kw_only=True):
    owner: str | None
    """`Identity.subject_key` of the caller."""
    view: str | None = None
    method: str
    params: JsonObject
    definition: str

    @property
    def call(self) -> Json:
        same = {name: value for name, value in self.params.items() if name in _BOUND_PARAMS}
        return [self.owner, self.method, same, *([] if self.view is None else [self.view])]


class State(msgspec.Struct, frozen=True, kw_only=True):
    answers: Mapping[str, Json] = msgspec.field(default_factory=empty)
    results: Mapping[str, Json] = msgspec.field(default_factory=empty)


class RequestStateSigner:
    def __init__(self, keys: SigningKeys, *, used: UsedStates | None = None) -> None:
        self._signers: Final = from_keys(keys, lambda newest_first: [_signer(key) for key in newest_first])
        self._used: Final = UsedStates() if used is None else used
        self._clock: Final = self._used.clock

    def sign(self, state: State, binding: StateScope, *, only_once: bool) -> str:
        """Return the signed state. Raise ExecutionError if the result is larger than `MAX_BYTES`."""
        nonce = secrets.token_urlsafe(9) if only_once else ""
        expires = int(self._clock() + LIFETIME.total_seconds())
        signer = self._signers()[0]
        # basic/patterns/mrtr, "Server Requirements": the principal, expiry and request protect against replay.
        marks = [_mark(signer, binding.call), _mark(signer, binding.definition)]
        content = exact_json.dumps([expires, *marks, nonce, state.answers, state.results], default=jsonrpc.plain)
        signed = signer.sign(base64.urlsafe_b64encode(content)).decode()
        if len(signed) > MAX_BYTES:
            raise ExecutionError(f"The responses and results so far exceed {MAX_BYTES} bytes")
        return signed

    async def open(self, signed: Json, binding: StateScope) -> State | None:
        """Return the verified state, or None if the state is outdated or already used.

        Raises:
            InvalidRetryError: The state is malformed, or belongs to another call.
        """
        content = self._current(signed, binding)
        if content is None:
            return None
        expires, nonce, answers, results = content
        if nonce and not await self._used.use(nonce, expires=expires + 1):  # still valid at `expires`
            return None
        return State(answers=answers, results=results)

    def _current(self, signed: Json, binding: StateScope) -> tuple[int, str, Json, Json] | None:
        signer, (expires, call, definition, nonce, answers, results) = self._content(signed)
        if call != _mark(signer, binding.call):
            raise _invalid("belongs to another call")
        if expires < self._clock() or definition != _mark(signer, binding.definition):
            return None
        return expires, nonce, answers, results

    def _content(self, signed: Json) -> tuple[Signer, list[Json]]:
        if not isinstance(signed, str) or len(signed) > MAX_BYTES:
            raise _invalid("is malformed")
        given = signed.encode()
        content = given.rpartition(b".")[0]
        # Try all keys, because retired keys stay valid for verification.
        for signer in self._signers():
            if hmac.compare_digest(
                signer.sign(content), given
            ):  # compare before decoding, because base64 decoding is lenient
                return signer, exact_json.loads(base64.urlsafe_b64decode(content))
        raise _invalid("was not issued by this server")


def _signer(key: bytes) -> Signer:
    return Signer(key, salt="request-state", key_derivation="hmac", digest_method=hashlib.sha256)


def _mark(signer: Signer, value: Json) -> str:
    """Return a keyed digest of `value`, from which clients cannot infer the value."""
    # Sort the members, because a client may change their order.
    written = exact_json.dumps(value, default=jsonrpc.plain, option=orjson.OPT_SORT_KEYS)
    return base64.urlsafe_b64encode(hmac.digest(signer.derive_key(), written, "sha256")[:16]).decode()


def _invalid(reason: str) -> InvalidRetryError:
    return InvalidRetryError(f"`requestState` {reason}")
