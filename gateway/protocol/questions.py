"""What a server may ask its client: elicitation, sampling, roots. Builds requests in the form of 2026-07-28. Pure.

MCP 2025-11-25 and 2026-07-28: client/elicitation, client/sampling, client/roots. What a client of an older revision can
be asked is in `askable`, what its answers must be in `answers`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import orjson

from gateway.executors.schemas.json_schema import flaw_in
from gateway.json_types import Json, JsonObject
from gateway.plugin import ToolError
from gateway.protocol import jsonrpc

ELICIT: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"
LIST_ROOTS: Final = "roots/list"

CONFIRMATION_KEY: Final = "mcp-gateway.confirm"
"""Of the question that `confirm:` puts; no author may use it for one of their own."""

_FIELD_TYPES: Final = ("string", "number", "integer", "boolean")


@dataclass(frozen=True, slots=True)
class Question:
    """One request to the client: `method` and `params` as they go out."""

    method: str
    params: JsonObject

    @property
    def wire(self) -> JsonObject:
        return {"method": self.method, "params": self.params}

    @property
    def is_form(self) -> bool:
        return self.method == ELICIT and self.params.get("mode") != "url"


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
        case {"method": str(method), **rest} if method in _FLAWS and isinstance(params := rest.get("params", {}), dict):
            return Question(method, params)
    raise ToolError(f"A question is {{'method': …, 'params': {{…}}}} with one of the methods {', '.join(_FLAWS)}")


def checked(key: str, question: Question) -> Question:
    """A question as bare JSON.

    Raises:
        ToolError: no client could answer it.
    """
    try:
        params = orjson.loads(orjson.dumps(question.params, default=jsonrpc.plain))
    except (TypeError, RecursionError) as error:
        raise ToolError(f"The question {key!r} cannot be written as JSON: {error}") from error
    question = Question(question.method, params)
    flaw = _FLAWS[question.method](params)
    if flaw is not None:
        raise ToolError(f"The question {key!r} {flaw}")
    return question


def _flaw_of_elicitation(params: JsonObject) -> str | None:
    if not isinstance(params.get("message"), str):
        return "needs a `message`"
    match params.get("mode", "form"):
        case "form":
            return _flaw_of_form(params.get("requestedSchema"))
        case "url":
            return None if _is_web_address(params.get("url")) else "needs a `url`: https://…"
    return "must have one of the modes form, url"


def _flaw_of_form(schema: Json) -> str | None:
    """Forms are flat (client/elicitation, "Requested Schema")."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return 'needs a schema with `"type": "object"`'
    fields = schema.get("properties")
    if not isinstance(fields, dict):
        return "needs a schema with `properties`"
    odd = [name for name, field in fields.items() if not _is_field(field)]
    if odd:
        return f"has fields that are neither text, a number, a boolean nor a choice: {', '.join(odd)}"
    flaw = flaw_in(schema)
    return None if flaw is None else f"has a broken schema: {flaw}"


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
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in {"https", "http"} and bool(parts.hostname)


def _flaw_of_sampling(params: JsonObject) -> str | None:
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


_FLAWS: Final[Mapping[str, Callable[[JsonObject], str | None]]] = {
    ELICIT: _flaw_of_elicitation,
    SAMPLE: _flaw_of_sampling,
    LIST_ROOTS: lambda _: None,
}
"""Why an author's request is none."""
