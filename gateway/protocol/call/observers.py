"""Tells observers of each call, when it begins and when it ends (see `telemetry.observer`)."""

import time
from collections.abc import Mapping, Sequence
from contextvars import Token
from types import TracebackType
from typing import Final, Self

import msgspec
import structlog

from gateway.errors import RpcError
from gateway.json_types import JsonObject
from gateway.protocol.call.call import Call
from gateway.protocol.exchange import Reply
from gateway.telemetry.log_context import CALL, LOG_CONTEXT, TRACE_ID
from gateway.telemetry.observer import CallResult, Observer, Outcome

log: Final = structlog.get_logger(__name__)

_OK: Final = Outcome.OK


class CallRecorder(msgspec.Struct, eq=False):
    """Records how one call ends: a context manager for the time that it runs.

    A call that is not said to have ended otherwise was cancelled.
    """

    call: Call
    observers: Sequence[Observer]
    _outcome: Outcome = Outcome.CANCELLED
    _error: RpcError | None = None
    _limit: str | None = None
    _response: bytes | None = None
    _began: float = 0.0
    _token: Token[Mapping[str, str]] | None = None

    def __enter__(self) -> Self:
        trace = self.call.trace
        fields = {CALL: self.call.id}
        self._token = LOG_CONTEXT.set(fields if trace is None else {**fields, TRACE_ID: trace.trace_id})
        self._began = time.monotonic()
        for observer in self.observers:
            try:
                observer.began(self.call)
            except Exception:  # Boundary: an observer must not be able to fail the call.
                log.exception("observer failed")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.observers:
            seconds = time.monotonic() - self._began
            ending = CallResult(
                outcome=self._outcome,
                seconds=seconds,
                error=self._error,
                is_over_limit=self._limit is not None,
                limit=self._limit or "",
                response=self._response,
            )
            for observer in self.observers:
                try:
                    observer.ended(self.call, ending)
                except Exception:  # Boundary: as above.
                    log.exception("observer failed")
        if self._token is not None:
            LOG_CONTEXT.reset(self._token)

    def answered(self, result: JsonObject | bytes, reply: Reply) -> None:
        """Note the result that it was answered with."""
        self._outcome = _OK if isinstance(result, bytes) else _outcome_of(result)
        self._response = reply.body

    def over_limit(self, limit: str) -> None:
        """Note that a rate or a concurrency limit refused it."""
        self._limit = limit

    def failed(self, error: RpcError, reply: Reply) -> None:
        """Note the error that it was answered with."""
        self._outcome, self._error, self._response = Outcome.PROTOCOL_ERROR, error, reply.body


def _outcome_of(result: JsonObject) -> Outcome:
    if result.get("isError") is True:
        return Outcome.TOOL_ERROR
    return Outcome.INPUT_REQUIRED if result.get("resultType") == "input_required" else Outcome.OK
