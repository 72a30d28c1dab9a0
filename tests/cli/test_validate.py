"""Warnings for schemas that a second validator rejects."""

from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace

from gateway.catalog.catalog import Catalog
from gateway.catalog.compile.compiler import compile_catalog
from gateway.catalog.plugins.plugins import Plugins
from gateway.cli.commands.validate import cross_check_schemas
from gateway.config.loader import load
from gateway.executors.shared_services import running_services
from gateway.json_types import JsonObject
from tests.effort import cost


async def compiled(path: Path) -> Catalog:
    async with running_services() as services:
        return compile_catalog(load(path), services=services, plugins=Plugins(), generation=1)


async def test_schemas_accepted_by_both_validators_have_no_warning(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("tools: {a: {description: A., input: {n: integer?}, content: 'n is {{ n }}'}}")
    assert list(cross_check_schemas(await compiled(path))) == []


async def test_schema_rejected_by_jsonschema_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("tools: {a: {description: A., content: x}}")
    catalog = await compiled(path)
    tool = catalog.tools["a"]
    odd = replace(tool, definition={**tool.definition, "outputSchema": {"type": "objekt"}})
    [problem] = cross_check_schemas(replace(catalog, tools={"a": odd}))
    assert (problem.path, problem.severity) == ("tools.a.output.schema", "warning")
    assert "'objekt' is not valid" in problem.message


MISTAKES: list[JsonObject] = [
    {"type": "objekt"},
    {"type": "object", "properties": {"a": {"type": "strng", "description": "A."}}},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"minLength": -1}}},
    {"type": "object", "properties": {"title": "not a schema"}},
    {"type": "object", "properties": {"a": {"title": 5}}},
    {"type": "object", "properties": {"a": {"properties": {"b": {"required": "b"}}}}},
    {"type": "object", "properties": 5},
    {"type": "object", "required": ["a", "a"]},
    {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"exclusiveMinimum": True}}},
]


@pytest.mark.parametrize("schema", MISTAKES)
async def test_invalid_schema_is_found_among_valid_ones(tmp_path: Path, schema: JsonObject) -> None:
    with pytest.raises(jsonschema.SchemaError) as caught:
        jsonschema.validators.validator_for(schema).check_schema(dict(schema))
    path = tmp_path / "config.yaml"
    path.write_text("tools: {a: {description: A., input: {a: string, b: string?}, content: '{{ a }} {{ b }}'}}")
    catalog = await compiled(path)
    tool = catalog.tools["a"]
    odd = replace(tool, name="odd", definition={**tool.definition, "inputSchema": schema})
    [problem] = cross_check_schemas(replace(catalog, tools={"a": tool, "odd": odd, "b": replace(tool, name="b")}))
    assert problem.path == "tools.odd.input"
    assert problem.message.endswith(f": {caught.value.message}")


async def test_schemas_with_different_texts_are_checked_once(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "tools:\n"
        + "".join(
            f"  t{n}: {{description: d, input: {{a{n}: {{type: string, description: Number {n}}}}}, content: x}}\n"
            for n in range(80)
        )
    )
    catalog = await compiled(path)
    first = replace(catalog, tools={"t0": catalog.tools["t0"]})
    list(cross_check_schemas(first))  # what is done once in a process is done now
    assert cost(lambda: list(cross_check_schemas(catalog))) < 10 * cost(lambda: list(cross_check_schemas(first)))
