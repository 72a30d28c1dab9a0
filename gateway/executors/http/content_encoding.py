"""Decodes the content encodings of a response (RFC 9110 §8.4) that aiohttp leaves: other names and several at once."""

import zlib
from collections.abc import Sequence
from typing import Final

import aiohttp

_NOT_ENCODED: Final = frozenset({"", "identity", "none", "utf-8", "utf8", "binary", "8bit", "aws-chunked"})
"""Names that servers send with a body that is not compressed."""
_WINDOW_BITS: Final = {
    "gzip": zlib.MAX_WBITS + 16,
    "x-gzip": zlib.MAX_WBITS + 16,  # RFC 9110 §8.4.1.3: equivalent to gzip
    "deflate": zlib.MAX_WBITS,
    "x-deflate": zlib.MAX_WBITS,
}


class BodyTooLargeError(Exception):
    """The body of an answer is longer than its reader takes."""


class UnknownEncodingError(aiohttp.ClientPayloadError):
    """The body of an answer has a content encoding that cannot be decoded; its text is the name."""


def decoded_content(data: bytes, encodings: Sequence[str], *, max_bytes: int) -> bytes:
    """Undo content encodings, which are in the order in which they were applied.

    Raises:
        BodyTooLargeError: the content is longer than `max_bytes`.
        UnknownEncodingError: one of them is unknown.
        aiohttp.ClientPayloadError: the data is not encoded as it says.
    """
    for encoding in reversed(encodings):
        if encoding in _NOT_ENCODED or not data:
            continue
        if encoding not in _WINDOW_BITS:
            raise UnknownEncodingError(encoding[:50])
        try:
            data = _inflated(data, _WINDOW_BITS[encoding], max_bytes=max_bytes)
        except zlib.error as error:
            raise aiohttp.ClientPayloadError(str(error)) from error
    return data


def _inflated(data: bytes, window_bits: int, *, max_bytes: int) -> bytes:
    # Many servers send raw deflate data, without the zlib header of RFC 9110 §8.4.1.2.
    if window_bits == zlib.MAX_WBITS and not (data[0] & 0x0F == 8 and int.from_bytes(data[:2]) % 31 == 0):
        window_bits = -zlib.MAX_WBITS
    parts, size = [], 0
    while data:  # gzip may have several members (RFC 1952 §2.2)
        decompressor = zlib.decompressobj(window_bits)
        part = decompressor.decompress(data, max_bytes - size + 1)
        size += len(part)
        if size > max_bytes:
            raise BodyTooLargeError
        if not decompressor.eof:
            raise zlib.error("incomplete data")
        parts.append(part)
        data = decompressor.unused_data
        if not data.startswith(b"\x1f\x8b"):  # padding
            break
    return b"".join(parts)
