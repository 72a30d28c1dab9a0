"""Checks the capabilities that input requests need, and converts the requests to older revisions.

Servers must not use undeclared capabilities (client/elicitation, client/sampling, client/roots, "Capabilities").
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from gateway.errors import ExecutionError, MissingCapabilityError
from gateway.json_types import Json, JsonObject
from gateway.wire.downgrade import strip
from gateway.wire.revisions import V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28

ELICIT: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"
LIST_ROOTS: Final = "roots/list"

_ID_BYTES: Final = 16


class InputRequest(msgspec.Struct, frozen=True):
    method: str
    params: JsonObject

    @property
    def wire(self) -> JsonObject:
        return {"method": self.method, "params": self.params}

    @property
    def is_form(self) -> bool:
        return self.method == ELICIT and self.params.get("mode") != "url"


def check_capabilities(questions: Mapping[str, InputRequest], declared: JsonObject, revision: str) -> None:
    """Raise MissingCapabilityError for capabilities that are not declared or that the revision does not define."""
    missing: dict[str, Json] = {}
    for question in questions.values():
        for name, features in _NEEDS[question.method](question.params).items():
            capability = declared.get(name)
            lacking: dict[str, Json] = {
                feature: {}
                for feature in features
                if not isinstance(capability, dict) or not _HAS[feature](capability, revision)
            }
            if not isinstance(capability, dict) or revision < _SINCE.get(name, "") or lacking:
                missing[name] = {**missing.get(name, {}), **lacking}
    if missing:
        raise MissingCapabilityError(missing)


def for_revision(question: InputRequest, revision: str) -> InputRequest:
    """Convert a checked request to `revision`. Raise ExecutionError if the revision cannot express the request."""
    params = strip(question.method, question.params, revision)
    if question.method == SAMPLE and revision < V2025_11_25:
        params["messages"] = [_plain_message(message, revision) for message in params["messages"]]
    elif question.method == ELICIT and not question.is_form and revision < V2026_07_28:
        # Only 2025-11-25 requires an id. Keep an upstream server's id, which it repeats to announce the completion.
        given = params.get("elicitationId")
        params["elicitationId"] = given if isinstance(given, str) and given else secrets.token_urlsafe(_ID_BYTES)
    elif question.is_form and revision < V2025_11_25:
        schema = params["requestedSchema"]
        properties = {name: _plain_field(name, field) for name, field in schema["properties"].items()}
        params["requestedSchema"] = {**schema, "properties": properties}
    return InputRequest(question.method, params)


def _elicitation_needs(params: JsonObject) -> dict[str, Sequence[str]]:
    return {"elicitation": ["url" if params.get("mode") == "url" else "form"]}


def _sampling_needs(params: JsonObject) -> dict[str, Sequence[str]]:
    tools = ["tools"] if "tools" in params or "toolChoice" in params else []
    context = ["context"] if params.get("includeContext", "none") != "none" else []
    return {"sampling": [*tools, *context]}


_NEEDS: Final[Mapping[str, Callable[[JsonObject], dict[str, Sequence[str]]]]] = {
    ELICIT: _elicitation_needs,
    SAMPLE: _sampling_needs,
    LIST_ROOTS: lambda _: {"roots": []},
}

_SINCE: Final = {"elicitation": V2025_06_18}
"""The revision that introduced a capability. Capabilities of the oldest revision are not listed."""


def _has_forms(capability: JsonObject, revision: str) -> bool:
    return revision < V2025_11_25 or "form" in capability or "url" not in capability


_HAS: Final[Mapping[str, Callable[[JsonObject, str], bool]]] = {
    "form": _has_forms,
    "url": lambda capability, revision: revision >= V2025_11_25 and "url" in capability,
    "tools": lambda capability, revision: revision >= V2025_11_25 and "tools" in capability,
    # Before 2025-11-25, `sampling` had no features.
    "context": lambda capability, revision: revision < V2025_11_25 or "context" in capability,
}


def _plain_field(name: str, field: JsonObject) -> JsonObject:
    """Convert a field to revision 2025-06-18, which has `enumNames` and no lists."""
    if field["type"] == "array":
        raise ExecutionError(f"The field {name!r} allows several values, which revision {V2025_06_18} does not support")
    plain = {key: value for key, value in field.items() if key != "oneOf"}
    if field["type"] != "boolean":
        plain.pop("default", None)
    if "oneOf" in field:
        plain["enum"] = [choice["const"] for choice in field["oneOf"]]
        plain["enumNames"] = [choice["title"] for choice in field["oneOf"]]
    return plain


def _plain_message(message: JsonObject, revision: str) -> dict[str, Json]:
    """Convert a sampling message to a revision before 2025-11-25. These revisions allow one block per message."""
    content = message["content"]
    blocks = content if isinstance(content, list) else [content]
    kinds = ("text", "image") if revision < V2025_03_26 else ("text", "image", "audio")
    if len(blocks) != 1 or blocks[0]["type"] not in kinds:
        raise ExecutionError(f"Revision {revision} allows one block per message, of type {' or '.join(kinds)}")
    return {"role": message["role"], "content": blocks[0]}
