"""Calls for tests of observers."""

from collections.abc import Sequence
from itertools import count
from types import MappingProxyType
from typing import Final, NamedTuple

from gateway.config.secrets.redactor import Redactor
from gateway.json_types import JsonObject
from gateway.protocol.exchange import Binding, Caller
from gateway.telemetry.observer import ProgressReport, Wait
from gateway.telemetry.trace import TraceContext
from gateway.wire.jsonrpc import RequestId
from gateway.wire.revisions import MODERN, Era

_IDS: Final = count(1)
_NOTHING: Final[JsonObject] = MappingProxyType({})


class ObservedTerms(NamedTuple):
    revision: str
    client_info: JsonObject
    capabilities: JsonObject = _NOTHING
    log_level: str | None = None


class ObservedCatalog(NamedTuple):
    generation: int = 1
    redactor: Redactor = Redactor()


class ObservedCall(NamedTuple):
    """A call with fixed facts."""

    id: str
    method: str
    kind: str
    name: str | None
    is_hidden: bool
    request_id: RequestId
    params: JsonObject
    revision: str
    era: Era
    terms: ObservedTerms
    session_id: str | None
    caller: Caller
    trace: TraceContext | None
    catalog: ObservedCatalog = ObservedCatalog()
    waits: Sequence[Wait] = ()
    reports: Sequence[ProgressReport] = ()
    caller_facts: JsonObject = MappingProxyType({})

    @property
    def described_params(self) -> JsonObject:
        return self.params


def call_of(
    method: str,
    name: str | None,
    *,
    kind: str = "tool",
    revision: str = "2026-07-28",
    params: JsonObject = _NOTHING,
) -> ObservedCall:
    number = next(_IDS)
    return ObservedCall(
        id=f"call-{number}",
        method=method,
        kind=kind,
        name=name,
        is_hidden=False,
        request_id=number,
        params=params,
        revision=revision,
        era=Era.MODERN if revision in MODERN else Era.LEGACY,
        terms=ObservedTerms(revision, {}),
        session_id=None,
        caller=Caller(binding=Binding.MEMORY),
        trace=None,
    )
