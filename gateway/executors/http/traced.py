"""What a trace shows of a request, and the requests of authors' own code in it.

A backend's attempts are steps of their call's trace, and carry it on. So do the requests that a plugin sends through
the shared client, which knows of no call: whose they are, the context says in which they are begun.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from http import HTTPStatus
from types import SimpleNamespace

import aiohttp
from yarl import URL

from gateway.executors.trace import CURRENT, TRACEPARENT, Step


def shown_facts(method: str, url: URL) -> Mapping[str, str | int]:
    """What a trace shows of a request: neither path nor query, which hold arguments."""
    port = {} if url.port is None else {"server.port": url.port}
    return {"http.request.method": method, "server.address": url.host or "", **port}


def note_status(step: Step, status: int) -> None:
    """Add what was answered."""
    step.note("http.response.status_code", status)
    if status >= HTTPStatus.BAD_REQUEST:
        step.fail(str(status))


def steps_of_requests() -> aiohttp.TraceConfig:
    """Make each request of a session a step of the trace that is current where it is sent."""
    config = aiohttp.TraceConfig()
    config.on_request_start.append(_begin)
    config.on_request_end.append(_end)
    config.on_request_exception.append(_fail)
    return config


async def _begin(
    _session: aiohttp.ClientSession, request: SimpleNamespace, sent: aiohttp.TraceRequestStartParams
) -> None:
    request.steps = steps = ExitStack()
    begun = CURRENT.get().step(sent.method, kind="client", facts=shown_facts(sent.method, sent.url))
    request.step = step = steps.enter_context(begun)
    if step.context is not None and TRACEPARENT not in sent.headers:  # an author may say which trace it is
        sent.headers.update(step.context.fields)


async def _end(_session: aiohttp.ClientSession, request: SimpleNamespace, sent: aiohttp.TraceRequestEndParams) -> None:
    note_status(request.step, sent.response.status)
    request.steps.close()


async def _fail(
    _session: aiohttp.ClientSession, request: SimpleNamespace, sent: aiohttp.TraceRequestExceptionParams
) -> None:
    request.step.fail(type(sent.exception).__name__)
    request.steps.close()
