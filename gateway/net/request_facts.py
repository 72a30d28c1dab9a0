"""Describes requests for `explain` and traces, without credentials. No I/O.

Configured secrets are masked elsewhere (`Redactor`). This module masks other values whose field name indicates a
secret. Traces omit the path and the query of URLs, which can contain arguments.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from http import HTTPStatus
from types import SimpleNamespace
from typing import Final

import aiohttp
from yarl import URL

from gateway.config.models.interpolated_text import MASK
from gateway.config.secrets.literal_secrets import SECRET_KEY
from gateway.json_types import Json
from gateway.net.request import Header, Request
from gateway.telemetry.trace import CURRENT, TRACEPARENT, TracedStep

_SCHEME: Final = re.compile(r"(?:(?:Basic|Bearer|Digest|Token) +)?", re.IGNORECASE)
"""The authentication scheme before a credential. The scheme is not secret (RFC 9110 §11.1)."""


def facts_of(request: Request) -> dict[str, Json]:
    url, question_mark, query = str(request.url).partition("?")
    facts: dict[str, Json] = {
        "method": request.method,
        "url": f"{url}{question_mark}{'&'.join(_fields(query))}",
        "headers": {header.name: _value(header) for header in request.headers},
    }
    if request.body is not None:
        text = request.body.decode(errors="replace") if request.body_summary is None else None
        facts["body"] = request.body_summary if text is None else text
    return facts


def _fields(query: str) -> Iterator[str]:
    for field in query.split("&"):
        name, equals, _ = field.partition("=")
        yield f"{name}={MASK}" if equals and SECRET_KEY.search(name) else field


def _value(header: Header) -> str:
    if not SECRET_KEY.search(header.name):
        return header.value
    scheme = _SCHEME.match(header.value)
    return f"{scheme[0] if scheme else ''}{MASK}"


def span_attributes(method: str, url: URL) -> Mapping[str, str | int]:
    """Return the span attributes of a request, without path and query."""
    port = {} if url.port is None else {"server.port": url.port}
    return {"http.request.method": method, "server.address": url.raw_host or "", **port}


def note_status(step: TracedStep, status: int) -> None:
    step.note("http.response.status_code", status)
    if status >= HTTPStatus.BAD_REQUEST:
        step.fail(str(status))


def steps_of_requests() -> aiohttp.TraceConfig:
    """Return a trace configuration for an aiohttp session, which adds each request to the current trace."""
    config = aiohttp.TraceConfig()
    config.on_request_start.append(_begin)
    config.on_request_end.append(_end)
    config.on_request_exception.append(_fail)
    return config


async def _begin(
    _session: aiohttp.ClientSession, request: SimpleNamespace, sent: aiohttp.TraceRequestStartParams
) -> None:
    # aiohttp reports the start and end to different callbacks, so the step cannot be a `with` block.
    request.steps = steps = ExitStack()
    begun = CURRENT.get().step(sent.method, kind="client", facts=span_attributes(sent.method, sent.url))
    request.step = step = steps.enter_context(begun)
    if step.context is not None and TRACEPARENT not in sent.headers:  # Plugins can set their own trace.
        sent.headers.update(step.context.fields)


async def _end(_session: aiohttp.ClientSession, request: SimpleNamespace, sent: aiohttp.TraceRequestEndParams) -> None:
    note_status(request.step, sent.response.status)
    request.steps.close()


async def _fail(
    _session: aiohttp.ClientSession, request: SimpleNamespace, sent: aiohttp.TraceRequestExceptionParams
) -> None:
    request.step.fail(type(sent.exception).__name__)
    request.steps.close()
