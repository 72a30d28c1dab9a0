"""Builds and checks input requests and responses (client/elicitation, client/sampling and client/roots)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from gateway import exact_json
from gateway.control_characters import visible
from gateway.errors import MalformedAnswerError
from gateway.json_types import Json, JsonObject
from gateway.language.schemas.json_schema import schema_problem_in, validation_errors
from gateway.plugin import Answer, Sample, ToolError
from gateway.wire import jsonrpc
from gateway.wire.input_requests import ELICIT, LIST_ROOTS, SAMPLE, InputRequest

CONFIRMATION_KEY: Final = "mcp-gateway.confirm"
"""The key of the input request that asks the user to confirm a tool call (`confirm:`)."""

_FIELD_TYPES: Final = ("string", "number", "integer", "boolean")


def elicitation(message: str, schema: JsonObject) -> InputRequest:
    return InputRequest(ELICIT, {"message": message, "requestedSchema": schema})


def url_elicitation(message: str, url: str) -> InputRequest:
    return InputRequest(ELICIT, {"mode": "url", "message": message, "url": url})


def sampling(messages: str | Sequence[JsonObject], fields: JsonObject) -> InputRequest:
    """Return a sampling request without the fields whose value is None."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
    given = {name: value for name, value in fields.items() if value is not None}
    return InputRequest(SAMPLE, {"messages": list(messages), **given})


def roots() -> InputRequest:
    return InputRequest(LIST_ROOTS, {})


def read_input_request(wire: Json) -> InputRequest:
    """Read an input request that a plugin has built. Raise ToolError if `wire` is not an input request."""
    match wire:
        case {"method": str(method), **rest} if method in _PROBLEMS and isinstance(
            params := rest.get("params", {}), dict
        ):
            return InputRequest(method, params)
    raise ToolError(
        f"An input request must be {{'method': …, 'params': {{…}}}} with one of the methods {', '.join(_PROBLEMS)}"
    )


def shown(question: InputRequest, *, has_lines: bool) -> InputRequest:
    """Escape characters that could hide or reorder text in an input request. `has_lines` keeps line breaks.

    Field names are escaped, and `with_names_of` restores the names in responses. The values of choices stay unchanged,
    because responses repeat the values.
    """
    if question.method != ELICIT:
        return question
    params = {name: _shown(value, has_lines=has_lines) for name, value in question.params.items()}
    if question.is_form:
        schema = params["requestedSchema"]
        properties = {_shown_name(name): field for name, field in schema["properties"].items()}
        required = {"required": [*map(_shown_name, schema["required"])]} if "required" in schema else {}
        params["requestedSchema"] = {**schema, "properties": properties, **required}
    message = question.params.get("message")
    return InputRequest(ELICIT, {**params, "message": visible(message, has_lines=has_lines)} if message else params)


def with_names_of(question: InputRequest, answer: JsonObject) -> JsonObject:
    """Restore the original field names in a response. `shown` escapes the names before the request is sent."""
    if not question.is_form or not isinstance(content := answer.get("content"), dict):
        return answer
    names = {_shown_name(name): name for name in question.params["requestedSchema"]["properties"]}
    return {**answer, "content": {names.get(name, name): value for name, value in content.items()}}


def _shown_name(name: str) -> str:
    return visible(name, has_lines=False)


_READ: Final = frozenset({"title", "description"})


def _shown(value: Json, *, has_lines: bool) -> Json:
    match value:
        case dict():
            members = {
                name: visible(member, has_lines=has_lines)
                if name in _READ and isinstance(member, str)
                else _shown(member, has_lines=has_lines)
                for name, member in value.items()
            }
            return _with_choices_shown(members, has_lines=has_lines)
        case list():
            return [_shown(item, has_lines=has_lines) for item in value]
        case _:
            return value


def _with_choices_shown(field: dict[str, Json], *, has_lines: bool) -> dict[str, Json]:
    """Escape the field's default text, and add an escaped title to each choice."""

    def seen(text: Json) -> Json:
        return visible(text, has_lines=has_lines) if isinstance(text, str) else text

    match field:
        case {"type": "string", "enum": list() as choices}:
            given = field.get("enumNames")
            names = [*map(seen, given if isinstance(given, list) else choices)]
            return field if names == choices else {**field, "enumNames": names}
        case {"type": "array", "items": {"enum": list() as choices}} if [*map(seen, choices)] != choices:
            return {**field, "items": {"anyOf": [{"const": each, "title": seen(each)} for each in choices]}}
        case {"type": "string", "default": str() as default} if "oneOf" not in field:
            return {**field, "default": seen(default)}
    return field


def checked(key: str, question: InputRequest) -> InputRequest:
    """Return an input request as plain JSON. Raise ToolError if the request is invalid."""
    try:
        # Copy the parameters, because the plugin may change the original before the response is checked.
        params = exact_json.loads(jsonrpc.encode(question.params))
    except (TypeError, RecursionError) as error:
        raise ToolError(f"The input request {key!r} cannot be encoded as JSON: {error}") from error
    # Reject NaN and infinity, which orjson encodes as null.
    if (number := exact_json.non_finite(question.params)) is not None:
        raise ToolError(f"The input request {key!r} cannot be encoded as JSON: {number}")
    question = InputRequest(question.method, params)
    schema_problem = _PROBLEMS[question.method](params)
    if schema_problem is not None:
        raise ToolError(f"The input request {key!r} {schema_problem}")
    return question


def _problem_of_elicitation(params: JsonObject) -> str | None:
    if not isinstance(params.get("message"), str):
        return "needs a `message`"
    match params.get("mode", "form"):
        case "form":
            return _problem_of_form(params.get("requestedSchema"))
        case "url":
            return None if _is_web_address(params.get("url")) else "needs a `url`: https://…"
    return "must have one of the modes form, url"


def _problem_of_form(schema: Json) -> str | None:
    """Return the problem with a form's schema, or None. Forms must be flat (client/elicitation, "Requested Schema")."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return 'needs a schema with `"type": "object"`'
    fields = schema.get("properties")
    if not isinstance(fields, dict):
        return "needs a schema with `properties`"
    odd = [name for name, field in fields.items() if not _is_field(field)]
    if odd:
        return f"has fields that are neither text, a number, a boolean nor a choice: {', '.join(odd)}"
    schema_problem = schema_problem_in(schema)
    return None if schema_problem is None else f"has an invalid schema: {schema_problem}"


def _is_field(field: Json) -> bool:
    match field:
        case {"type": "array", "items": {"anyOf": choices}} | {"type": "string", "oneOf": choices}:
            return isinstance(choices, list) and all(map(_is_choice, choices))
        case {"type": "array", "items": {"enum": list()}}:
            return True
        case {"type": str(kind)}:
            return kind in _FIELD_TYPES
    return False


def _is_choice(choice: Json) -> bool:
    match choice:
        case {"const": str(), "title": str()}:
            return True
    return False


def _is_web_address(url: Json) -> bool:
    if not isinstance(url, str) or not url.isprintable():  # special characters could hide the target
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    # client/elicitation, "Safe URL Handling": plain http is for development.
    return parts.scheme in {"https", "http"} and bool(parts.hostname)


def _problem_of_sampling(params: JsonObject) -> str | None:
    messages, most = params.get("messages"), params.get("maxTokens")
    if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        return "needs `messages`: a list of {role: user or assistant, content: a block or several}"
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        return "needs `maxTokens`: a whole number above 0"
    return None


def _is_message(message: Json) -> bool:
    match message:
        case {"role": "user" | "assistant", "content": {"type": str()}}:
            return True
        case {"role": "user" | "assistant", "content": [*blocks]}:
            return all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in blocks)
    return False


_PROBLEMS: Final[Mapping[str, Callable[[JsonObject], str | None]]] = {
    ELICIT: _problem_of_elicitation,
    SAMPLE: _problem_of_sampling,
    LIST_ROOTS: lambda _: None,
}

_ACTIONS: Final = ("accept", "decline", "cancel")


def check_answer(key: str, question: InputRequest, answer: Json) -> None:
    """Raise MalformedAnswerError if `answer` does not match the input request."""
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
        raise MalformedAnswerError(key, "must have a `model` and a `stopReason`, both strings")


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
