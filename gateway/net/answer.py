"""An HTTP response whose body is read up to a size limit."""

import zlib
from typing import Final

import aiohttp
import msgspec
from multidict import CIMultiDictProxy


class Answer(msgspec.Struct, frozen=True):
    status: int
    reason: str
    headers: CIMultiDictProxy[str]
    """Raw headers: bytes that are not UTF-8 are surrogates."""
    content: aiohttp.StreamReader
    is_redirected: bool = False
    """Whether a redirect to another origin led here. Such an answer is not about the credentials."""

    @property
    def media_type(self) -> str:
        """The media type without its parameters (RFC 9110 §8.3.1)."""
        return self.headers.get("Content-Type", "application/octet-stream").partition(";")[0].strip().lower()

    async def read(self, *, max_bytes: int) -> bytes:
        """Read and decompress the body. Raise BodyTooLargeError or UnknownEncodingError."""
        chunks, size = [], 0
        while not self.content.at_eof():
            chunk = await self.content.readany()
            # aiohttp has already decompressed the data, so this also limits small responses that unpack to gigabytes.
            size += len(chunk)
            if size > max_bytes:
                raise BodyTooLargeError(max_bytes)
            chunks.append(chunk)
        body = b"".join(chunks)
        for encoding in reversed(self._encodings_left()) if body else ():
            body = _inflated(body, encoding, max_bytes=max_bytes)
        return body

    def _encodings_left(self) -> list[str]:
        """Return the content encodings that aiohttp has not decoded, in the order in which they were applied."""
        fields = [field.strip().lower() for field in self.headers.getall("Content-Encoding", ())]
        if fields and fields[-1] in {"gzip", "deflate", "br", "zstd"}:
            fields.pop()
        names = [name.strip() for name in ",".join(fields).split(",")]
        return [name for name in names if name not in _NOT_ENCODED]


_NOT_ENCODED: Final = frozenset({"", "identity", "none", "utf-8", "binary", "8bit", "aws-chunked"})


def _inflated(body: bytes, encoding: str, *, max_bytes: int) -> bytes:
    if encoding.removeprefix("x-") not in {"gzip", "deflate"}:  # RFC 9110 §8.4.1.3: x-gzip is gzip.
        raise UnknownEncodingError(encoding)
    # Some servers omit the zlib header of deflate (RFC 9110 §8.4.1.2). 32 detects zlib and gzip headers.
    is_raw = encoding.endswith("deflate") and body[0] & 0x0F != zlib.DEFLATED
    decompressor = zlib.decompressobj(-zlib.MAX_WBITS if is_raw else zlib.MAX_WBITS + 32)
    try:
        content = decompressor.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise aiohttp.ClientPayloadError(str(error)) from error
    if len(content) > max_bytes:
        raise BodyTooLargeError(max_bytes)
    if not decompressor.eof or decompressor.unused_data:
        raise aiohttp.ClientPayloadError("the compressed content is truncated or followed by other data")
    return content


class BodyTooLargeError(Exception):
    """The body of a response exceeds the limit."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self.max_bytes = max_bytes


class UnknownEncodingError(aiohttp.ClientPayloadError):
    """The content encoding of a response is not supported. The message is its name."""
