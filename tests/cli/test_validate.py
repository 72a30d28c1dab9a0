"""Warnings of `validate`."""

import json
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace

from gateway.catalog.catalog import Catalog
from gateway.catalog.compile.compiler import compile_catalog
from gateway.catalog.plugins import Plugins
from gateway.cli.commands.validate import cross_check_schemas
from gateway.config.loader import load
from gateway.executors.shared_services import running_services
from gateway.json_types import JsonObject
from tests.cli.typed import Run


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


async def test_schemas_with_different_texts_are_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[object] = []
    monkeypatch.setattr(jsonschema.Draft202012Validator, "check_schema", checked.append)
    path = tmp_path / "config.yaml"
    path.write_text(
        "tools:\n"
        + "".join(
            f"  t{n}: {{description: d, input: {{a{n}: {{type: string, description: Number {n}}}}}, content: x}}\n"
            for n in range(80)
        )
    )
    assert list(cross_check_schemas(await compiled(path))) == []
    assert len(checked) <= 2


def test_blocked_literal_hosts_are_warned_about(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("""\
connections:
  private: {base_url: "http://10.1.2.3/x"}
  allowed: {base_url: "http://localhost:1/x", allow_private: [localhost]}
tools:
  direct: {description: T., http: {url: "http://127.0.0.1:8021/x"}}
  shared: {description: T., http: {connection: private, url: "/x"}}
  fine: {description: T., http: {connection: allowed, url: "/x"}}
  own: {description: T., http: {connection: private, url: "/y", allow_private: true}}
  ipv6: {description: T., http: {url: "http://[::1]/x", allow_private: ["::1"]}}
  template: {description: T., input: {host: string}, http: {url: "http://{host}/x"}}
  malformed: {description: T., http: {url: "http://[::::]/x"}}
openapi:
  document: {document: "http://127.0.0.1:9/x.json"}
  fine: {document: "http://127.0.0.1:9/x.json", connection: allowed, allow_private: true}
upstreams:
  direct: {url: "http://[::1]:8021/mcp"}
  shared: {connection: private, url: "/mcp"}
  fine: {url: "http://localhost:8021/mcp", allow_private: true}
""")
    finished = run("validate", "--json")
    found = json.loads(finished.out)
    blocked = {each["path"]: each["message"] for each in found if "which is blocked" in each["message"]}
    assert blocked == {
        "connections.private.base_url": "`10.1.2.3` is a private address, which is blocked. "
        "Allow it with `allow_private: [10.1.2.3]`",
        "tools.direct.http.url": "`127.0.0.1` is a loopback address, which is blocked. "
        "Allow it with `allow_private: [127.0.0.1]`",
        "openapi.document.document": "`127.0.0.1` is a loopback address, which is blocked. "
        "Allow it with `allow_private: [127.0.0.1]`",
        "upstreams.direct.url": '`::1` is a loopback address, which is blocked. Allow it with `allow_private: ["::1"]`',
    }
    assert finished.code == 0
