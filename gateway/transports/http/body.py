"""Reads the body of a POST: JSON, not compressed, within the size limit and in time."""

import asyncio
from typing import Final

from aiohttp import StreamReader, hdrs, web

from gateway.transports.errors import HttpError
from gateway.wire.accept import JSON


class FramingError(Exception):
    """The extensions and trailers of a chunked body are far larger than its content."""


_FRAMING_TOO_LARGE: Final = HttpError(
    status=413, message="The chunks of the body are framed with far more bytes than they hold"
)


async def read_body(request: web.Request, *, limit: int, seconds: float) -> bytes | HttpError:
    """The whole body, or why it is not read:

    1. `Content-Type` is JSON: 415
    2. no `Content-Encoding` (a few bytes must not unfold into many): 415
    3. `Content-Length` is within the limit: 413
    4. so is what really arrives, counted while it does: 413
    5. the framing of its chunks is not many times their content: 413
    6. it arrives in time: 408
    """  # noqa: D415 - the sentence goes on in the list
    headers = request.headers
    if headers.get(hdrs.CONTENT_TYPE) != JSON and request.content_type != JSON:  # nearly always no more than its name
        return HttpError(status=415, message=f"Content-Type must be {JSON}")
    coding = headers.get(hdrs.CONTENT_ENCODING)
    if coding is not None and coding.strip().lower() != "identity":
        return HttpError(status=415, message="The body must not be compressed: send it without Content-Encoding")
    content = request.content
    is_here = content.is_eof()  # nearly always: it came with the head, and there is no need for a clock or a copy
    # What is announced as too large is not read at all; bodies in chunks announce nothing, and are measured below.
    if not is_here and (request.content_length or 0) > limit:
        return _too_large(limit)
    try:
        body = content.read_nowait() if is_here else await _read(content, limit, seconds)
    except TimeoutError:
        return HttpError(
            status=408, message=f"The body did not arrive within {seconds:g} seconds (listen.receive_timeout)"
        )
    except FramingError:
        return _FRAMING_TOO_LARGE
    return body if len(body) <= limit else _too_large(limit)


def _too_large(limit: int) -> HttpError:
    return HttpError(status=413, message=f"The body is larger than {limit} bytes (listen.max_body)")


async def _read(content: StreamReader, limit: int, seconds: float) -> bytes:
    """The body; of one that is over the limit, as much as shows it."""
    body = bytearray()
    # One timeout for the whole body: with one for each read, a byte now and then would hold the request for ever.
    async with asyncio.timeout(seconds):
        while chunk := await content.readany():
            body += chunk
            if len(body) > limit:
                break
    return bytes(body)
