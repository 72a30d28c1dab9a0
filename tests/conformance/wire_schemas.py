"""Checks messages against the official JSON schema of their revision.

The schemas allow undeclared members in all objects, and therefore members of later revisions. Here, named types must
not have undeclared members.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Final

import jsonschema_rs

from gateway.json_types import Json, JsonObject

OLDEST: Final = "2024-11-05"
INPUT_REQUIRED: Final = "input_required"
"""The type of a result with input requests."""
_TYPES: Final = {
    INPUT_REQUIRED: "InputRequiredResult",
    "task": "Result",  # the extension has a separate schema
}
"""Types of results of any method, by their `resultType`."""
_OPEN: Final = re.compile(r".*(Meta|Result|Error)(Object)?|Error|Result")
"""Types with undeclared members: `_meta`, and base types of other types."""
_OWN_RESULTS: Final = re.compile(r"(Call|List|Read|Get|Complete|Initialize|Discover|Subscriptions)\w*Result")


class WireSchemas:
    """The schemas of all revisions without undeclared members."""

    def __init__(self, documents: Mapping[str, dict[str, Json]]) -> None:
        older = {OLDEST: _as_of_2024(documents["2025-03-26"])}
        self._revisions: Final = {
            revision: _Revision(document) for revision, document in {**older, **documents}.items()
        }

    def problems(self, revision: str, message: JsonObject, *, answers: str | None) -> list[str]:
        """Return the errors of a message. If it is a response, `answers` is the method of its request."""
        return list(self._revisions[revision].problems(message, answers))


class _Revision:
    def __init__(self, document: dict[str, Json]) -> None:
        self._section: Final = "$defs" if "$defs" in document else "definitions"
        self._document: Final = deepcopy(document)
        self._types: Final[dict[str, Json]] = self._document[self._section]
        for name, definition in self._types.items():
            _close(name, definition)
        for bound in self._types.get("NumberSchema", {}).get("properties", {}).values():
            if bound.get("type") == "integer":  # an error of the generator: the TypeScript source has number
                bound["type"] = "number"
        self._methods: Final = {
            definition["properties"]["method"]["const"]: name
            for name, definition in self._types.items()
            if "const" in definition.get("properties", {}).get("method", {})
        }
        self._errors: Final = dict(_error_types(self._types))
        self._validators: Final[dict[str, jsonschema_rs.Validator]] = {}

    def problems(self, message: JsonObject, answers: str | None) -> Iterator[str]:
        if "method" in message:
            yield from self._check(self._methods[message["method"]], message)
        elif "error" in message:
            yield from self._check(self._first("JSONRPCErrorResponse", "JSONRPCError"), message)
            if (name := self._errors.get(message["error"]["code"])) is not None:
                wrapped = "error" in self._types[name].get("properties", {})
                yield from self._check(name, message if wrapped else message["error"])
        else:
            yield from self._check(self._first("JSONRPCResultResponse", "JSONRPCResponse"), message)
            result = message["result"]
            yield from self._check(_TYPES.get(result.get("resultType")) or self._result_type(answers), result)

    def _result_type(self, method: str | None) -> str:
        request = self._methods.get(method or "", "")
        name = request.removesuffix("Request") + "Result"
        return name if name in self._types else "EmptyResult"

    def _first(self, *names: str) -> str:
        return next(name for name in names if name in self._types)

    def _check(self, name: str, value: Json) -> Iterator[str]:
        validator = self._validators.get(name)
        if validator is None:
            schema = {**self._document, "$ref": f"#/{self._section}/{name}"}
            validator = self._validators[name] = jsonschema_rs.validator_for(schema)
        for error in validator.iter_errors(value):
            yield f"{name}{list(error.instance_path)}: {error.message}"


def _close(name: str, definition: dict[str, Json]) -> None:
    """Forbid additional members in a named object."""
    if _OPEN.fullmatch(name) and not _OWN_RESULTS.fullmatch(name):
        return
    if "properties" not in definition or "additionalProperties" in definition or "allOf" in definition:
        return
    if "method" not in definition["properties"]:
        definition["additionalProperties"] = False
    elif "properties" in (
        params := definition["properties"].get("params", {})
    ):  # its envelope belongs to a different type
        params.setdefault("additionalProperties", False)


def _error_types(types: Mapping[str, Json]) -> Iterator[tuple[int, str]]:
    """Return the types of errors by code."""
    for name, definition in types.items():
        properties = definition.get("properties", {})
        parts = [definition, *properties.get("error", {}).get("allOf", [])]
        for part in parts:
            code = part.get("properties", {}).get("code", {}).get("const")
            if code is not None:
                yield code, name


def _as_of_2024(schema: dict[str, Json]) -> dict[str, Json]:
    """Return the schema of 2024-11-05: 2025-03-26 without the additions in its changelog."""
    older = deepcopy(schema)
    types = older["definitions"]
    del types["Tool"]["properties"]["annotations"]
    del types["ServerCapabilities"]["properties"]["completions"]
    del types["ProgressNotification"]["properties"]["params"]["properties"]["message"]
    audio = {"$ref": "#/definitions/AudioContent"}
    types["CallToolResult"]["properties"]["content"]["items"]["anyOf"].remove(audio)
    types["PromptMessage"]["properties"]["content"]["anyOf"].remove(audio)
    return older
