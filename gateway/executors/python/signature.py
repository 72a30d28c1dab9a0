"""Reads the signatures of plugin functions: schemas, descriptions, and the conversion of arguments.

pydantic interprets the type hints. Arguments with plain JSON types are not converted.
"""

import inspect
import re
import types
from collections.abc import Callable, Mapping
from functools import partial
from inspect import cleandoc
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema, to_jsonable_python

from gateway.config.diagnostics.near_misses import did_you_mean, nearest
from gateway.config.diagnostics.problems import Problems
from gateway.errors import ExecutionError
from gateway.executors.python.results import Untitled, result_schema
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_inputs import FILE
from gateway.language.schemas.errors import SchemaError, shown
from gateway.language.scope import Inputs
from gateway.plugin import Context, SyncContext

Function = Callable[..., Any]


class FunctionParameter(msgspec.Struct, frozen=True, kw_only=True):
    required: bool
    convert: Callable[[Json], Any] | None
    """Converts a JSON value to the type of the parameter. None if no conversion is needed."""
    make_default: Callable[[], Any] | None = None
    """Creates the default of a parameter that is declared with `= Field(…)`."""


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    function: Function
    is_async: bool
    description: str
    input_schema: JsonObject
    output_schema: JsonObject | None
    """The schema of the result. None if the return type is not an object or array with known members."""
    parameters: Mapping[str, FunctionParameter]
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
        errors: list[SchemaError] = []
        for name, parameter in self.parameters.items():
            if parameter.required and name not in arguments:
                errors.append(SchemaError(path=(name,), message="is required"))
                continue
            try:
                if name in arguments:
                    bound[name] = parameter.convert(arguments[name]) if parameter.convert else arguments[name]
                elif parameter.make_default:
                    bound[name] = parameter.make_default()
            except ValidationError as error:
                for detail in error.errors(include_url=False, include_context=False):
                    message = f"is invalid: {detail['msg']}, was {shown(detail['input'])}"
                    errors.append(SchemaError(path=(name, *detail["loc"]), message=message))
        if errors:
            raise ExecutionError("\n".join(["Invalid arguments:", *map(str, errors)]))
        if self.context_parameter is not None:
            bound[self.context_parameter] = context
        return bound

    def check(self, inputs: Inputs, problems: Problems, *, every_input: bool) -> None:
        refused = every_input and not self.takes_others
        unknown = [name for name in inputs.schemas if refused and name not in self.parameters]
        for name, parameter in self.parameters.items():
            if not parameter.required or name in inputs.always_given or (inputs.is_open and name not in inputs.schemas):
                continue
            if name in inputs.schemas:
                problems.error(f"the parameter {name} of {self.name} needs a default, because the input is optional")
            elif nearest(name, unknown) is None:  # otherwise the typo is reported below
                hint = did_you_mean(name, inputs.schemas)
                problems.error(f"the parameter {name} of {self.name} is not among the inputs{hint}")
        for name in unknown:
            problems.error(f"{self.name} has no parameter {name}{did_you_mean(name, self.parameters)}")


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
    input_schema = collected.schema(descriptions)
    if not collected.has_no_errors:
        return None
    return Signature(
        name=name,
        function=function,
        is_async=is_async,
        description=description,
        input_schema=input_schema,
        output_schema=result_schema(signature.return_annotation, name=name, problems=problems),
        parameters=collected.parameters,
        context_parameter=collected.context_parameter,
        takes_others=collected.others is not None,
    )


class _WithFiles(Untitled):
    """Generates schemas in which `bytes` is an input of `type: file`."""

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        return {"type": FILE, **({"max_size": schema["max_length"]} if "max_length" in schema else {})}


class _ParameterCollector:
    def __init__(self, *, name: str, is_async: bool, problems: Problems) -> None:
        self.has_no_errors = True
        self.context_parameter: str | None = None
        self.others: TypeAdapter[Any] | None = None
        self.parameters: dict[str, FunctionParameter] = {}
        self._name = name
        self._is_async = is_async
        self._problems = problems
        self._adapters: dict[str, TypeAdapter[Any]] = {}
        self._defaults: dict[str, Json] = {}

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
                self.others = self._adapter(parameter.name, hint)
            case _:
                self._add_argument(parameter.name, hint, parameter.default)

    def schema(self, descriptions: Mapping[str, str]) -> JsonObject:
        members, definitions = self._member_schemas()
        for name, member in members.items():
            if name in descriptions:
                # `Field(description=…)` takes precedence over the docstring.
                member.setdefault("description", descriptions[name])
            if name in self._defaults:
                member["default"] = self._defaults[name]
        required = [name for name, parameter in self.parameters.items() if parameter.required]
        return {
            "type": "object",
            **({"properties": members} if members else {}),
            **({"required": required} if required else {}),
            "additionalProperties": self.others is not None,
            **definitions,
        }

    def _member_schemas(self) -> tuple[dict[str, Any], JsonObject]:
        mode: Literal["validation"] = "validation"
        try:
            schemas, definitions = TypeAdapter.json_schemas(
                [(name, mode, adapter) for name, adapter in self._adapters.items()], schema_generator=_WithFiles
            )
        except Exception as error:  # noqa: BLE001 - Boundary: classes of a plugin can define their schema
            self._refuse(f"has parameters without a JSON Schema: {_first_line(error)}")
            return {name: {} for name in self._adapters}, {}
        return {name: dict(schemas[name, mode]) for name in self._adapters}, definitions

    def _add_context(self, name: str, context: type) -> None:
        wanted = Context if self._is_async else SyncContext
        if context is not wanted:
            kind = "an async function" if self._is_async else "a plain function"
            self._refuse(f"is {kind}, so its parameter {name} must be a {wanted.__name__}, not a {context.__name__}")
        elif self.context_parameter is not None:
            self._refuse(f"has two context parameters, {self.context_parameter} and {name}")
        self.context_parameter = name

    def _add_argument(self, name: str, hint: Any, default: Any) -> None:
        required, make_default = default is inspect.Parameter.empty, None
        if isinstance(default, FieldInfo):
            hint, required = Annotated[hint, default], default.is_required()
            # A default factory can read other fields of a model (pydantic 2.10), but a function has no such fields.
            make_default = partial(default.get_default, call_default_factory=True, validated_data={})
        adapter = self._adapter(name, hint)
        if adapter is None:
            return
        self._adapters[name] = adapter
        convert = None if is_plain(hint) else adapter.validate_python
        self.parameters[name] = FunctionParameter(required=required, convert=convert, make_default=make_default)
        if not required:
            self._add_default(name, make_default() if make_default else default)

    def _add_default(self, name: str, default: Any) -> None:
        try:
            value = to_jsonable_python(default, bytes_mode="base64")
            # A default that does not match its hint, as in `limit: int = None`, is not shown to clients.
            self._adapters[name].validate_python(value)
        except Exception:  # noqa: BLE001 - Boundary: default and validators of the plugin
            return
        self._defaults[name] = value

    def _adapter(self, name: str, hint: Any) -> TypeAdapter[Any] | None:
        try:
            return TypeAdapter(hint)
        except Exception as error:  # noqa: BLE001 - Boundary: classes of a plugin can define their schema
            self._refuse(f"has the parameter {name}, which cannot be created from JSON: {_first_line(error)}")
            return None

    def _refuse(self, reason: str) -> None:
        self._problems.error(f"{self._name} {reason}")
        self.has_no_errors = False


_IDENTICAL: Final = frozenset({str, bool, type(None), None, Any, object, dict, list})


def is_plain(hint: Any) -> bool:
    """Return whether JSON values need no conversion to the type of a hint.

    Numbers need a conversion, because JSON can contain 5.0 for an int.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is None:
        return hint in _IDENTICAL
    if origin in {dict, list, Union, types.UnionType}:
        return all(map(is_plain, inner))
    # Only literal strings need no conversion: JSON can contain 1.0 for the literal 1.
    return origin is Literal and all(isinstance(value, str) for value in inner)


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
