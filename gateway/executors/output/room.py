"""How much of an output a result has room for, and what becomes of the rest: `max_size` and `overflow`."""

from dataclasses import dataclass
from typing import Final

from gateway.errors import ExecutionError
from gateway.executors.output.overflows import Overflow, Overflows
from gateway.executors.output.parking import TTL_SECONDS, ParkedOutputs
from gateway.json_types import JsonObject

DEFAULT_MAX_SIZE: Final = 256 * 2**10


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    max_size: int
    overflow: Overflow
    parked: ParkedOutputs
    overflows: Overflows

    def has_room_for(self, contents: str | bytes) -> bool:
        if isinstance(contents, str) and len(contents) * 4 <= self.max_size:
            return True
        return _size(contents) <= self.max_size

    def text_blocks(self, text: str, *, media_type: str, caller: str, omitted: int = 0) -> list[JsonObject]:
        """The content blocks for a text: none if it is empty. `omitted` bytes of it are missing already.

        Raises:
            ExecutionError: it is too long, and the file says that this is an error.
        """
        if self.has_room_for(text):
            return [text_block(text)] if text else []
        if self.overflow == "error":
            self.overflows.note("error")
            raise self.too_large(_size(text) + omitted)
        uri = self._park(text, media_type=media_type, caller=caller)
        if uri is None:
            return [text_block(self.cut(text, omitted=omitted))]
        return [text_block(_head(text, self.max_size, uri)), _link(text, uri=uri, media_type=media_type)]

    def large_blocks(self, contents: str | bytes, *, media_type: str, caller: str) -> list[JsonObject]:
        """The content blocks for what has no room and cannot be cut: a link, where it can be kept.

        Raises:
            ExecutionError: it cannot be kept.
        """
        uri = self._park(contents, media_type=media_type, caller=caller)
        if uri is None:
            self.overflows.note("error")
            raise self.too_large(_size(contents))
        return [_link(contents, uri=uri, media_type=media_type)]

    def cut(self, text: str, *, omitted: int = 0, at_least: int = 0) -> str:
        """Keep the head and the tail of a text that is too long, and say between them what is missing."""
        data = text.encode(errors="replace")
        max_size = max(self.max_size, at_least)
        if len(data) <= max_size:
            return text
        self.overflows.note("truncate")
        half = max_size // 2
        missing, total = len(data) - 2 * half + omitted, len(data) + omitted
        # A character that the cut goes through is left out whole.
        head, tail = data[:half].decode(errors="ignore"), data[len(data) - half :].decode(errors="ignore")
        return f"{head}\n[… {missing} of {total} bytes left out …]\n{tail}"

    def too_large(self, size: int) -> ExecutionError:
        return ExecutionError(
            f"The output is too large: {size} bytes, and no more than {self.max_size} are passed on (max_size)"
        )

    def _park(self, contents: str | bytes, *, media_type: str, caller: str) -> str | None:
        if self.overflow != "resource":
            return None
        uri = self.parked.park(contents, media_type=media_type, caller=caller)
        if uri is not None:
            self.overflows.note("resource")
        return uri


def text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _size(contents: str | bytes) -> int:
    return len(contents.encode(errors="replace")) if isinstance(contents, str) else len(contents)


def _head(text: str, max_size: int, uri: str) -> str:
    data = text.encode(errors="replace")
    head = data[:max_size].decode(errors="ignore")
    minutes = int(TTL_SECONDS // 60)
    return (
        f"{head}\n[… {len(data) - max_size} of {len(data)} bytes left out; "
        f"the whole output is the resource {uri} for {minutes} minutes]"
    )


def _link(contents: str | bytes, *, uri: str, media_type: str) -> JsonObject:
    return {
        "type": "resource_link",
        "uri": uri,
        "name": "output",
        "title": "The whole output",
        "mimeType": media_type,
        "size": _size(contents),
    }
