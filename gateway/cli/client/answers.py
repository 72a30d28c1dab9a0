"""Answers the elicitation requests of a call (MCP 2026-07-28 client/elicitation).

`--yes` and `--answer` take precedence. On a terminal, the command prompts for the values that these flags do not set.
"""

import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import orjson

from gateway import exact_json
from gateway.cli.console import Console, say
from gateway.cli.parser import Parser
from gateway.cli.user_input import arguments_of, input_line
from gateway.errors import ConfigError, ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.language.schemas.json_schema import validation_errors
from gateway.wire import meta

_DECLINED: Final = {"action": "decline"}
_BOOLEANS: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_HINT: Final = "Pass --yes to confirm, or --answer field=value to fill in a form"


def add_answers(parser: Parser) -> None:
    parser.add_argument("--yes", action="store_true", help="confirm, and accept forms with their defaults")
    parser.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="value of a form field, or FIELD:=JSON; can be repeated",
    )


class Answers:
    def __init__(self, options: Namespace, hints: Console) -> None:
        self._given: Final = arguments_of(options.answer)
        self._accepts: Final[bool] = options.yes
        self.hints: Final = hints
        self._has_user: Final = sys.stdin.isatty() and hints.is_terminal
        self.was_declined = False

    @property
    def capabilities(self) -> JsonObject:
        """The client capabilities of the call. `elicitation` is included only if requests can be answered."""
        can_answer = self._has_user or self._accepts or self._given
        return {"elicitation": {"form": {}, "url": {}}} if can_answer else {}

    def explained(self, error: RpcError) -> RpcError:
        required = error.data.get("requiredCapabilities") if isinstance(error.data, Mapping) else None
        if error.code != ErrorCode.MISSING_CLIENT_CAPABILITY or "elicitation" not in (required or {}):
            return error
        return RpcError(error.code, f"{error.message}. {_HINT}", error.data)

    def answer_all(self, requests: Mapping[str, JsonObject]) -> JsonObject:
        """Return a response for each input request, by key. Raise RpcError if a request cannot be answered."""
        return {key: self._answer(request["method"], request.get("params", {})) for key, request in requests.items()}

    def _answer(self, method: str, params: JsonObject) -> JsonObject:
        if method != "elicitation/create":
            raise _not_answerable(f"The call requests {method}, which this command does not support")
        self.hints.foreign(str(params.get("message", "")))
        fields: JsonObject = params.get("requestedSchema", {}).get("properties", {})
        if params.get("mode") == "url":
            self.hints.foreign(str(params["url"]))
            accepted = self._agrees("Did you complete the page?")
            answer: JsonObject = {"action": "accept"} if accepted else _DECLINED
        elif not fields:
            answer = {"action": "accept", "content": {}} if self._agrees("Confirm?") else _DECLINED
        else:
            answer = self._form(fields, required=params["requestedSchema"].get("required", []))
        self.was_declined |= answer is _DECLINED
        return answer

    def _agrees(self, question: str) -> bool:
        if self._accepts:
            return True
        if not self._has_user:
            raise _not_answerable(f"The call asks for a confirmation. {_HINT}")
        self.hints.prompt(f"{question} [y/N] ")
        return _BOOLEANS.get(input_line().strip().lower(), False)

    def _form(self, fields: JsonObject, *, required: Sequence[str]) -> JsonObject:
        content: dict[str, Json] = {}
        for name, schema in fields.items():
            if name in self._given:
                content[name] = _checked(name, self._given[name], schema)
            elif self._has_user and not self._accepts:
                self.hints.foreign(_description(schema, is_required=name in required))
                if (answered := self._prompt(name, schema, is_required=name in required)) is None:
                    return _DECLINED
                content |= answered
            elif "default" in schema:
                content[name] = schema["default"]
            elif name in required:
                raise _not_answerable(f"The call asks for `{name}`. Pass --answer {name}=VALUE")
        return {"action": "accept", "content": content}

    def _prompt(self, name: str, schema: JsonObject, *, is_required: bool) -> dict[str, Json] | None:
        """Prompt for a field until the value is valid. Return None if the user declines with Ctrl-D."""
        while True:
            self.hints.prompt(f"{name}: ")
            line = input_line()
            if not line:
                self.hints.line()
                return None
            text = line.rstrip("\r\n")
            if not text and "default" in schema:
                return {name: schema["default"]}
            if not text and not is_required:
                return {}
            value = _parsed(text, schema)
            if not (errors := validation_errors(schema, value)) and (text or not is_required):
                return {name: value}
            self.hints.foreign("; ".join(map(str, errors)) or "A value is required")


def _not_answerable(reason: str) -> RpcError:
    return RpcError(ErrorCode.INVALID_REQUEST, reason)


def with_capabilities(params: JsonObject, capabilities: JsonObject) -> JsonObject:
    return {**params, meta.META: {**params.get(meta.META, {}), meta.META_CLIENT_CAPABILITIES: capabilities}}


def _checked(name: str, given: Json, schema: JsonObject) -> Json:
    value = _parsed(given, schema) if isinstance(given, str) else given
    if errors := validation_errors(schema, value):
        raise ConfigError.at(f"--answer {name}", "; ".join(map(str, errors)))
    return value


def _parsed(text: str, schema: JsonObject) -> Json:
    match schema.get("type"):
        case "boolean":
            return _BOOLEANS.get(text.strip().lower(), text)
        case "integer" | "number":
            return _json(text)
        case "array":
            return _json(text) if text.lstrip().startswith("[") else [part.strip() for part in text.split(",") if part]
        case _:
            return text


def _json(text: str) -> Json:
    try:
        return exact_json.loads(text)
    except orjson.JSONDecodeError:
        return text


def _description(schema: JsonObject, *, is_required: bool) -> str:
    about = schema.get("description") or schema.get("title") or schema.get("type", "value")
    facts = [f"one of {', '.join(choices)}"] if (choices := _choices(schema)) else []
    facts += [f"default: {say(schema['default'])}"] if "default" in schema else [] if is_required else ["optional"]
    return f"{about} ({'; '.join(facts)})" if facts else str(about)


def _choices(schema: JsonObject) -> list[str]:
    items = schema.get("items") or schema
    titled: Iterable[JsonObject] = items.get("oneOf") or items.get("anyOf") or ()
    return [str(value) for value in items.get("enum", ())] + [_titled(each) for each in titled]


def _titled(choice: JsonObject) -> str:
    value, title = choice["const"], choice.get("title")
    return str(value) if title in {None, value} else f"{value} ({title})"
