"""The output schema that a function's return annotation promises, where it promises anything.

Only an object or an array becomes structured content. A hint that says nothing of the members (`dict`, `list[Any]`) is
no schema worth sending, and one that allows None or text as well would be a promise that a result may break.
"""

from inspect import Signature
from typing import Any, Final, get_args

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from gateway.config.diagnostics.problems import Problems
from gateway.json_types import JsonObject
from gateway.plugin import Audio, EmbeddedResource, Image, ResourceLink, Text

_CONTENT: Final = (Text, Image, Audio, EmbeddedResource, ResourceLink)
_UNTOLD: Final = (Any, None, Signature.empty)
_SAYS_NOTHING: Final[tuple[JsonObject, ...]] = (
    {"type": "object"},
    {"type": "object", "additionalProperties": True},
    {"type": "array"},
    {"type": "array", "items": {}},
)


class Untitled(GenerateJsonSchema):
    """Without the titles that only repeat a name."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's method
        return False


def result_schema(hint: Any, *, name: str, problems: Problems) -> JsonObject | None:
    """Return the JSON Schema of what the function `name` with this return annotation returns, or None."""
    if hint in _UNTOLD or _mentions_content(hint):
        return None
    try:
        schema = TypeAdapter(hint).json_schema(mode="serialization", schema_generator=Untitled)
    except Exception as error:  # noqa: BLE001 - Boundary: classes of a plugin may define their own schema
        reason = str(error).partition("\n")[0]
        problems.warning(f"{name} gets no output schema from what it is annotated to return: {reason}")
        return None
    if "$ref" in schema:  # a class that contains itself
        # MCP 2025-11-25 schema.ts, Tool.outputSchema: the root has a `type`, beside which a `$ref` may stand.
        name = schema["$ref"].removeprefix("#/$defs/")
        schema = {"type": schema["$defs"].get(name, {}).get("type"), **schema}
    if schema.get("type") not in {"object", "array"} or schema in _SAYS_NOTHING:
        return None
    return schema


def _mentions_content(hint: Any) -> bool:
    return any(hint is content for content in _CONTENT) or any(map(_mentions_content, get_args(hint)))
