"""A parked call at the replica that began it, and what replicas tell each other of it.

A retry may come to another replica. That one brings the answers to the replica that the call's id names, and gets the
result from there, or what the upstream asks next.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from gateway import exact_json
from gateway.deadline import Deadline
from gateway.errors import ExecutionError, RpcError
from gateway.json_types import Json, JsonObject
from gateway.state.mailbox import Mailbox
from gateway.upstreams.failures import CallGoneError
from gateway.upstreams.parked_call import Answers, Asked

KIND: Final = "parked call"
"""Of messages to the replica that began a call."""
_REPLY_SECONDS: Final = 5.0
"""How much longer than the call itself its replica is waited for, whose error says more; it is looked for as often."""


class RemoteRetry(msgspec.Struct, frozen=True, kw_only=True):
    """A message to the replica that began a call, from the one that a retry came to."""

    call: str
    answers: dict[str, Any] = {}
    error: dict[str, Any] | None = None
    seconds: float = 0
    """How long the result is waited for."""
    park_seconds: float = 0
    has_ended: bool = False
    """Whether the request is over: nobody waits for a reply."""

    @property
    def encoded(self) -> bytes:
        # Answers may have integers that MessagePack has no room for.
        return exact_json.dumps(msgspec.structs.asdict(self))


class RemoteCall:
    """A parked call at the replica that began it, for a request that is served here."""

    def __init__(
        self,
        call_id: str,
        mailbox: Mailbox,
        deadline: Deadline,
        *,
        park_seconds: float,
        end_there: Callable[[], object],
    ) -> None:
        self._id: Final = call_id
        self._mailbox: Final = mailbox
        self._deadline: Final = deadline
        self._park_seconds: Final = park_seconds
        self._end_there: Final = end_there
        self._has_ended = False

    async def go_on(self, answers: Answers) -> JsonObject | Asked:
        """Answer the upstream, and return its result or what it asks before that.

        Raises:
            CallGoneError: it is gone, or its replica.
            RpcError: the upstream's own error; or the store of all replicas is away.
            ExecutionError: the upstream could not do it.
        """
        seconds = max(0.0, self._deadline.at - self._deadline.now())
        retry = RemoteRetry(
            call=self._id,
            answers={} if isinstance(answers, RpcError) else dict(answers),
            error=encode_error(answers) if isinstance(answers, RpcError) else None,
            seconds=seconds,
            park_seconds=self._park_seconds,
        )
        reply = await self._reply(retry.encoded, seconds=seconds + _REPLY_SECONDS)
        said = exact_json.loads(reply) if reply else None
        if said is not None and "asked" in said:
            return Asked(said["asked"])
        self._has_ended = True  # its replica has ended it
        if said is None:
            raise CallGoneError
        if "error" in said:
            raise decode_error(said["error"])
        if "failure" in said:
            raise ExecutionError(said["failure"])
        result: JsonObject = said["result"]
        return result

    async def _reply(self, body: bytes, *, seconds: float) -> bytes | None:
        replica = replica_of(self._id)
        asking = asyncio.create_task(self._mailbox.ask(replica, KIND, body, seconds=seconds), name="ask a replica")
        try:
            # One that was killed has left a mailbox, in which a message would wait as long as the call may take.
            while not (await asyncio.wait([asking], timeout=_REPLY_SECONDS))[0]:
                if not await self._mailbox.is_there(replica):
                    return None
            return asking.result()
        finally:
            asking.cancel()

    def park(self, _seconds: float) -> None:
        """Do nothing: its replica has parked it since it asked."""

    def end(self) -> None:
        if not self._has_ended:
            self._end_there()


def replica_of(call_id: str) -> str:
    """The replica that an id names; empty where the daemon that made it was none."""
    # What is random in an id has no dot (RFC 4648 §5).
    return call_id.rpartition(".")[0]


def encode_error(error: RpcError) -> dict[str, Json]:
    return {"code": error.code, "message": error.message, "data": error.data}


def decode_error(fields: Mapping[str, Json]) -> RpcError:
    return RpcError(fields["code"], fields["message"], fields["data"])
