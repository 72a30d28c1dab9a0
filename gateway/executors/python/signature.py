"""Reads the signatures of plugin functions: schemas, descriptions, and the conversion of arguments.

pydantic interprets the type hints.
"""

import inspect
import re
import types
from collections.abc import Callable, Mapping
from functools import partial
from inspect import cleandoc
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import ErrorDetails, core_schema

from gateway.config.diagnostics.near_misses import did_you_mean, nearest
from gateway.config.diagnostics.problems import Problems
from gateway.errors import ExecutionError
from gateway.executors.python.results import Untitled, result_schema
from gateway.json_types import JsonObject
from gateway.language.files.file_inputs import FILE
from gateway.language.schemas.errors import SchemaError, shown
from gateway.language.scope import Inputs
from gateway.plugin import Context, SyncContext

Function = Callable[..., Any]


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    function: Function
    is_async: bool
    description: str
    input_schema: JsonObject
    output_schema: JsonObject | None
    """The schema of the result. None if the return type is not an object or array with known members."""
    arguments: type[BaseModel]
    """A model of the arguments, with the names of the parameters as aliases of the fields."""
    parameters: Mapping[str, str]
    """The fields of `arguments` by the names of the parameters."""
    filled: frozenset[str]
    """The names of the parameters without a default, or whose default is declared with `Field(…)`."""
    context_parameter: str | None
    takes_others: bool

    def bind(self, arguments: JsonObject, context: Context | SyncContext) -> dict[str, Any]:
        """Convert arguments to keyword arguments. Without `**kwargs`, arguments that have no parameter are dropped.

        Raises:
            ExecutionError: an argument is missing or does not match its type hint.
        """
        bound: dict[str, Any] = {}
        if self.takes_others:
            bound = {name: value for name, value in arguments.items() if name not in self.parameters}
        try:
            found = self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=False)
            raise ExecutionError("\n".join(["Invalid arguments:", *map(_described, details)])) from error
        for name, field in self.parameters.items():
            # For other absent arguments, the function has a default.
            if name in arguments or name in self.filled:
                bound[name] = getattr(found, field)
        if self.context_parameter is not None:
            bound[self.context_parameter] = context
        return bound

    def check(self, inputs: Inputs, problems: Problems, *, every_input: bool) -> None:
        refused = every_input and not self.takes_others
        unknown = [name for name in inputs.schemas if refused and name not in self.parameters]
        for name in self.input_schema.get("required", ()):
            if name in inputs.always_given or (inputs.is_open and name not in inputs.schemas):
                continue
            if name in inputs.schemas:
                problems.error(f"the parameter {name} of {self.name} needs a default, because the input is optional")
            elif nearest(name, unknown) is None:  # otherwise the typo is reported below
                hint = did_you_mean(name, inputs.schemas)
                problems.error(f"the parameter {name} of {self.name} is not among the inputs{hint}")
        for name in unknown:
            problems.error(f"{self.name} has no parameter {name}{did_you_mean(name, self.parameters)}")


def _described(detail: ErrorDetails) -> str:
    if detail["type"] == "missing":
        return str(SchemaError(path=detail["loc"], message="is required"))
    message = f"is invalid: {detail['msg']}, was {shown(detail['input'])}"
    return str(SchemaError(path=detail["loc"], message=message))


def read_signature(function: Function, *, name: str, problems: Problems) -> Signature | None:
    """Read the signature of a function. Return None and report the reason if JSON arguments cannot be passed."""
    try:
        # `eval_str` resolves annotations that are strings (`from __future__ import annotations`, PEP 563).
        signature = inspect.signature(function, eval_str=True)
    except Exception as error:  # noqa: BLE001 - Boundary: annotations are code of the plugin
        problems.error(f"cannot read the signature of {name}: {type(error).__name__}: {error}")
        return None
    unwrapped = function
    while isinstance(unwrapped, partial):
        unwrapped = unwrapped.func
    is_async = inspect.iscoroutinefunction(unwrapped) or inspect.iscoroutinefunction(type(unwrapped).__call__)
    collected = _ParameterCollector(name=name, is_async=is_async, problems=problems)
    for parameter in signature.parameters.values():
        collected.add(parameter)
    if inspect.isgeneratorfunction(unwrapped) or inspect.isasyncgenfunction(unwrapped):
        problems.error(f"{name} is a generator function. Return a list instead")
        collected.has_no_errors = False
    description, descriptions = read_docstring(inspect.getdoc(unwrapped) or "")
    arguments, input_schema = collected.finished(descriptions)
    if not collected.has_no_errors:
        return None
    return Signature(
        name=name,
        function=function,
        is_async=is_async,
        description=description,
        input_schema=input_schema,
        output_schema=result_schema(signature.return_annotation, name=name, problems=problems),
        arguments=arguments,
        parameters=collected.parameters,
        filled=frozenset(collected.filled),
        context_parameter=collected.context_parameter,
        takes_others=collected.takes_others,
    )


class _WithFiles(Untitled):
    """Generates schemas in which `bytes` is an input of `type: file`. Defaults without a JSON form are omitted."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {  # noqa: RUF012 - pydantic's attribute
        "skipped-choice",
        "non-serializable-default",
    }

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        return {"type": FILE, **({"max_size": schema["max_length"]} if "max_length" in schema else {})}


class _ParameterCollector:
    def __init__(self, *, name: str, is_async: bool, problems: Problems) -> None:
        self.has_no_errors = True
        self.context_parameter: str | None = None
        self.takes_others = False
        self.parameters: dict[str, str] = {}
        self.filled: set[str] = set()
        self._name = name
        self._is_async = is_async
        self._problems = problems
        self._fields: dict[str, Any] = {}

    def add(self, parameter: inspect.Parameter) -> None:
        hint = Any if parameter.annotation is inspect.Parameter.empty else parameter.annotation
        if (context := _context_class(hint)) is not None:
            self._add_context(parameter.name, context)
            return
        match parameter.kind:
            case inspect.Parameter.POSITIONAL_ONLY:
                self._refuse(f"has the positional-only parameter {parameter.name}, but arguments are passed by name")
            case inspect.Parameter.VAR_POSITIONAL:
                self._refuse(f"has *{parameter.name}, but arguments are passed by name")
            case inspect.Parameter.VAR_KEYWORD:
                self.takes_others = True
            case _:
                self._add_argument(parameter.name, hint, parameter.default)

    def finished(self, descriptions: Mapping[str, str]) -> tuple[type[BaseModel], JsonObject]:
        """Return the model and the schema of the arguments."""
        try:
            model: type[BaseModel] = create_model("Arguments", **self._fields)
            schema = model.model_json_schema(schema_generator=_WithFiles)
        except Exception as error:  # noqa: BLE001 - Boundary: classes of a plugin can define their schema
            self._refuse(f"has parameters that cannot be created from JSON: {_first_line(error)}")
            return BaseModel, {}
        members = schema["properties"]
        for name in members.keys() & descriptions.keys():
            # `Field(description=…)` takes precedence over the docstring.
            members[name].setdefault("description", descriptions[name])
        return model, {
            "type": "object",
            **({"properties": members} if members else {}),
            **({"required": schema["required"]} if "required" in schema else {}),
            "additionalProperties": self.takes_others,
            **({"$defs": schema["$defs"]} if "$defs" in schema else {}),
        }

    def _add_context(self, name: str, context: type) -> None:
        wanted = Context if self._is_async else SyncContext
        if context is not wanted:
            kind = "an async function" if self._is_async else "a plain function"
            self._refuse(f"is {kind}, so its parameter {name} must be a {wanted.__name__}, not a {context.__name__}")
        elif self.context_parameter is not None:
            self._refuse(f"has two context parameters, {self.context_parameter} and {name}")
        self.context_parameter = name

    def _add_argument(self, name: str, hint: Any, default: Any) -> None:
        # Parameters can have names that a field cannot have, such as `_x` or `model_config`.
        field = self.parameters[name] = f"p{len(self.parameters)}"
        if isinstance(default, FieldInfo):
            self._fields[field] = Annotated[hint, default, Field(alias=name)]
            self.filled.add(name)
        elif default is inspect.Parameter.empty:  # or `Annotated[…, Field(default=…)]`
            self._fields[field] = Annotated[hint, Field(alias=name)]
            self.filled.add(name)
        else:
            self._fields[field] = Annotated[hint, Field(alias=name)], _checked_default(hint, default)

    def _refuse(self, reason: str) -> None:
        self._problems.error(f"{self._name} {reason}")
        self.has_no_errors = False


def _checked_default(hint: Any, default: Any) -> Any:
    """Return the default of a field. A default that does not match its hint is not shown to clients."""
    try:
        TypeAdapter(hint).validate_python(default)
    except Exception:  # noqa: BLE001 - Boundary: default and validators of the plugin
        # As in `limit: int = None`. The schema does not contain the default of a factory.
        return Field(default_factory=lambda: default)
    return default


def _context_class(hint: Any) -> type | None:
    """Return the context class in a hint such as `Context` or `Annotated[Context, …] | None`, or None."""
    if hint is Context or hint is SyncContext:
        return hint
    if get_origin(hint) in {Annotated, Union, types.UnionType}:
        return next((found for inner in get_args(hint) if (found := _context_class(inner))), None)
    return None


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


_SECTION: Final = re.compile(r"(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Attributes|References):\s*")
_ARGUMENTS: Final = frozenset({"Args", "Arguments", "Parameters"})
_ARGUMENT: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the text before the first section, and the descriptions of the parameters."""
    summary: list[str] = []
    arguments: list[str] = []
    into = summary
    for line in cleandoc(text).splitlines():
        if section := _SECTION.fullmatch(line):
            into = arguments if section[1] in _ARGUMENTS else []
        else:
            into.append(line)
    return "\n".join(summary).strip(), _parameters(arguments)


def _parameters(lines: list[str]) -> dict[str, str]:
    """Parse `name (type): text` with indented continuation lines."""
    found: dict[str, str] = {}
    name = ""
    # Add an empty first line, because cleandoc ignores the indentation of the first line.
    for line in cleandoc("\n" + "\n".join(lines)).splitlines():
        if not line.startswith(" ") and (match := _ARGUMENT.fullmatch(line.strip())):
            name = match[1]
            found[name] = match[2]
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return {name: text for name, text in found.items() if text}
