"""Reads the body of a POST request."""

import asyncio
from typing import Final

from aiohttp import StreamReader, hdrs, web

from gateway.transports.errors import HttpError
from gateway.wire.accept import JSON


class FramingError(Exception):
    """The extensions and trailers of a chunked body are far larger than its content."""


_FRAMING_TOO_LARGE: Final = HttpError(
    status=413, message="The chunk framing of the body is much larger than its content"
)


async def read_body(request: web.Request, *, limit: int, seconds: float) -> bytes | HttpError:
    """Read the whole body, or return an error.

    1. `Content-Type` is JSON (otherwise 415).
    2. The body is not compressed, because a few bytes could expand into many (otherwise 415).
    3. `Content-Length` is within the limit (otherwise 413).
    4. The received bytes are within the limit (otherwise 413).
    5. The chunk framing is not far larger than the content (otherwise 413).
    6. The body arrives within `seconds` (otherwise 408).
    """
    headers = request.headers
    if (
        headers.get(hdrs.CONTENT_TYPE) != JSON and request.content_type != JSON
    ):  # `content_type` parses parameters, which few clients send.
        return HttpError(status=415, message=f"Content-Type must be {JSON}")
    coding = headers.get(hdrs.CONTENT_ENCODING)
    if coding is not None and coding.strip().lower() != "identity":
        return HttpError(status=415, message="The body must not be compressed: send it without Content-Encoding")
    content = request.content
    is_here = content.is_eof()  # Usually the body arrives together with the head.
    # Chunked bodies have no announced length. Their size is checked below.
    if not is_here and (request.content_length or 0) > limit:
        return _too_large(limit)
    try:
        body = content.read_nowait() if is_here else await read_limited(content, limit, seconds)
    except TimeoutError:
        return HttpError(
            status=408, message=f"The body did not arrive within {seconds:g} seconds (listen.receive_timeout)"
        )
    except FramingError:
        return _FRAMING_TOO_LARGE
    return body if len(body) <= limit else _too_large(limit)


def _too_large(limit: int) -> HttpError:
    return HttpError(status=413, message=f"The body is larger than {limit} bytes (listen.max_body)")


async def read_limited(content: StreamReader, limit: int, seconds: float) -> bytes:
    """Read the content, or only a part that exceeds `limit` bytes. Raise TimeoutError after `seconds`."""
    body = bytearray()
    # Limit the total time, because a client that sends single bytes could satisfy a timeout per read forever.
    async with asyncio.timeout(seconds):
        while chunk := await content.readany():
            body += chunk
            if len(body) > limit:
                break
    return bytes(body)
