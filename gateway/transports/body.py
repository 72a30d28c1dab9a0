"""Read the body of a POST: the right type, not compressed, not over the limit, not for ever."""

import asyncio

from aiohttp import StreamReader, web

from gateway.transports.accept import JSON
from gateway.transports.refusal import Refusal


async def read_body(request: web.Request, *, limit: int, seconds: float) -> bytes | Refusal:
    """The whole body, or why it is not read:

    1. `Content-Type` is JSON: 415
    2. no `Content-Encoding` (a few bytes must not unfold into many): 415
    3. `Content-Length` is within the limit: 413
    4. so is what really arrives, counted while it does: 413
    5. it arrives in time: 408
    """  # noqa: D415 - the sentence goes on in the list
    if request.content_type != JSON:
        return Refusal(status=415, message=f"Content-Type must be {JSON}")
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        return Refusal(status=415, message="The body must not be compressed: send it without Content-Encoding")
    if (request.content_length or 0) > limit:
        return _too_large(limit)
    try:
        body = await _read(request.content, limit, seconds)
    except TimeoutError:
        return Refusal(
            status=408, message=f"The body did not arrive within {seconds:g} seconds (listen.receive_timeout)"
        )
    return _too_large(limit) if body is None else body


def _too_large(limit: int) -> Refusal:
    return Refusal(status=413, message=f"The body is larger than {limit} bytes (listen.max_body)")


async def _read(content: StreamReader, limit: int, seconds: float) -> bytes | None:
    """The body; None if it is over the limit."""
    if content.is_eof():  # nearly always: it came with the head, and there is no need for a clock or a copy
        whole = content.read_nowait()
        return whole if len(whole) <= limit else None
    body = bytearray()
    async with asyncio.timeout(seconds):
        while chunk := await content.readany():
            body += chunk
            if len(body) > limit:
                return None
    return bytes(body)
