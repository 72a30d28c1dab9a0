"""A multipart/form-data body (RFC 7578), written as browsers write it (HTML, "Multipart form data"). Pure.

Threats answered: a name, a file name or a media type from a caller that would end its header field, and so write
headers or parts of its own; a file that holds the boundary, which it cannot, for that is made after the file is known,
of 128 random bits; a file name that is a path (RFC 7578 §4.2).
"""

import re
import secrets
from collections.abc import Iterable
from typing import Final

import msgspec

from gateway.errors import ExecutionError
from gateway.executors.http.streamed_body import DiskFile, StreamedBody
from gateway.json_types import Json

_MEDIA_TYPE: Final = re.compile(
    r"""[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}(?:[ ]?;[ ]?[\w!#$&^.+-]+=(?:[\w!#$&^.+/-]+|"[^"\\\x00-\x1f\x7f]*"))*""",
    re.ASCII,
)
"""RFC 9110 §8.3.1."""
_ESCAPED: Final = re.compile(r'["\x00-\x1f\x7f]')
_MAX_NAME: Final = 255
"""Characters of a file name: more, no file system takes."""


class PartContent(msgspec.Struct, frozen=True, kw_only=True):
    """One part, ready to be written."""

    field: str
    data: bytes | DiskFile
    media_type: str | None = None
    file_name: str | None = None

    @property
    def description(self) -> Json:
        size = self.data.size if isinstance(self.data, DiskFile) else len(self.data)
        if self.file_name is None and isinstance(self.data, bytes):
            return {"field": self.field, "type": self.media_type, "text": self.data.decode(errors="replace")}
        return {"field": self.field, "name": self.file_name, "type": self.media_type, "size": size}


def multipart_body(parts: Iterable[PartContent]) -> tuple[StreamedBody, str]:
    """Write parts; return the body and its media type."""
    boundary = f"mcp-gateway-{secrets.token_hex(16)}"
    pieces: list[bytes | DiskFile] = []
    described: list[Json] = []
    for part in parts:
        pieces += (_head(part, boundary), part.data, b"\r\n")
        described.append({key: value for key, value in part.description.items() if value is not None})
    pieces.append(f"--{boundary}--\r\n".encode())
    body = StreamedBody(pieces=tuple(pieces), description=described, boundary=boundary.encode())
    return body, f"multipart/form-data; boundary={boundary}"


def _head(part: PartContent, boundary: str) -> bytes:
    disposition = f'form-data; name="{_quoted(part.field)}"'
    if part.file_name is not None:
        disposition += f'; filename="{_quoted(base_name(part.file_name))}"'
    lines = [f"--{boundary}", f"Content-Disposition: {disposition}"]
    if part.media_type is not None:
        lines.append(f"Content-Type: {part.media_type}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode(errors="replace")


def _quoted(text: str) -> str:
    """Escape a name: `"` as %22, CR as %0D, LF as %0A; other control characters, which nobody means, like these."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def base_name(name: str) -> str:
    """The file name without directories, of whichever system."""
    return re.split(r"[/\\]", name)[-1][-_MAX_NAME:] or "file"


def checked_media_type(media_type: str, *, place: str) -> str:
    """Return a media type that may stand in a header field.

    Raises:
        ExecutionError: it may not.
    """
    if not _MEDIA_TYPE.fullmatch(media_type):
        raise ExecutionError(f"{place}: {media_type[:60]!r} is not a media type")
    return media_type
