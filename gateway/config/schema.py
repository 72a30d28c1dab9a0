"""Generates the JSON Schema of the configuration, for editors and the reference.

The schema accepts every file that the loader accepts. Some checks, such as template syntax, exist only in the loader.
"""

import ast
import inspect
from datetime import timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from gateway.config.models.base import INTERPOLATION_SCHEMA, Model
from gateway.config.models.document import Document
from gateway.config.models.quantities import duration_text
from gateway.json_types import Json

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def document_schema() -> dict[str, Json]:
    """Return the schema of a main file. Included files use a subset."""
    schema: dict[str, Json] = Document.model_json_schema(schema_generator=_Generator)
    _tidy(schema)
    for name, section in schema["properties"].items():
        schema["properties"][name] = _or_empty(section)
    return {
        "$schema": _DIALECT,
        "title": "mcp-gateway configuration",
        "description": "One YAML file that becomes an MCP server.",
        **{key: value for key, value in schema.items() if key not in {"title", "description"}},
        "patternProperties": {"^x-": {"description": "Ignored. Use it to define anchors."}},
    }


class _Generator(GenerateJsonSchema):
    """Adds docstrings as descriptions, and accepts interpolation instead of numbers, booleans and fixed words."""

    def generate_inner(self, schema: Json) -> JsonSchemaValue:
        """Build a nested model before generating its schema, because models are built lazily (see `Model`)."""
        model: type[Model] | None = schema.get("metadata", {}).get("model")
        if model is None:
            return super().generate_inner(schema)
        model.model_rebuild()
        return super().generate_inner(model.__pydantic_core_schema__)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        written = super().model_schema(schema)
        said = _attribute_docstrings(schema["cls"])
        for name, field in schema["cls"].model_fields.items():
            if name in said:
                written["properties"][field.alias or name]["description"] = said[name]
        return written

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        return _or_interpolation(super().int_schema(schema))

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return _or_interpolation(super().float_schema(schema))

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        return _or_interpolation(super().bool_schema(schema))

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        return _or_interpolation(super().literal_schema(schema))

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return the schema with its default as written in files: durations have a unit, sections have no default."""
        default = schema.get("default")
        if isinstance(default, Model):
            return self.generate_inner(schema["schema"])
        if isinstance(default, timedelta):
            return {**self.generate_inner(schema["schema"]), "default": duration_text(default)}
        return super().default_schema(schema)


def _attribute_docstrings(model: type[Model]) -> dict[str, str]:
    """Return the docstrings of a model's fields, including inherited ones.

    Pydantic's `use_attribute_docstrings` would parse all models at each start.
    """
    found = {}
    # Visit base classes first, so that the docstrings of redeclared fields take precedence.
    for each in reversed(model.__mro__):
        definition = _classes_in(inspect.getfile(each))[each.__name__] if issubclass(each, Model) else None
        for statement, following in pairwise([] if definition is None else definition.body):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = inspect.cleandoc(text)
    return found


@cache  # `inspect.getsource` would parse the file for each class
def _classes_in(file: str) -> dict[str, ast.ClassDef]:
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _or_interpolation(schema: JsonSchemaValue) -> JsonSchemaValue:
    return {"anyOf": [schema, INTERPOLATION_SCHEMA]}


def _or_empty(section: JsonSchemaValue) -> JsonSchemaValue:
    about: JsonSchemaValue = {
        key: section.pop(key) for key in ("description", "deprecated", "default") if key in section
    }
    alternatives = section.get("anyOf", [section])
    null = {"type": "null"}
    return {**about, "anyOf": alternatives if null in alternatives else [*alternatives, null]}


def _tidy(schema: Json) -> None:
    """Remove the titles and empty defaults that pydantic adds."""
    if isinstance(schema, list):
        for item in schema:
            _tidy(item)
    elif isinstance(schema, dict):
        # Under `properties`, `title` can be a key of the configuration.
        if isinstance(schema.get("title"), str):
            del schema["title"]
        if schema.get("default", ...) in (None, [], {}):
            del schema["default"]
        for value in schema.values():
            _tidy(value)
