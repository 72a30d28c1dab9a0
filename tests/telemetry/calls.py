"""Calls as observers are told of them."""

from datetime import timedelta
from itertools import count
from types import MappingProxyType
from typing import Final

from gateway.catalog.primitives import Catalog
from gateway.config.secrets import Redactor
from gateway.json_types import JsonObject
from gateway.protocol.calls import Call
from gateway.protocol.request import RequestContext
from gateway.transports.memory import MemoryExchange

_IDS: Final = count(1)
_NOTHING: Final[JsonObject] = MappingProxyType({})
_CATALOG: Final = Catalog(
    generation=1,
    server_info={},
    instructions=None,
    page_size=200,
    cache_ttl=timedelta(0),
    redactor=Redactor(),
)


def call_of(
    method: str,
    name: str | None,
    *,
    kind: str = "tool",
    revision: str = "2026-07-28",
    params: JsonObject = _NOTHING,
) -> Call:
    number = next(_IDS)
    request = RequestContext(
        request_id=number,
        params=params,
        revision=revision,
        client_info={},
        client_capabilities={},
        catalog=_CATALOG,
        exchange=MemoryExchange(),
    )
    return Call(id=f"call-{number}", method=method, kind=kind, name=name, request=request)
