"""Output schemas that results need not match. Mismatches are counted, and logged once per tool.

Schemas are compiled when they are first used, because an OpenAPI document can contain thousands.
"""

from threading import Lock
from typing import Final

import msgspec
import structlog

from gateway.json_types import Json, JsonObject
from gateway.language.schemas.json_schema import validation_errors

log: Final = structlog.get_logger(__name__)


class MismatchCounter:
    """Counts results that do not match their schema, and logs the first one of each tool. Thread-safe."""

    def __init__(self) -> None:
        self.count = 0
        self._named: Final[set[str]] = set()
        self._lock: Final = Lock()

    def note(self, place: str, reason: str) -> None:
        with self._lock:
            self.count += 1
            is_new = place not in self._named
            self._named.add(place)
        if is_new:
            log.warning("result does not fit its schema", place=place, reason=reason)


class ExpectedSchema(msgspec.Struct, frozen=True, kw_only=True):
    schema: JsonObject
    place: str
    mismatches: MismatchCounter

    def accept(self, value: Json) -> JsonObject:
        """Return the result as structured content, which must be an object (MCP 2026-07-28, `CallToolResult`)."""
        if errors := validation_errors(self.schema, value):
            self.mismatches.note(self.place, str(errors[0]))
        return value if isinstance(value, dict) else {"result": value}


def announced(schema: JsonObject) -> JsonObject:
    """Return the listed `outputSchema`. It allows every object, because clients reject mismatches."""
    # References are relative to the root.
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    own = {key: value for key, value in schema.items() if key != "$defs"}
    return {"type": "object", "anyOf": [own, {}], **shared}
