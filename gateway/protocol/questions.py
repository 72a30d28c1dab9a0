"""What a server may ask its client: elicitation, sampling, roots. Builds requests and reads answers. Pure.

MCP 2025-11-25 and 2026-07-28: client/elicitation, client/sampling, client/roots. Requests are built in the form of
2026-07-28; `for_revision` cuts them down for a client of an older one, or says that it cannot be asked.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.errors import ExecutionError, MalformedAnswerError, MissingCapabilityError
from gateway.executors.json_schema import SchemaError, validation_errors
from gateway.json_types import Json, JsonObject
from gateway.plugin import Answer, Sample, ToolError
from gateway.protocol.versions import V2025_06_18, V2025_11_25, V2026_07_28

ELICIT: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"
LIST_ROOTS: Final = "roots/list"

CONFIRMATION_KEY: Final = "mcp-gateway.confirm"
"""Of the question that `confirm:` puts; no author may use it for one of their own."""

_ACTIONS: Final = ("accept", "decline", "cancel")


@dataclass(frozen=True, slots=True)
class Question:
    """One request to the client: `method` and `params` as they go out."""

    method: str
    params: JsonObject

    @property
    def wire(self) -> JsonObject:
        return {"method": self.method, "params": self.params}


def elicitation(message: str, schema: JsonObject) -> Question:
    return Question(ELICIT, {"message": message, "requestedSchema": schema})


def url_elicitation(message: str, url: str) -> Question:
    return Question(ELICIT, {"mode": "url", "message": message, "url": url})


def sampling(messages: str | Sequence[JsonObject], fields: JsonObject) -> Question:
    """`fields` are the other members of the request's params; those that are None are left out."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
    given = {name: value for name, value in fields.items() if value is not None}
    return Question(SAMPLE, {"messages": list(messages), **given})


def roots() -> Question:
    return Question(LIST_ROOTS, {})


def read_question(wire: Json) -> Question:
    """A question that an author wrote as the protocol has it.

    Raises:
        ToolError: it is none.
    """
    match wire:
        case {"method": str(method), **rest} if method in _NEEDS and isinstance(params := rest.get("params", {}), dict):
            return Question(method, params)
    raise ToolError(f"A question is {{'method': …, 'params': {{…}}}} with one of the methods {', '.join(_NEEDS)}")


def check_capabilities(questions: Mapping[str, Question], declared: JsonObject) -> None:
    """Raises: MissingCapabilityError: the client did not declare that it can be asked this."""
    missing: dict[str, Json] = {}
    for question in questions.values():
        for name, features in _NEEDS[question.method](question.params).items():
            if not _has(declared, name, features):
                missing[name] = {**missing.get(name, {}), **features}
    if missing:
        raise MissingCapabilityError(missing)


def for_revision(question: Question, revision: str) -> Question:
    """The question as `revision` has it.

    Raises:
        ExecutionError: a client of that revision cannot be asked this.
    """
    if question.method != ELICIT or revision >= V2026_07_28:
        return question
    if revision < V2025_06_18:
        raise ExecutionError(f"A client of revision {revision} cannot be asked anything by form")
    if revision >= V2025_11_25:
        return question
    schema = question.params["requestedSchema"]
    properties = {name: _plain_choice(name, field) for name, field in schema.get("properties", {}).items()}
    return Question(ELICIT, {**question.params, "requestedSchema": {**schema, "properties": properties}})


def check_answer(key: str, question: Question, answer: Json) -> None:
    """Raises: MalformedAnswerError: this is no answer to the question."""
    if not isinstance(answer, dict):
        raise MalformedAnswerError(key, "must be an object")
    _CHECKS[question.method](key, question, answer)


def read_answer(answer: JsonObject) -> Answer:
    content = answer.get("content") if answer["action"] == "accept" else None
    return Answer(action=answer["action"], content=content)


def read_sample(answer: JsonObject) -> Sample:
    content = answer["content"]
    blocks = content if isinstance(content, list) else [content]
    text = "".join(block["text"] for block in blocks if block.get("type") == "text")
    return Sample(text=text, content=content, model=answer.get("model", ""), stop_reason=answer.get("stopReason"))


def read_roots(answer: JsonObject) -> list[JsonObject]:
    return list(answer["roots"])


def _has(declared: JsonObject, name: str, features: JsonObject) -> bool:
    capability = declared.get(name)
    if not isinstance(capability, dict):
        return False
    if name == "elicitation" and "form" in features and not capability:
        return True  # an empty object means forms, as before there were modes
    return features.keys() <= capability.keys()


def _elicitation_needs(params: JsonObject) -> dict[str, JsonObject]:
    return {"elicitation": {"url": {}} if params.get("mode") == "url" else {"form": {}}}


def _sampling_needs(params: JsonObject) -> dict[str, JsonObject]:
    return {"sampling": {"tools": {}} if "tools" in params or "toolChoice" in params else {}}


_NEEDS: Final[Mapping[str, Callable[[JsonObject], dict[str, JsonObject]]]] = {
    ELICIT: _elicitation_needs,
    SAMPLE: _sampling_needs,
    LIST_ROOTS: lambda _: {"roots": {}},
}
"""What a client must have declared for each method, in the shape of ClientCapabilities."""


def _plain_choice(name: str, field: JsonObject) -> JsonObject:
    """A form's field as 2025-06-18 has it: titles beside an enum, defaults for booleans alone, no lists."""
    if field.get("type") == "array":
        raise ExecutionError(f"A client of revision {V2025_06_18} cannot choose several values, as {name!r} wants")
    plain = {key: value for key, value in field.items() if key != "oneOf"}
    if field.get("type") != "boolean":
        plain.pop("default", None)
    if "oneOf" in field:
        plain["enum"] = [choice["const"] for choice in field["oneOf"]]
        plain["enumNames"] = [choice.get("title", choice["const"]) for choice in field["oneOf"]]
    return plain


def _check_elicited(key: str, question: Question, answer: JsonObject) -> None:
    if answer.get("action") not in _ACTIONS:
        raise MalformedAnswerError(key, f"must have an `action`: one of {', '.join(_ACTIONS)}")
    if answer["action"] != "accept" or question.params.get("mode") == "url":
        return
    errors: Sequence[SchemaError] = validation_errors(question.params["requestedSchema"], answer.get("content", {}))
    if errors:
        raise MalformedAnswerError(key, f"does not fit what was asked: {'; '.join(map(str, errors))}")


def _check_sampled(key: str, _question: Question, answer: JsonObject) -> None:
    content = answer.get("content")
    blocks = content if isinstance(content, list) else [content]
    for block in blocks:
        is_text = isinstance(block, dict) and (block.get("type") != "text" or isinstance(block.get("text"), str))
        if not is_text:
            raise MalformedAnswerError(key, "must have `content`: a content block, or a list of them")


def _check_roots(key: str, _question: Question, answer: JsonObject) -> None:
    listed = answer.get("roots")
    if not isinstance(listed, list) or not all(
        isinstance(root, dict) and isinstance(root.get("uri"), str) for root in listed
    ):
        raise MalformedAnswerError(key, "must have `roots`: a list of objects with a `uri`")


_CHECKS: Final[Mapping[str, Callable[[str, Question, JsonObject], None]]] = {
    ELICIT: _check_elicited,
    SAMPLE: _check_sampled,
    LIST_ROOTS: _check_roots,
}
