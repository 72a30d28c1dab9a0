"""Compiles the input schema of a tool."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import orjson

from gateway.catalog.arguments import CompiledArguments, Confinement
from gateway.catalog.compile.relayed import RelayBackend, relayed_of
from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import is_directory
from gateway.config.models.definitions import TYPE_WORDS, InputProperty, Tool
from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.files.file_inputs import Place, compile_file_inputs
from gateway.language.schemas.json_schema import Validator, compile_foreign_schema, compile_schema
from gateway.language.schemas.keywords import header_parameters, properties_of, subschemas, with_items
from gateway.language.schemas.normalization import defaults_in
from gateway.language.scope import Inputs

NO_ARGUMENTS: Final[JsonObject] = {"type": "object", "additionalProperties": False}

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_MAX_NAMED: Final = 3


def compile_arguments(
    config: Tool,
    problems: Problems,
    *,
    derived: JsonObject | None = None,
    coerce: bool = True,
    max_body: int | None = None,
) -> CompiledArguments:
    """Compile the input schema of a tool from `input` or `input_schema` or, if neither is set, from `derived`.

    `derived` is the schema of the Python function, if any. `coerce` is the default for tools that do not set it.
    `max_body` is the maximum size of a message in bytes.
    """
    if (relayed := relayed_of(config)) is not None:
        coerces = coerce if config.coerce is None else config.coerce
        return _compile_relayed(config.input_schema or {}, relayed, problems, coerce=coerces)
    schema, place = _written(config, derived or NO_ARGUMENTS, problems)
    shown, files = compile_file_inputs(schema, problems, place=place, max_body=max_body)
    validator = compile_schema(shown, problems, what="JSON Schema", place=place)
    if place is _in_long_form:
        _check_long_form(schema, problems.at("input_schema"))
    headers, refused = header_parameters(validator.schema)
    for path, message in (*refused, *_unfit_defaults(validator)):
        problems.at(*place(path)).error(message)
    return CompiledArguments(
        schema=with_items(validator.schema),
        # Reuse the validator's copy, except for an invalid schema, or for file inputs, whose keys the copy lacks.
        inputs=_inputs_of(validator.schema or schema if files is None else schema, has_files=files is not None),
        header_parameters=headers,
        validator=validator,
        has_defaults=any(defaults_in(validator.schema)),
        has_integers=_mentions_integers(validator.schema),
        confinements=_confinements(config.input or {}, problems.at("input")),
        coerce=coerce if config.coerce is None else config.coerce,
        files=files,
    )


def _compile_relayed(
    schema: JsonObject, relayed: RelayBackend, problems: Problems, *, coerce: bool
) -> CompiledArguments:
    """Compile the arguments of an upstream's tool. The schema is not changed. The upstream fills in the defaults."""
    validator, unchecked = compile_foreign_schema(schema if relayed.validates else {})
    if unchecked:
        first = ", ".join(str(each) for each in unchecked[:_MAX_NAMED])
        more = f", and {len(unchecked) - _MAX_NAMED} more" if len(unchecked) > _MAX_NAMED else ""
        problems.warning(f"the gateway ignores unsupported parts of the input schema: {first}{more}")
    headers, refused = header_parameters(schema)
    # MCP 2026-07-28 server/tools, "x-mcp-header": clients must not offer a tool with an invalid header.
    for path, message in refused:
        problems.at(*_in_long_form(path)).error(message)
    return CompiledArguments(
        schema=schema,
        inputs=_inputs_of(schema, has_files=False),
        header_parameters=headers,
        validator=validator,
        has_defaults=False,
        has_integers=_mentions_integers(validator.schema),
        confinements={},
        coerce=coerce,
        validates=relayed.validates,
    )


def _written(config: Tool, derived: JsonObject, problems: Problems) -> tuple[JsonObject, Place]:
    if config.input is not None:
        return _compose(config.input, problems.at("input")), _in_short_form
    if config.input_schema is not None:
        return config.input_schema, _in_long_form
    return derived, lambda _: ("python", "call")


def _in_short_form(path: DocumentPath) -> DocumentPath:
    return ("input", *path[1:]) if path[:1] == ("properties",) else ("input",)


def _in_long_form(path: DocumentPath) -> DocumentPath:
    return ("input_schema", *path)


def _compose(written: Mapping[str, InputProperty], problems: Problems) -> JsonObject:
    properties: dict[str, Json] = {}
    required = []
    for name, value in written.items():
        if not _NAME.fullmatch(name):
            problems.at(name).error(
                "invalid input name: use letters, digits, _ and -, and do not start with a digit or -"
            )
        properties[name], is_required = _property(value, problems.at(name))
        if is_required:
            required.append(name)
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {key: value for key, value in schema.items() if value or key in {"type", "additionalProperties"}}


def _property(written: InputProperty, problems: Problems) -> tuple[JsonObject, bool]:
    """Return the JSON Schema of one input, and whether the input is required."""
    if isinstance(written, str):
        word = written.removesuffix("?")
        if word not in TYPE_WORDS:
            hint = did_you_mean(word, TYPE_WORDS) or f"; use one of {', '.join(TYPE_WORDS)}, optionally followed by `?`"
            problems.error(f"unknown type {str(written)!r}{hint}")
            return {}, not written.endswith("?")
        return {"type": word}, not written.endswith("?")
    required = written.get("required")
    ours = {"within", "required"} if isinstance(required, bool) else {"within"}
    schema = {key: value for key, value in written.items() if key not in ours}
    _refuse_within(schema, problems)
    return schema, required if isinstance(required, bool) else "default" not in schema


def _check_long_form(schema: JsonObject, problems: Problems) -> None:
    if schema.get("type") != "object" and problems.at("type").has_no_errors:
        problems.error("the root of an input schema must have `type: object`")
    _refuse_within(schema, problems)


def _refuse_within(schema: JsonObject, problems: Problems) -> None:
    if "within" in schema:
        problems.at("within").error("`within` is allowed only at the top level of an entry in `input`")
    for path, member in subschemas(schema):
        _refuse_within(member, problems.at(*path))


def _mentions_integers(schema: JsonObject) -> bool:
    return b'"integer"' in orjson.dumps(schema)


def _unfit_defaults(validator: Validator) -> Iterator[tuple[DocumentPath, str]]:
    for path, default in defaults_in(validator.schema):
        argument = default
        for name in reversed(path):
            argument = {name: argument}
        errors = validator.errors(argument)
        if mismatch := next((error for error in errors if error.path[: len(path)] == path), None):
            steps = [step for name in path for step in ("properties", name)]
            yield (*steps, "default"), f"the default is invalid: {mismatch.message}"


def _inputs_of(schema: JsonObject, *, has_files: bool) -> Inputs:
    schemas = properties_of(schema)
    if not all(isinstance(member, dict) for member in schemas.values()):
        schemas = {name: member if isinstance(member, dict) else {} for name, member in schemas.items()}
    required = schema.get("required")
    return Inputs(
        schemas=schemas,
        always_given=frozenset(
            name
            for name, member in schemas.items()
            # An invalid `required` has already been reported.
            if "default" in member or (name in required if isinstance(required, list) else required is not None)
        ),
        is_open=schema.get("additionalProperties") is not False or bool(schema.get("patternProperties")),
        has_files=has_files,
    )


def _confinements(written: Mapping[str, InputProperty], problems: Problems) -> dict[str, Confinement]:
    return {
        name: confinement
        for name, value in written.items()
        if isinstance(value, dict) and "within" in value
        if (confinement := _confinement(value, problems.at(name)))
    }


def _confinement(written: Mapping[str, Json], problems: Problems) -> Confinement | None:
    directory, is_otherwise_right = written["within"], problems.has_no_errors
    problems = problems.at("within")
    if not isinstance(directory, str) or not directory:
        problems.error("expected a directory")
        return None
    if is_otherwise_right and not _holds_paths(written):
        problems.error("`within` requires `type: string`, or an array of strings")
    root = Path(problems.directory, directory).absolute()
    if not is_directory(root):
        problems.warning(f"directory {root} does not exist")
    return Confinement(root, os.path.realpath(root))


def _holds_paths(schema: JsonObject) -> bool:
    match schema.get("type"), schema.get("items"):
        case "string" | ["string", "null"] | ["null", "string"], _:
            return True
        case "array", {"type": "string"}:
            return True
        case _:
            return False
