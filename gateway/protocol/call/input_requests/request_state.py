"""Signs and verifies `requestState`, which carries the state of a call between retries.

The client stores the state and can read it, so the state contains no secrets (MCP 2026-07-28 basic/patterns/mrtr). The
state is bound to the caller, the method, the arguments and the version of the primitive. A state from another call is
rejected. If the state has expired or the primitive has changed, the input requests are sent again.
"""

import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec
import orjson

from gateway import exact_json
from gateway.errors import ExecutionError, InvalidRetryError
from gateway.json_types import Json, JsonObject, empty
from gateway.state.keys import SignedTokens, SigningKeys
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


class _Content(msgspec.Struct, frozen=True, array_like=True):
    expires: int
    call: str
    definition: str
    nonce: str
    state: msgspec.Raw
    """The answers and results, as a JSON array."""


class RequestStateSigner:
    def __init__(self, keys: SigningKeys, *, used: UsedStates | None = None) -> None:
        self._tokens: Final = SignedTokens(keys, _Content, purpose="request-state")
        self._used: Final = UsedStates() if used is None else used
        self._clock: Final = self._used.clock

    def sign(self, state: State, binding: StateScope, *, only_once: bool) -> str:
        """Return the signed state. Raise ExecutionError if the result is larger than `MAX_BYTES`."""
        # basic/patterns/mrtr, "Server Requirements": the principal, expiry and request protect against replay.
        content = _Content(
            expires=int(self._clock() + LIFETIME.total_seconds()),
            call=self._marks(binding.call)[0],
            definition=self._marks(binding.definition)[0],
            nonce=secrets.token_urlsafe(9) if only_once else "",
            state=msgspec.Raw(exact_json.dumps([state.answers, state.results], default=jsonrpc.plain)),
        )
        signed = self._tokens.sign(content)
        if len(signed) > MAX_BYTES:
            raise ExecutionError(f"The responses and results so far exceed {MAX_BYTES} bytes")
        return signed

    async def open(self, signed: Json, binding: StateScope) -> State | None:
        """Return the verified state, or None if the state is outdated or already used.

        Raises:
            InvalidRetryError: The state is malformed, or belongs to another call.
        """
        if not isinstance(signed, str) or len(signed) > MAX_BYTES:
            raise _invalid("is malformed")
        content = self._tokens.read(signed)
        if content is None:
            raise _invalid("was not issued by this server")
        if content.call not in self._marks(binding.call):
            raise _invalid("belongs to another call")
        if content.expires < self._clock() or content.definition not in self._marks(binding.definition):
            return None
        # The state is still valid at `expires`.
        if content.nonce and not await self._used.use(content.nonce, expires=content.expires + 1):
            return None
        answers, results = exact_json.loads(bytes(content.state))
        return State(answers=answers, results=results)

    def _marks(self, value: Json) -> list[str]:
        # Sort the members, because a client may change their order.
        return self._tokens.marks(exact_json.dumps(value, default=jsonrpc.plain, option=orjson.OPT_SORT_KEYS))


def _invalid(reason: str) -> InvalidRetryError:
    return InvalidRetryError(f"`requestState` {reason}")
