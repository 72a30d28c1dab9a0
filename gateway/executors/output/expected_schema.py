"""The schema of a result that need not fit it: it is given all the same, counted, and logged once.

Why compiled at the first result: a document may promise a thousand results, of which few are ever asked for.
"""

from threading import Lock
from typing import Final

import msgspec
import structlog

from gateway.json_types import Json, JsonObject
from gateway.language.schemas.json_schema import validation_errors

log: Final = structlog.get_logger(__name__)


class MismatchCounter:
    """Counts results that do not fit their schemas, and names the tool of each once in the log. Thread-safe."""

    def __init__(self) -> None:
        self.count = 0
        self._named: Final[set[str]] = set()
        self._lock: Final = Lock()

    def note(self, place: str, reason: str) -> None:
        with self._lock:
            self.count += 1
            is_new = place not in self._named
            self._named.add(place)
        # Outside of the lock, which results in other threads wait for.
        if is_new:
            log.warning("result does not fit its schema", place=place, reason=reason)


class ExpectedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A schema that results are compared with."""

    schema: JsonObject
    place: str
    mismatches: MismatchCounter

    def accept(self, value: Json) -> JsonObject:
        """The result as structured content, which is an object whatever it is (MCP 2026-07-28, `CallToolResult`)."""
        if errors := validation_errors(self.schema, value):
            self.mismatches.note(self.place, str(errors[0]))
        return value if isinstance(value, dict) else {"result": value}


def announced(schema: JsonObject) -> JsonObject:
    """The `outputSchema` for such results: clients refuse what does not fit, so that it admits every object."""
    # At the root, where references such as `#/$defs/order` look for them.
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    own = {key: value for key, value in schema.items() if key != "$defs"}
    return {"type": "object", "anyOf": [own, {}], **shared}
