"""Checks and reads responses to input requests (2026-07-28 basic/patterns/mrtr). Pure."""

from collections.abc import Callable, Mapping
from typing import Final

from gateway.errors import MalformedAnswerError
from gateway.json_types import Json, JsonObject
from gateway.language.schemas.json_schema import validation_errors
from gateway.plugin import Answer, Sample
from gateway.protocol.call.input_requests.requests import ELICIT, LIST_ROOTS, SAMPLE, InputRequest

_ACTIONS: Final = ("accept", "decline", "cancel")


def check_answer(key: str, question: InputRequest, answer: Json) -> None:
    """Raise MalformedAnswerError if a response does not match its request."""
    if not isinstance(answer, dict):
        raise MalformedAnswerError(key, "must be an object")
    _CHECKS[question.method](key, question, answer)


def read_answer(answer: JsonObject) -> Answer:
    return Answer(action=answer["action"], content=_filled_in(answer) if answer["action"] == "accept" else None)


def read_sample(answer: JsonObject) -> Sample:
    content = answer["content"]
    blocks = content if isinstance(content, list) else [content]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    return Sample(text=text, content=content, model=answer.get("model", ""), stop_reason=answer.get("stopReason"))


def read_roots(answer: JsonObject) -> list[JsonObject]:
    return list(answer["roots"])


def _check_elicited(key: str, question: InputRequest, answer: JsonObject) -> None:
    if answer.get("action") not in _ACTIONS:
        raise MalformedAnswerError(key, f"must have an `action`: one of {', '.join(_ACTIONS)}")
    # client/elicitation, "Response Actions": only an accepted form has content.
    if answer["action"] != "accept" or not question.is_form:
        return
    errors = validation_errors(question.params["requestedSchema"], _filled_in(answer))
    if errors:
        raise MalformedAnswerError(key, f"does not match the requested schema: {'; '.join(map(str, errors))}")


def _filled_in(answer: JsonObject) -> Json:
    content = answer.get("content")
    # The response to a form without fields may lack content.
    return {} if content is None else content


def _check_sampled(key: str, _question: InputRequest, answer: JsonObject) -> None:
    content = answer.get("content")
    # client/sampling: one block, or a list since 2025-11-25.
    blocks = content if isinstance(content, list) else [content]
    if not all(_is_block(block) for block in blocks):
        raise MalformedAnswerError(key, "must have `content`: a content block, or a list of them")
    if not isinstance(answer.get("model", ""), str) or not isinstance(answer.get("stopReason") or "", str):
        raise MalformedAnswerError(key, "must have a `model` and a `stopReason` that are text")


def _is_block(block: Json) -> bool:
    match block:
        case {"type": "text"}:
            return isinstance(block.get("text"), str)
        case {"type": str()}:
            return True
    return False


def _check_roots(key: str, _question: InputRequest, answer: JsonObject) -> None:
    listed = answer.get("roots")
    if not isinstance(listed, list) or not all(map(_is_root, listed)):
        raise MalformedAnswerError(key, "must have `roots`: a list of objects whose `uri` starts with file://")


def _is_root(root: Json) -> bool:
    match root:
        case {"uri": str(uri)}:
            return uri.startswith("file://") and isinstance(root.get("name") or "", str)
    return False


_CHECKS: Final[Mapping[str, Callable[[str, InputRequest, JsonObject], None]]] = {
    ELICIT: _check_elicited,
    SAMPLE: _check_sampled,
    LIST_ROOTS: _check_roots,
}
