"""Creates API responses with JSON objects or with errors such as `{"error": "message"}`, and reads request bodies."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Final

import orjson
from aiohttp import web

from gateway import exact_json
from gateway.access.auth_error import NO_CHALLENGE, AuthError
from gateway.catalog.store import CatalogStore
from gateway.config.diagnostics.render import excerpt
from gateway.errors import Problem
from gateway.json_types import Json
from gateway.reload.reloader import Reloader
from gateway.transports.errors import HttpError
from gateway.transports.http.body import read_body
from gateway.transports.http.request import HttpRequest
from gateway.wire import jsonrpc
from gateway.wire.accept import JSON
from gateway.wire.jsonrpc import is_deeper

# 48 bits identify the sessions of a daemon without revealing their ids.
_ID_LENGTH: Final = 12


def number_of(text: str | None) -> int | None:
    # The length is bounded, because int() is slow for long text.
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 20 else None


def milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def short_id(session_id: str) -> str:
    """Return the public id of a session, because anyone who knows the real id could use the session."""
    return hashlib.sha256(session_id.encode()).hexdigest()[:_ID_LENGTH]


def current_problems(reloader: Reloader, store: CatalogStore) -> Sequence[Problem]:
    return [*reloader.status.problems, *store.current.warnings]


def problem_json(problem: Problem) -> dict[str, Json]:
    """Return the `Problem` object of the console API. The caller must mask secrets."""
    location = problem.location
    return {
        "message": problem.message,
        "path": problem.path or None,
        "file": None if location is None else str(location.file),
        "line": None if location is None else location.line,
        "column": None if location is None else location.column,
        "excerpt": excerpt(problem),
        "severity": problem.severity.value,
    }


MAX_BODY: Final = 2**20
"""Maximum size of a request body in bytes. Tool calls are limited by `listen.max_body` instead."""
MAX_DEPTH: Final = 200
"""Maximum nesting of a request body, and of a recorded body that is shown. Validators fail at 255 levels.

Tool calls use `limits.request_depth` instead.
"""
_RECEIVE_SECONDS: Final = 30.0
_MIN_COMPRESSED: Final = 16 * 1024
"""Minimum size in bytes of a response that is compressed in a thread, if the client supports compression."""


def json_response(value: Json, request: HttpRequest, *, status: int = 200) -> web.Response:
    return _encoded(jsonrpc.encode(value), request, status=status)


async def json_response_by_thread(make: Callable[[], Json], request: HttpRequest) -> web.Response:
    """Create and encode a large response in a thread, because the work would block the event loop."""
    return _encoded(await asyncio.to_thread(lambda: jsonrpc.encode(make())), request)


def _encoded(body: bytes, request: HttpRequest, *, status: int = 200) -> web.Response:
    headers = {"Content-Type": JSON, **request.response_headers}
    response = web.Response(body=body, status=status, headers=headers, zlib_executor_size=_MIN_COMPRESSED)
    if len(body) >= _MIN_COMPRESSED:
        response.enable_compression()
    return response


def no_content(request: HttpRequest) -> web.Response:
    return web.Response(status=204, headers=request.response_headers)


def error_response(error: HttpError | AuthError, request: HttpRequest) -> web.Response:
    fields = error.headers(NO_CHALLENGE) if isinstance(error, AuthError) else error.headers
    headers = {"Content-Type": JSON, **request.response_headers, **fields}
    return web.Response(body=orjson.dumps({"error": error.message}), status=error.status, headers=headers)


async def read_json_object(request: HttpRequest) -> dict[str, Json] | HttpError:
    body = await read_body(request.raw, limit=MAX_BODY, seconds=_RECEIVE_SECONDS)
    if isinstance(body, HttpError):
        return body
    try:
        found = exact_json.loads(body)
    except orjson.JSONDecodeError as error:
        return HttpError(status=400, message=f"The body is not JSON: {error.msg}")
    if not isinstance(found, dict):
        return HttpError(status=400, message="The body must be a JSON object")
    if is_deeper(found, MAX_DEPTH):
        return HttpError(status=400, message=f"The body is nested more than {MAX_DEPTH} levels deep")
    return found
