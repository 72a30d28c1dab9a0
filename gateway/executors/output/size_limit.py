"""The size limit of results (`max_size`), and the handling of larger outputs (`overflow`)."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
import structlog

from gateway.errors import ExecutionError
from gateway.executors.invocation import Invocation, text_size
from gateway.executors.output.media_types import PLAIN_TEXT
from gateway.executors.output.output_store import TTL_SECONDS, OutputStore
from gateway.json_types import JsonObject

log: Final = structlog.get_logger(__name__)

DEFAULT_MAX_SIZE: Final = 256 * 2**10
DEFAULT_MAX_TOTAL: Final = 10 * 2**20
_NOTES_ROOM: Final = 1024
"""The number of characters reserved for notes about omitted content."""


Overflow = Literal["truncate", "resource", "error"]


class OutputCounters:
    """Counts outputs over the limit and results that do not match their schema.

    Not thread-safe: concurrent updates can be lost.
    """

    def __init__(self) -> None:
        self.overflows: Final[dict[str, int]] = {"truncate": 0, "resource": 0, "error": 0}
        self.mismatches = 0
        self._mismatched: Final[set[str]] = set()

    def note_mismatch(self, place: str, reason: str) -> None:
        """Count a result that does not match its schema, and log the first mismatch of each tool."""
        self.mismatches += 1
        if place not in self._mismatched:
            self._mismatched.add(place)
            log.warning("result does not match its schema", place=place, reason=reason)


class SizeLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Limits outputs to `max_size` bytes. Larger outputs are shortened, replaced with a link, or rejected."""

    max_size: int
    max_total: int
    """The limit in characters for results of upstream servers. The default is high, so that images fit."""
    overflow: Overflow
    output_store: OutputStore
    counters: OutputCounters

    def has_room_for(self, contents: str | bytes) -> bool:
        # UTF-8 has at most four bytes per character (RFC 3629 §3).
        if isinstance(contents, str) and len(contents) * 4 <= self.max_size:
            return True
        return _size(contents) <= self.max_size

    def text_blocks(
        self, text: str, invocation: Invocation, *, media_type: str = PLAIN_TEXT, omitted: int = 0
    ) -> list[JsonObject]:
        """Return content blocks for text. `omitted` is the number of bytes that are already missing.

        Raises:
            ExecutionError: the text is too long, and `overflow` is `error`.
        """
        if self.has_room_for(text):
            return [text_block(text)] if text else []
        if self.overflow == "error":
            self.counters.overflows["error"] += 1
            raise self.too_large(_size(text) + omitted)
        link = self._link(text, invocation, media_type=media_type)
        if link is None:
            return [text_block(self.cut(text, omitted=omitted))]
        data = text.encode(errors="replace")
        head = data[: self.max_size].decode(errors="ignore")  # drops an incomplete character
        seconds = TTL_SECONDS if invocation.call.output_seconds is None else invocation.call.output_seconds
        note = (
            f"{len(data) - self.max_size} of {len(data)} bytes omitted; "
            f"the whole output is available as the resource {link['uri']} for {max(1, round(seconds / 60))} minutes"
        )
        return [text_block(f"{head}\n[… {note}]"), link]

    def link(self, contents: str | bytes, invocation: Invocation, *, media_type: str) -> JsonObject:
        """Return a link to contents that are too large and cannot be shortened.

        Raises:
            ExecutionError: the contents cannot be stored.
        """
        link = self._link(contents, invocation, media_type=media_type)
        if link is None:
            self.counters.overflows["error"] += 1
            raise self.too_large(_size(contents))
        return link

    def fitting(self, content: Sequence[JsonObject]) -> list[JsonObject]:
        """Return the content blocks that fit into `max_total`, with a note about omitted blocks.

        Raises:
            ExecutionError: a block does not fit, and `overflow` is `error`.
        """
        left, kept = self.max_total + _NOTES_ROOM, list[JsonObject]()
        for block in content:
            if (size := text_size(block)) <= left:
                left -= size
                kept.append(block)
        if len(kept) == len(content):
            return kept
        if self.overflow == "error":
            self.counters.overflows["error"] += 1
            raise self.too_large(text_size(content))
        self.counters.overflows["truncate"] += 1
        what = f"{len(content) - len(kept)} of {len(content)} content blocks omitted: too large (max_size)"
        return [*kept, text_block(f"[… {what} …]")]

    def cut(self, text: str, *, omitted: int = 0, at_least: int = 0) -> str:
        """Remove the middle of a string that is too long, and add a note.

        The note also counts `omitted` bytes, which are already missing. `at_least` raises a smaller `max_size`.
        """
        data = text.encode(errors="replace")
        max_size = max(self.max_size, at_least)
        if len(data) <= max_size:
            return text
        self.counters.overflows["truncate"] += 1
        half = max_size // 2
        missing, total = len(data) - 2 * half + omitted, len(data) + omitted
        # Incomplete characters are dropped.
        head, tail = data[:half].decode(errors="ignore"), data[len(data) - half :].decode(errors="ignore")
        return f"{head}\n[… {missing} of {total} bytes omitted …]\n{tail}"

    def too_large(self, size: int) -> ExecutionError:
        return ExecutionError(f"The output is too large: {size} bytes, but the limit is {self.max_size} (max_size)")

    def _link(self, contents: str | bytes, invocation: Invocation, *, media_type: str) -> JsonObject | None:
        """Store the contents and return a link, or None if storing fails or `overflow` is not `resource`."""
        if self.overflow != "resource":
            return None
        call = invocation.call
        uri = self.output_store.save(
            contents, media_type=media_type, caller=call.caller.owner_key, seconds=call.output_seconds
        )
        if uri is None:
            return None
        self.counters.overflows["resource"] += 1
        return {
            "type": "resource_link",
            "uri": uri,
            "name": "output",
            "title": "The whole output",
            "mimeType": media_type,
            "size": _size(contents),
        }


def text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _size(contents: str | bytes) -> int:
    return len(contents.encode(errors="replace")) if isinstance(contents, str) else len(contents)
