"""Logs failed calls or all calls (`listen.access_log`)."""

from typing import Final

import structlog

from gateway.telemetry.observer import CallFacts, CallResult, Outcome
from gateway.wire.meta import title_of

log: Final = structlog.get_logger(__name__)

_GOOD: Final = frozenset({Outcome.OK, Outcome.INPUT_REQUIRED})


class AccessLog:
    def __init__(self, *, logs_all: bool) -> None:
        self._logs_all: Final = logs_all

    def began(self, call: CallFacts) -> None: ...

    def ended(self, call: CallFacts, ending: CallResult) -> None:
        is_good = ending.outcome in _GOOD
        if is_good and not self._logs_all:
            return
        log.info(
            "call ended" if is_good else "call failed",
            method=call.method,
            name=call.name,
            outcome=ending.outcome.value,
            milliseconds=round(ending.seconds * 1000),
            client=title_of(call.terms.client_info),
            principal=call.caller.principal,
        )
