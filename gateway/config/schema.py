"""Generates the JSON Schema of the configuration for editors, and from it the reference in Markdown.

The schema accepts every file that the loader accepts. Some checks, such as template syntax, exist only in the loader.
"""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import orjson
import yaml
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from gateway.config.models.base import INTERPOLATION_SCHEMA, Model
from gateway.config.models.document import Document
from gateway.config.models.quantities import DURATION_SCHEMA, RATE_SCHEMA, SIZE_SCHEMA, duration_text, size_text
from gateway.json_types import Json, JsonObject

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
    """Adds docstrings as descriptions, and allows `${…}` instead of a number, a boolean or an enum value."""

    def generate_inner(self, schema: Json) -> JsonSchemaValue:
        """Build a nested model before generating its schema, because models are built lazily (see `Model`)."""
        model: type[Model] | None = schema.get("metadata", {}).get("model")
        if model is not None:
            model.model_rebuild()
            return super().generate_inner(model.__pydantic_core_schema__)
        generated = super().generate_inner(schema)
        is_fixed = schema["type"] in {"int", "float", "bool", "literal"}
        return {"anyOf": [generated, INTERPOLATION_SCHEMA]} if is_fixed else generated

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        written = super().model_schema(schema)
        said = _attribute_docstrings(schema["cls"])
        for name, field in schema["cls"].model_fields.items():
            if name in said:
                written["properties"][field.alias or name]["description"] = said[name]
        return written

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


_SECTION_OF: Final = "#/$defs/"
_FILE: Final = "Document"
_SPELLED: Final = {"Api": "API", "Http": "HTTP", "OAuth": "OAuth", "OpenApi": "OpenAPI", "Sql": "SQL", "Tls": "TLS"}
_QUANTITIES: Final[Sequence[tuple[str, Sequence[JsonObject]]]] = (
    ("duration", DURATION_SCHEMA["anyOf"][:2]),
    ("size", SIZE_SCHEMA["anyOf"][:2]),
    ("rate", [RATE_SCHEMA]),
)
"""Type names for quantities in the reference, and the JSON Schemas of the notations of each type."""
_NULL: Final = {"type": "null"}
_WORDS: Final = {"array": "list", "object": "map"}


def reference_examples() -> dict[str, str]:
    """Return an example for each section of the reference, by the name of the model."""
    text = Path(__file__).with_name("reference_examples.yaml").read_text(encoding="utf-8")
    examples: dict[str, str] = yaml.safe_load(text)
    return examples


def keys_reference() -> str:
    """Return the reference in Markdown: a table of contents, then a section for each model in order of first use."""
    schema = document_schema()
    groups = _sections_by_key(schema)
    examples = reference_examples()
    users = _users(schema)
    contents = [f"- `{key}`: {', '.join(map(_link, names))}" for key, names in groups.items() if names]
    templates = "- Templates: [Filters](#filters-in-templates), [Tests](#tests-in-templates)"
    blocks = [
        "## Contents\n",
        "\n".join(["- [The file](#the-file)", *contents, templates, ""]),
        "## The file\n",
        _table(schema["properties"], required=()),
        _example(examples.get(_FILE)),
    ]
    for name in (name for names in groups.values() for name in names):
        definition = schema["$defs"][name]
        blocks += [
            f"## {_title(name)}\n",
            f"{definition['description']}\n" if definition.get("description") else "",
            f"{users[name]}\n",
            _table(definition.get("properties", {}), definition.get("required", ())),
            _example(examples.get(name)),
        ]
    return "\n".join(block for block in blocks if block)


def _example(text: str | None) -> str:
    return f"Example:\n\n```yaml\n{text}```\n" if text else ""


def _title(name: str) -> str:
    first, *others = (_SPELLED.get(word, word) for word in re.findall("OAuth|OpenApi|[A-Z][a-z]+", name))
    return " ".join([first, *(word if word.isupper() else word.lower() for word in others)])


def _link(name: str) -> str:
    title = _title(name)
    return f"[{title}](#{title.lower().replace(' ', '-')})"


def _sections_by_key(schema: JsonObject) -> dict[str, list[str]]:
    """Map each top-level key to the schema definitions that it references. List each definition only once."""
    seen: set[str] = set()
    sections: dict[str, list[str]] = {}
    for key, field in schema["properties"].items():
        found, waiting = sections.setdefault(key, []), list(_references(field))
        while waiting:
            if (name := waiting.pop(0)) not in seen:
                seen.add(name)
                found.append(name)
                waiting += _references(schema["$defs"][name])
    return sections


def _references(value: Json) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(target := value.get("$ref"), str):
            yield target.removeprefix(_SECTION_OF)
        for member in value.values():
            yield from _references(member)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _users(schema: JsonObject) -> dict[str, str]:
    """Return a `Used in …` sentence with links for each schema definition."""
    owners = {"": schema, **schema["$defs"]}
    keys: dict[str, dict[str, list[str]]] = {}
    for owner, definition in owners.items():
        for key, field in definition.get("properties", {}).items():
            for name in _references(field):
                keys.setdefault(name, {}).setdefault(key, []).append(_link(owner) if owner else "[the file](#the-file)")
    sentences = {}
    for name, used in keys.items():
        places = (f"`{key}` of {_listed(links, conjunction='and')}" for key, links in used.items())
        sentences[name] = f"Used in {'; '.join(places)}."
    return sentences


def _listed(words: Iterable[str], conjunction: str = "or") -> str:
    *others, last = dict.fromkeys(words)
    return f"{', '.join(others)} {conjunction} {last}" if others else last


def _table(properties: JsonObject, required: Json) -> str:
    rows = [
        (f"`{name}`", _type_of(field), _default_of(name, field, required), field.get("description", ""))
        for name, field in properties.items()
    ]
    return markdown_table(("key", "value", "default", "meaning"), rows)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), ""])


def _default_of(name: str, field: JsonObject, required: Json) -> str:
    if name in required:
        return "*required*"
    if "default" not in field:
        return ""
    default = field["default"]
    if _type_of(field) == "size":
        default = size_text(default)
    return f"`{default}`" if isinstance(default, str) and default else f"`{orjson.dumps(default).decode()}`"


def _type_of(field: JsonObject, *, plural: str = "") -> str:
    """Return the type of a field in plain words. The ending `plural` is appended to nouns."""
    if "$ref" in field:
        return _link(field["$ref"].removeprefix(_SECTION_OF))
    alternatives = field.get("anyOf", field.get("oneOf", [field]))
    words = []
    for word, quantity in _QUANTITIES:
        forms = [form for form in alternatives if any(each.items() <= form.items() for each in quantity)]
        if forms:
            words.append(word + plural)
            alternatives = [form for form in alternatives if form not in forms]
    if alternatives != [field]:
        others = (form for form in alternatives if form not in (INTERPOLATION_SCHEMA, _NULL))
        return _listed([*words, *(_type_of(form, plural=plural) for form in others)])
    if "enum" in field or "const" in field:
        values = field.get("enum", [field.get("const")])
        return _listed(f"`{value if isinstance(value, str) else orjson.dumps(value).decode()}`" for value in values)
    return _plain_type_of(field, plural)


def _plain_type_of(field: JsonObject, plural: str) -> str:
    kind = field.get("type")
    if kind is None:
        return "any value"
    if isinstance(kind, list):
        return _listed(_WORDS.get(word, str(word)) + plural for word in kind if word != "null")
    if kind == "array":
        return f"list{plural} of {_type_of(field['items'], plural='s')}" if field.get("items") else f"list{plural}"
    members = field.get("additionalProperties")
    if kind == "object" and isinstance(members, Mapping) and members:
        return f"map{plural} of {_type_of(members, plural='s')}"
    return _WORDS.get(kind, str(kind)) + plural
