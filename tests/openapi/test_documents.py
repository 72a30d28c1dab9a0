"""Schemas, responses, servers, credentials and references of documents, including hostile ones."""

import os
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.errors import ConfigError
from gateway.executors.shared_services import Services
from gateway.json_types import Json
from gateway.openapi.document import MAX_BYTES, DocumentError, Node, References, read
from gateway.openapi.schemas import Schemas
from tests.openapi.shop_documents import compiled, config_of, document, inputs_of, offer, operation

TEXT: Final = {"type": "string"}


def schema_of(tmp_path: Path, schema: Json, *, openapi: str = "3.0.3", **components: Json) -> Any:
    """The input for a query parameter with this schema."""
    parameter = {"name": "c", "in": "query", "required": True, "schema": schema}
    given = document({"/x": {"get": operation(parameters=[parameter])}}, openapi=openapi)
    [made] = offer({**given, "components": {"schemas": components}}, tmp_path).made
    return inputs_of(made.data)["c"]


SCHEMAS: list[tuple[str, Json, Json]] = [
    ("3.0.3", {"type": "string", "nullable": True}, {"type": ["string", "null"]}),
    ("3.0.3", {"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
    ("3.0.3", {"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 1}),
    ("3.0.3", {"type": "integer", "minimum": 1, "exclusiveMinimum": False}, {"type": "integer", "minimum": 1}),
    ("3.1.0", {"type": ["string", "null"]}, {"type": ["string", "null"]}),
    ("3.1.0", {"type": "integer", "exclusiveMinimum": 1}, {"type": "integer", "exclusiveMinimum": 1}),
    ("3.0.3", {**TEXT, "example": "a"}, {**TEXT, "examples": ["a"]}),
    ("3.0.3", {**TEXT, "default": "a"}, {**TEXT, "description": 'Default: "a".'}),
    ("3.0.3", {**TEXT, "pattern": r"(?P<x>a)\Z"}, {**TEXT, "pattern": "(?<x>a)$"}),
    ("3.0.3", {**TEXT, "pattern": "(["}, {**TEXT, "description": "Pattern: ([."}),
    ("3.1.0", {**TEXT, "$id": "not a uri", "$schema": 7, "xml": {}, "x-a": 1}, "string"),
    ("3.0.3", {"type": "int", "enum": [], "required": True, "minLength": "1", "properties": []}, {}),
    ("3.0.3", {"allOf": [TEXT, {"maxLength": 3}]}, {"allOf": [TEXT, {"maxLength": 3}]}),
]


@pytest.mark.parametrize(("version", "schema", "expected"), SCHEMAS)
def test_schema_is_converted_to_2020_12(tmp_path: Path, version: str, schema: Json, expected: Json) -> None:
    assert schema_of(tmp_path, schema, openapi=version) == expected


async def test_cycles_are_references_and_unused_definitions_are_dropped(tmp_path: Path, services: Services) -> None:
    schemas = {
        "Node": {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}},
        "Unused": {"type": "object"},
    }
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Node"}}}}
    given = document({"/x": {"post": operation(operationId="x", requestBody=body)}}, components={"schemas": schemas})
    catalog = compiled(config_of(given, tmp_path), services)
    schema = catalog.tools["shop_x"].definition["inputSchema"]
    assert schema["properties"] == {"next": {"$ref": "#/$defs/Node"}}
    assert set(schema["$defs"]) == {"Node"}


def test_shared_definitions_are_searched_for_references_once() -> None:
    searches = 0

    class Constant(dict[str, Json]):
        def values(self) -> Any:
            nonlocal searches
            searches += 1
            return super().values()

    reference = {"$ref": "#/components/schemas/Shared"}
    root = document({}, components={"schemas": {"Shared": {"const": Constant(), "items": reference}}})
    schemas = Schemas(References(lambda _: root), uri="shop:", is_3_0=False)
    for _ in range(3):
        assert set(schemas.definitions(schemas.convert(Node(reference, "shop:")))) == {"Shared"}
    assert searches == 1


async def test_keyword_for_another_type_in_a_document_is_not_a_warning(tmp_path: Path, services: Services) -> None:
    parameter = {"name": "q", "in": "query", "description": "Q", "schema": {"type": "string", "minimum": 1}}
    given = document({"/x": {"get": operation(operationId="x", parameters=[parameter])}})
    catalog = compiled(config_of(given, tmp_path), services)
    assert catalog.tools["shop_x"].definition["inputSchema"]["properties"]["q"]["minimum"] == 1
    assert not [problem for problem in catalog.warnings if "checks nothing" in problem.message]


ANSWERS: list[tuple[Json, Json]] = [
    (
        {"200": {"content": {"application/json": {"schema": {"type": "object", "required": ["a"],
                 "properties": {"a": {**TEXT, "pattern": "x"}, "b": {**TEXT, "writeOnly": True}},
                 "additionalProperties": False}}}}},
        {"schema": {"type": "object", "properties": {"a": TEXT}}, "mismatch": "accept"},
    ),
    (
        {"200": {"content": {"application/json": {"schema": {"type": "array", "items": TEXT}}}}},
        {"select": "{result: @}", "mismatch": "accept", "schema": {"type": "object", "required": ["result"],
         "properties": {"result": {"type": "array", "items": TEXT}}}},
    ),
    ({"200": {"content": {"application/json": {"schema": {"type": "object"}}}}, "204": {}}, None),
    ({"200": {"content": {"text/plain": {"schema": TEXT}}}}, None),
    ({"default": {"content": {"application/json": {"schema": {"type": "object"}}}}}, None),
]  # fmt: skip


@pytest.mark.parametrize(("responses", "output"), ANSWERS)
def test_json_response_schema_is_the_output_schema(tmp_path: Path, responses: Json, output: Json) -> None:
    [made] = offer(document({"/x": {"get": {"responses": responses}}}), tmp_path).made
    assert made.data.get("output") == output


async def test_output_schema_accepts_every_object(tmp_path: Path, services: Services) -> None:
    responses = {"200": {"content": {"application/json": {"schema": {"type": "object", "properties": {"a": TEXT}}}}}}
    given = document({"/x": {"get": {"operationId": "x", "responses": responses}}})
    schema = compiled(config_of(given, tmp_path), services).tools["shop_x"].definition["outputSchema"]
    assert schema == {"type": "object", "anyOf": [{"type": "object", "properties": {"a": TEXT}}, {}]}


def test_methods_become_annotations_and_deprecation_is_mentioned(tmp_path: Path) -> None:
    item = {method: operation(summary="S", deprecated=method == "put") for method in ("get", "put", "delete", "post")}
    made = {each.operation.split()[0]: each.data for each in offer(document({"/x": item}), tmp_path).made}
    assert made["GET"]["annotations"] == {"read_only": True}
    assert made["PUT"]["annotations"] == {"idempotent": True}
    assert made["DELETE"]["annotations"] == {"idempotent": True, "destructive": True}
    assert "annotations" not in made["POST"]
    assert made["PUT"]["description"] == "Deprecated.\n\nS"


def test_description_is_truncated_at_two_kibibytes(tmp_path: Path) -> None:
    [made] = offer(document({"/x": {"get": operation(description="wörd " * 1000)}}), tmp_path).made
    assert len(made.data["description"].encode()) <= 2048
    assert made.data["description"].endswith("wörd …")


def test_first_server_is_the_base_url_without_a_connection(tmp_path: Path) -> None:
    server = {"url": "https://{region}.example.com/v2/", "variables": {"region": {"default": "eu"}}}
    given = document({"/x": {"get": operation()}}, servers=[server])
    [made] = offer(given, tmp_path, is_connected=False).made
    assert made.data["http"]["url"] == "https://eu.example.com/v2/x"


@pytest.mark.parametrize(
    ("servers", "shown"), [([{"url": "/v1"}], "/v1"), ([{"url": "x.example"}], "x.example"), ([], "/")]
)
def test_relative_server_of_a_file_is_an_error(tmp_path: Path, servers: list[Json], shown: str) -> None:
    given = document({"/x": {"get": operation()}, "/y": {"get": operation()}}, servers=servers)
    offered = offer(given, tmp_path, is_connected=False)
    reason = f"its server `{shown}` is not an absolute URL. Set a `connection` with a `base_url`"
    assert offered.errors == [(("document",), f"GET /x and 1 more: {reason}")]
    assert [why for _, why in offered.left_out] == [reason, reason]


@pytest.mark.parametrize("server", ["ftp://x.example", "http://[", "//[]@/"])
def test_operation_of_a_non_http_server_is_omitted(tmp_path: Path, server: str) -> None:
    given = document({"/x": {"get": operation()}}, servers=[{"url": server}])
    offered = offer(given, tmp_path, is_connected=False)
    assert offered.errors == []
    assert [operation for operation, _ in offered.left_out] == ["GET /x"]


SCHEMES = [
    ({"type": "http", "scheme": "bearer"}, {"auth": {"bearer": "t"}}, 'auth: {bearer: "${env:SHOP_TOKEN}"}'),
    ({"type": "http", "scheme": "basic"}, {"headers": {"Authorization": "x"}}, "auth: {basic: {username: me"),
    ({"type": "apiKey", "in": "header", "name": "X-Key"}, {"headers": {"x-key": "t"}}, "headers: {X-Key: "),
    ({"type": "apiKey", "in": "query", "name": "key"}, {"query": {"key": "t"}}, "query: {key: "),
    ({"type": "apiKey", "in": "cookie", "name": "sid"}, {"headers": {"Cookie": "sid=1"}}, "headers: {Cookie: "),
    ({"type": "oauth2", "flows": {}}, {"auth": {"bearer": "t"}}, "auth: {bearer: "),
]


@pytest.mark.parametrize(("scheme", "connection", "hint"), SCHEMES)
def test_missing_credentials_are_an_error_with_the_yaml_to_add(
    tmp_path: Path, scheme: Json, connection: Json, hint: str
) -> None:
    components = {"securitySchemes": {"s": scheme}}
    given = document({"/x": {"get": operation()}}, components=components, security=[{"s": []}])
    [(place, message)] = offer(given, tmp_path).errors
    assert place == ("connection",)
    assert hint in message
    assert offer(given, tmp_path, connection=connection).errors == []
    assert offer(given, tmp_path, ignore_security=True).errors == []
    assert offer({**given, "security": [{"s": []}, {}]}, tmp_path).errors == []


async def test_operation_becomes_a_resource_template(tmp_path: Path, services: Services) -> None:
    parameters = [
        {"name": "slug", "in": "path", "required": True, "schema": TEXT},
        {"name": "lang", "in": "query", "schema": TEXT},
    ]
    given = document({"/docs/{slug}": {"get": operation(operationId="doc", parameters=parameters)}})
    catalog = compiled(config_of(given, tmp_path, resources={"operations": ["doc"]}), services)
    assert not catalog.tools
    assert [each.uri_template for each in catalog.resource_templates] == ["shop:///docs/{slug}{?lang}"]


# References.


def with_reference(tmp_path: Path, reference: str) -> dict[str, Json]:
    body = {"content": {"application/json": {"schema": {"properties": {"a": {"$ref": reference}}}}}}
    return document({"/x": {"post": operation(operationId="x", requestBody=body)}, "/y": {"get": operation()}})


def test_reference_to_another_file_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "a.yaml").write_text("A: {type: string, maxLength: 3}\nB: {$ref: '#/A'}\n")
    offered = offer(with_reference(tmp_path, "common/a.yaml#/B"), tmp_path)
    schema = offered.made[0].data["input_schema"]
    names = sorted(schema["$defs"])
    assert [name.rpartition("_")[0] for name in names] == ["A", "B"]
    assert schema["$defs"][names[0]] == {"type": "string", "maxLength": 3}


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("../secret.json#/A", "outside the document's directory"),
        ("link.json#/A", "outside the document's directory"),
        ("file:///etc/passwd", "outside the document's directory"),
        ("https://example.com/a.json#/A", "outside the document's directory"),
        ("missing.json#/A", "no such file"),
        ("#/components/schemas/Missing", "does not exist"),
        ("#named", "is not a JSON Pointer"),
    ],
)
def test_operation_with_a_reference_out_of_the_directory_is_omitted(
    tmp_path: Path, reference: str, reason: str
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.json").write_text('{"A": {"type": "string"}}')
    (inside / "link.json").symlink_to(tmp_path / "secret.json")
    offered = offer(with_reference(inside, reference), inside)
    assert [each.operation for each in offered.made] == ["GET /y"]  # the control
    [(operation, why)] = offered.left_out
    assert operation == "POST /x"
    assert reason in why


# Hostile and malformed documents.

CIRCLE: Final = {"$ref": "#/components/parameters/p"}
HARMFUL: list[Json] = [
    document({"/x": {"get": operation(parameters=[CIRCLE])}}, components={"parameters": {"p": CIRCLE}}),
    document({"/x": {"get": operation(parameters=[None, 1, "a", [], {"name": 7, "in": "query"}])}}),
    document({"/x": {"post": operation(requestBody={"content": []})}, "/y": 7, "/z": {"get": []}}),
    document({"/x": {"get": {"responses": [1], "tags": 7, "security": 7, "operationId": {}, "parameters": {}}}}),
    document({"/x": {"get": operation(parameters=[{"name": "a", "in": "query", "schema": 7, "style": []}])}}),
    document({"/{a/b}{": {"get": operation()}, "/../../x": {"get": operation()}}),
    document({"/x": {"post": operation(requestBody={"content": {"a/b+json": {"schema": {"allOf": [{}, 7]}}}})}}),
    {**document({}), "paths": [], "components": 7, "servers": 7, "security": {"a": 1}, "x-mcp": []},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(HARMFUL)))
async def test_malformed_parts_of_a_document_are_skipped_and_named(
    tmp_path: Path, services: Services, number: int
) -> None:
    compiled(config_of(HARMFUL[number], tmp_path), services)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"openapi": "3.0.0", }', "shop.openapi.json:1:20: not JSON"),
        ("openapi: [", "shop.openapi.json:"),
        ("- 1\n", "its root must be an object"),
        ("a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(9)
        ), "values once aliases are expanded"),
        ("{" * 2000, "shop.openapi.json:"),
        ("\0", "shop.openapi.json:"),
    ],
)  # fmt: skip
async def test_unreadable_document_is_an_error_with_its_place(
    tmp_path: Path, services: Services, text: str, message: str
) -> None:
    config = config_of({}, tmp_path)
    (tmp_path / "shop.openapi.json").write_text(text)
    with pytest.raises(ConfigError) as caught:
        compiled(config, services)
    [problem] = caught.value.problems
    assert problem.path == "openapi.shop.document"
    assert message in problem.message


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("ftp://example.com/shop.json", "the scheme ftp: is not supported"),
        ("https://[x/shop.json", "is not a URL such as https://api.example.com/openapi.json"),
        (
            "file:///srv/shop.json",
            "file: is not supported. Use a file path, http: or https:. Write its path: /srv/shop.json",
        ),
    ],
)
async def test_document_with_unsupported_scheme_is_rejected(
    tmp_path: Path, services: Services, document: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        compiled(config_of({}, tmp_path, document=document), services)
    [problem] = caught.value.problems
    assert problem.path == "openapi.shop.document"
    assert message in problem.message


async def test_too_large_document_is_rejected_unread(tmp_path: Path, services: Services) -> None:
    config = config_of({}, tmp_path)
    with (tmp_path / "shop.openapi.json").open("wb") as file:
        os.truncate(file.fileno(), MAX_BYTES + 1)
    with pytest.raises(ConfigError, match="is larger than 32 MiB"):
        compiled(config, services)


@pytest.mark.parametrize("depth", [70, 300, 900])
async def test_operation_with_a_too_deep_schema_is_omitted(tmp_path: Path, services: Services, depth: int) -> None:
    given = with_body_of({"type": "array", "items": "HERE"})
    config = config_of(given, tmp_path)
    path = tmp_path / "shop.openapi.json"
    path.write_text(path.read_text().replace('"HERE"', '{"type":"array","items":' * depth + "{}" + "}" * depth))
    catalog = compiled(config, services)
    assert [*catalog.tools] == ["shop_get_y"]
    assert len(catalog.left_out) == 1


def with_body_of(schema: Json) -> dict[str, Json]:
    body = {"content": {"application/json": {"schema": schema}}}
    return document({"/x": {"post": operation(operationId="x", requestBody=body)}, "/y": {"get": operation()}})


YAML: Final = "openapi: 3.0.0\npaths:\n  /x:\n    get:\n      responses:\n        200: {description: ok}\n"


def test_numbers_as_keys_are_read_as_their_text() -> None:
    root = read(YAML.encode(), name="a")
    assert list(root["paths"]["/x"]["get"]["responses"]) == ["200"]


def test_unreadable_document_raises_document_error() -> None:
    for data in (b"", b"\xff\xfe", b"{", b"[]", b"a: \0"):
        with pytest.raises(DocumentError):
            read(data, name="a")
