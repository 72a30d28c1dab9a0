"""Slightly wrong documents: mistakes are repaired or reported, and affect nothing else."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.config.definition_source import load_definitions
from gateway.errors import ConfigError, ExecutionError
from gateway.executors.shared_services import Services
from gateway.json_types import Json, JsonObject
from gateway.net.request import Request
from gateway.openapi.source import OpenApiSource
from tests.openapi.shop_documents import compiled, config_of, document, inputs_of, offer, operation, request_of

TEXT: Final = {"type": "string"}
LIST: Final = {"type": "array", "items": TEXT}


def with_body(content: Json, *, method: str = "post", required: bool = False, **root: Json) -> dict[str, Json]:
    body = {"required": required, "content": content}
    return document({"/x": {method: operation(operationId="x", requestBody=body)}}, **root)


def of_object(**properties: Json) -> dict[str, Json]:
    return {"schema": {"type": "object", "properties": properties}}


def body_of(request: Request) -> str | None:
    assert request.body is None or isinstance(request.body, bytes)
    return None if request.body is None else request.body.decode()


# Credentials.

CREDENTIALS: list[tuple[str, str, Json]] = [
    ("header", "X-Shop-Key", {"headers": {"x-shop-key": "secret"}}),
    ("header", "x-SHOP-key", {"headers": {"X-Shop-Key": "secret"}}),
    ("query", "KEY", {"query": {"key": "secret"}}),
    ("cookie", "Sid", {"headers": {"Cookie": "lang=en; sid=secret"}}),
]


@pytest.mark.parametrize("declared", ["security scheme", "connection alone"])
@pytest.mark.parametrize(("place", "name", "connection"), CREDENTIALS)
async def test_credential_is_sent_by_the_connection_and_is_not_an_input(
    tmp_path: Path, services: Services, place: str, name: str, connection: Json, declared: str
) -> None:
    parameters = [
        {"name": name, "in": place, "required": True, "schema": TEXT},
        {"name": "q", "in": "query", "schema": {"type": "object", "additionalProperties": TEXT}},
        {"name": "c", "in": "cookie", "schema": {"type": "object", "additionalProperties": TEXT}},
    ]
    scheme = {"type": "apiKey", "in": place, "name": name.swapcase()}
    given = document({"/x": {"get": operation(operationId="x", parameters=parameters)}})
    if declared == "security scheme":
        given |= {"components": {"securitySchemes": {"s": scheme}}, "security": [{"s": []}]}
    config = config_of(given, tmp_path)
    written = json.loads(config.read_text())
    written["connections"]["shop"] |= connection
    config.write_text(json.dumps(written))
    catalog = compiled(config, services)
    assert [*catalog.tools["shop_x"].definition["inputSchema"]["properties"]] == ["q", "c"]
    request = request_of(catalog, "shop_x", {"q": {"a": "1"}, "c": {"b": "2"}})
    sent = f"{request.url} {[(each.name, each.value) for each in request.headers]}"
    assert sent.count("secret") == 1
    # Also not as a member of an exploded object.
    if place != "header":
        known = name.upper()
        with pytest.raises(ExecutionError, match="has a field with that name"):
            request_of(catalog, "shop_x", {"q" if place == "query" else "c": {known: "mine"}})


def test_credential_is_no_template_variable_and_can_be_set(tmp_path: Path) -> None:
    parameters = [{"name": name, "in": "query", "schema": TEXT} for name in ("api_key", "page")]
    given = document({"/x": {"get": operation(operationId="x", parameters=parameters)}})
    given["components"] = {"securitySchemes": {"s": {"type": "apiKey", "in": "query", "name": "api_key"}}}
    [template] = offer(given, tmp_path, resources={"operations": ["x"]}).made
    assert template.data["uri"] == "shop:///x{?page}"
    [tool] = offer(given, tmp_path, override={"x": {"set": {"api_key": "k"}}}).made
    assert tool.data["http"]["query"]["api_key"] == "k"
    assert offer(given, tmp_path, override={"x": {"hide": ["api_key"]}}).errors == []


def test_required_credential_that_is_not_sent_is_a_warning(tmp_path: Path) -> None:
    parameters = [{"name": "X-Key", "in": "header", "required": True, "schema": TEXT}]
    given = document({"/x": {"get": operation(parameters=parameters)}})
    given["components"] = {"securitySchemes": {"s": {"type": "apiKey", "in": "header", "name": "x-key"}}}
    [(_, message)] = offer(given, tmp_path).warnings
    assert message == "GET /x: `X-Key` is a credential, but the connection does not send it"


# Bodies.

FORM: Final = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("method", "content", "required", "inputs"),
    [
        ("get", {FORM: of_object()}, False, []),
        ("get", {FORM: of_object()}, True, []),
        ("get", {"application/json": of_object(a=TEXT)}, False, []),
        ("head", {"multipart/related": {}}, False, []),
        ("delete", {"application/json": of_object(a=TEXT)}, False, []),
        ("delete", {"application/json": of_object()}, True, []),
        ("delete", {"application/json": of_object(a=TEXT)}, True, ["a"]),
        ("get", {"application/json": of_object(a=TEXT)}, True, ["a"]),
        ("post", {FORM: {"schema": {}}}, True, []),
        ("post", {"multipart/form-data": of_object()}, True, []),
        ("post", {FORM: {"schema": {"properties": {"a": TEXT}, "nullable": True}}}, True, ["a"]),
        ("post", {}, False, []),
    ],
)
def test_body_without_meaning_or_members_is_not_sent(
    tmp_path: Path, method: str, content: Json, required: Json, inputs: list[str]
) -> None:
    offered = offer(with_body(content, method=method, required=required), tmp_path)
    [made] = offered.made
    assert [*inputs_of(made.data)] == inputs
    assert ("the request body is not sent" in str(offered.warnings)) is (not inputs)
    assert made.data["http"].get("method", "GET") == method.upper()


async def test_get_with_a_required_body_sends_it(tmp_path: Path, services: Services) -> None:
    given = with_body({"application/json": of_object(a=TEXT)}, method="get", required=True)
    request = request_of(compiled(config_of(given, tmp_path), services), "shop_x", {"a": "1"})
    assert (request.method, body_of(request)) == ("GET", '{"a":"1"}')


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"requestBody": ["x"]}, "has no usable `content`"),
        ({"requestBody": {"description": "x"}}, "has no usable `content`"),
        ({"requestBody": {"required": True, "content": {}}}, "has no usable `content`"),
        ({"requestBody": {"content": "application/json"}}, "has no usable `content`"),
        ({"parameters": {"a": TEXT}}, "are not a list"),
        ({"parameters": [{"name": "a", "in": "body"}]}, "no valid `in`"),
        ({"parameters": [{"name": "a", "in": "query", "style": "matrix"}]}, "is not one of form, spaceDelimited"),
        ({"requestBody": {"content": {FORM: {**of_object(a=TEXT), "encoding": {"a": {"style": "x"}}}}}}, "style `x`"),
    ],
)
def test_operation_with_unreadable_inputs_is_omitted_and_named(tmp_path: Path, members: Json, reason: str) -> None:
    given = document({"/x": {"post": operation(**members)}, "/y": {"get": operation()}})
    offered = offer(given, tmp_path)
    assert [each.operation for each in offered.made] == ["GET /y"]
    [(_, why)] = offered.left_out
    assert reason in why


@pytest.mark.parametrize(
    ("path", "members", "reason"),
    [
        ("/x/{a}", {"content": {"application/json": {"schema": LIST}}}, "is JSON, which is not supported in paths"),
        ("/x/{a-b}", {"style": "matrix", "explode": True, "schema": LIST}, "is not allowed by its style"),
    ],
)
def test_operation_with_an_unwritable_path_parameter_is_omitted(
    tmp_path: Path, path: str, members: Json, reason: str
) -> None:
    parameter = {"name": path[4:-1], "in": "path", "required": True, **members}
    offered = offer(document({path: {"get": operation(parameters=[parameter])}}), tmp_path)
    assert offered.made == []
    assert reason in offered.left_out[0][1]


@pytest.mark.parametrize(
    ("method", "parameter", "reason"),
    [
        ("post", {"in": "query", "schema": TEXT}, "a resource must be a GET operation"),
        ("get", {"in": "header", "schema": TEXT}, "the header input `a` cannot be part of a URI"),
        ("get", {"in": "query", "schema": LIST, "required": True}, "`a` is not a single value"),
    ],
)
def test_operation_that_cannot_be_a_resource_is_omitted(
    tmp_path: Path, method: str, parameter: Json, reason: str
) -> None:
    given = document({"/x": {method: operation(operationId="x", parameters=[{"name": "a", **parameter}])}})
    offered = offer(given, tmp_path, resources={"operations": ["x"]})
    assert offered.made == []
    assert reason in offered.left_out[0][1]


async def test_override_adds_annotations_and_retries(tmp_path: Path, services: Services) -> None:
    given = document({"/x": {"delete": operation(operationId="x")}})
    override = {"annotations": {"destructive": False}, "retry": {"attempts": 5}}
    config = config_of(given, tmp_path, override={"x": override})
    hints = {"idempotentHint": True, "destructiveHint": False}
    assert compiled(config, services).tools["shop_x"].definition["annotations"] == hints
    http = load_definitions(config, [OpenApiSource()]).document.tools["shop_x"].http
    assert http is not None
    assert http.retry is not None
    assert http.retry.attempts == 5


async def test_unknown_connection_is_an_error(tmp_path: Path, services: Services) -> None:
    config = config_of(document({"/x": {"get": operation()}}), tmp_path, connection="shp")
    with pytest.raises(ConfigError, match="unknown connection `shp`; did you mean `shop`"):
        compiled(config, services)


def test_replaced_servers_of_operations_are_a_warning(tmp_path: Path) -> None:
    servers: Json = [{"url": "https://other.example.com"}]
    offered = offer(document({"/x": {"get": operation(servers=servers)}}), tmp_path)
    message = "replaces the servers of these operations: GET /x (https://other.example.com)"
    assert offered.warnings == [(("connection",), message)]


def test_operations_and_parameters_can_be_references(tmp_path: Path) -> None:
    shared = {"list": [{"name": "a", "in": "query", "schema": TEXT}], "get": operation(operationId="there")}
    paths = {
        "/x": {"get": operation(parameters={"$ref": "#/x-shared/list"})},
        "/y": {"get": {"$ref": "#/x-shared/get"}, "parameters": {"$ref": "#/x-shared/list"}},
        "/z": {"get": {"$ref": "#/x-shared/missing"}},
    }
    offered = offer({**document(paths), "x-shared": shared}, tmp_path)
    assert [inputs_of(each.data) for each in offered.made] == [{"a": "string?"}, {"a": "string?"}]
    assert [each.name for each in offered.made] == ["shop_get_x", "shop_there"]
    assert [operation for operation, _ in offered.left_out] == ["GET /z"]


def test_operations_next_to_a_path_reference_are_read(tmp_path: Path) -> None:
    shared = {"get": operation(operationId="there"), "parameters": [{"name": "a", "in": "query", "schema": TEXT}]}
    own = {"post": operation(operationId="here"), "parameters": [{"name": "b", "in": "query", "schema": TEXT}]}
    offered = offer({**document({"/x": {"$ref": "#/x-shared", **own}}), "x-shared": shared}, tmp_path)
    assert {each.name: [*inputs_of(each.data)] for each in offered.made} == {
        "shop_there": ["a", "b"],
        "shop_here": ["a", "b"],
    }


A_AND_B: Final = {"$ref": "#/x-shared/a", "properties": {"b": TEXT}, "required": ["b"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("content", "inputs"),
    [
        ({"$ref": "#/x-shared/content"}, ["a"]),
        ({"application/json": {"$ref": "#/x-shared/content/application~1json"}}, ["a"]),
        (
            {"application/json": {"schema": {"type": "object", "properties": {"$ref": "#/x-shared/a/properties"}}}},
            ["a"],
        ),
        ({"application/json": {"schema": A_AND_B}}, ["b", "a"]),
        ({"application/json": of_object(c=A_AND_B)}, ["c"]),
    ],
)
async def test_references_are_followed_anywhere_in_a_body(
    tmp_path: Path, services: Services, content: Json, inputs: list[str]
) -> None:
    shared = {"a": {"type": "object", "properties": {"a": TEXT}}, "content": {"application/json": of_object(a=TEXT)}}
    given = {**with_body(content, required=True), "x-shared": shared}
    catalog = compiled(config_of(given, tmp_path), services)
    assert [*catalog.tools["shop_x"].definition["inputSchema"]["properties"]] == inputs
    if inputs == ["c"]:
        request_of(catalog, "shop_x", {"c": {"a": "1", "b": "2"}})
        with pytest.raises(ExecutionError, match="b is required"):
            request_of(catalog, "shop_x", {"c": {"a": "1"}})


def test_get_with_an_unreadable_body_is_a_tool_without_it(tmp_path: Path) -> None:
    given = document({"/x": {method: operation(requestBody={"$ref": "#/missing"}) for method in ("get", "post")}})
    offered = offer(given, tmp_path)
    assert [each.operation for each in offered.made] == ["GET /x"]
    assert [operation for operation, _ in offered.left_out] == ["POST /x"]


def test_optional_parameter_without_a_name_is_ignored_with_a_warning(tmp_path: Path) -> None:
    parameters: list[dict[str, Json]] = [{"name": "", "in": "query"}, {"name": "a", "in": "querystring"}]
    offered = offer(document({"/x": {"get": operation(parameters=parameters)}}, openapi="3.1.0"), tmp_path)
    assert [each.operation for each in offered.made] == ["GET /x"]
    assert [message.rpartition(", ")[2] for _, message in offered.warnings] == ["so it is ignored"] * 2
    required = [{**each, "required": True} for each in parameters]
    assert offer(document({"/x": {"get": operation(parameters=required)}}), tmp_path).made == []


async def test_undeclared_members_of_an_open_body_are_sent(tmp_path: Path, services: Services) -> None:
    schema = {"type": "object", "properties": {"id": TEXT, "kind": TEXT}, "additionalProperties": True}
    given = with_body({"application/json": {"schema": schema}})
    given["paths"]["/x/{id}"] = given["paths"].pop("/x")
    catalog = compiled(config_of(given, tmp_path, override={"x": {"set": {"kind": "fixed"}}}), services)
    assert catalog.tools["shop_x"].definition["inputSchema"]["additionalProperties"] is True
    request = request_of(catalog, "shop_x", {"id": "1", "id__body": "2", "other": {"a": 1}, "kind": "mine"})
    assert request.url.path == "/v1/x/1"
    assert json.loads(body_of(request) or "") == {"id": "2", "other": {"a": 1}, "kind": "fixed"}
    hidden = offer(given, tmp_path, override={"x": {"hide": ["kind"]}}).made[0].data
    assert "open_body" not in hidden["http"]


@pytest.mark.parametrize("others", [True, TEXT])
async def test_undeclared_members_of_an_open_form_are_sent(tmp_path: Path, services: Services, others: Json) -> None:
    schema = {"type": "object", "properties": {"id": TEXT}, "additionalProperties": others}
    config = config_of(with_body({FORM: {"schema": schema}}), tmp_path, override={"x": {"set": {"id": "fixed"}}})
    catalog = compiled(config, services)
    assert body_of(request_of(catalog, "shop_x", {"a": "1", "id": "mine"})) == "a=1&id=fixed"
    with pytest.raises(ExecutionError, match="bracket"):
        request_of(catalog, "shop_x", {"id[x]": "mine"})


@pytest.mark.parametrize("required", [True, False])
async def test_empty_object_is_a_body(tmp_path: Path, services: Services, required: Json) -> None:
    given = with_body({"application/json": {"schema": {"type": "object"}}}, required=required)
    catalog = compiled(config_of(given, tmp_path), services)
    assert body_of(request_of(catalog, "shop_x", {"body": {}})) == "{}"
    if not required:
        assert request_of(catalog, "shop_x", {}).body is None


A: Final = of_object(a=TEXT)
PATCHES: Final = {f"application/{kind}+json": A for kind in ("json-patch", "strategic-merge-patch", "merge-patch")}


@pytest.mark.parametrize(
    ("content", "sent", "inputs"),
    [
        (PATCHES, "application/merge-patch+json", ["a"]),
        ({**PATCHES, "application/json": A}, "application/json", ["a"]),
        ({"application/json-patch+json": {"schema": {"type": "array"}}, "text/json": A}, "text/json", ["a"]),
        ({"application/json-patch+json": {"schema": {"type": "array"}}}, "application/json-patch+json", ["body"]),
        ({"application/*+json": A}, "application/json", ["a"]),
        ({"text/*": {"schema": TEXT}}, "text/plain; charset=utf-8", ["body"]),
        ({"application/x-yaml": A}, "application/x-yaml", ["body"]),
        ({"application/vnd.shop+yaml": A}, "application/vnd.shop+yaml", ["body"]),
        ({"application/graphql": {"schema": TEXT}}, "application/graphql", ["body"]),
    ],
)
async def test_media_type_is_one_that_can_be_written(
    tmp_path: Path, services: Services, content: Json, sent: str, inputs: list[str]
) -> None:
    catalog = compiled(config_of(with_body(content, required=True), tmp_path), services)
    properties = catalog.tools["shop_x"].definition["inputSchema"]["properties"]
    assert [*properties] == inputs
    assert "contentEncoding" not in properties[inputs[0]]  # text, not a file
    value: Json = [] if "json-patch" in sent else "text"
    headers = request_of(catalog, "shop_x", {inputs[0]: value}).headers
    assert {each.name: each.value for each in headers}["Content-Type"] == sent


MAPPING: Final = {"type": "object", "additionalProperties": TEXT}
OBJECTS: Final = {"type": "array", "items": {"type": "object", "properties": {"p": TEXT}}}


@pytest.mark.parametrize(
    ("schema", "encoding", "value", "body"),
    [
        (LIST, {"style": "deepObject", "explode": True}, ["a", None, "b"], "c%5B0%5D=a&c%5B1%5D=b"),
        ({"$ref": "#/components/schemas/List"}, {"explode": False}, ["a", "b"], "c=a%2Cb"),
        (LIST, {"style": "spaceDelimited"}, ["a", "b"], "c=a%20b"),
        (LIST, {"style": "pipeDelimited", "explode": False}, ["a", "b"], "c=a%7Cb"),
        (OBJECTS, {"style": "deepObject"}, [{"p": "1"}], "c%5B0%5D%5Bp%5D=1"),
        (MAPPING, {"style": "form"}, {"R": "1", "G": "2"}, "R=1&G=2"),
        (MAPPING, {"style": "form", "explode": False}, {"R": "1", "G": "2"}, "c=R%2C1%2CG%2C2"),
        (MAPPING, {"style": "deepObject"}, {"R": "1"}, "c%5BR%5D=1"),
        (MAPPING, {"contentType": "application/json"}, {"R": "1"}, "c=%7B%22R%22%3A%221%22%7D"),
        (TEXT, {"allowReserved": True}, "a/b", "c=a/b"),
    ],
)
async def test_form_is_written_by_its_encoding_object(
    tmp_path: Path, services: Services, schema: Json, encoding: Json, value: Json, body: str
) -> None:
    content = {FORM: {**of_object(c=schema), "encoding": {"c": encoding}}}
    given = with_body(content, components={"schemas": {"List": {**LIST, "items": {**TEXT, "nullable": True}}}})
    if value == ["a", None, "b"]:
        content[FORM]["schema"]["properties"]["c"] = {"type": "array", "items": {"type": ["string", "null"]}}
    catalog = compiled(config_of(given, tmp_path), services)
    assert body_of(request_of(catalog, "shop_x", {"c": value})) == body


@pytest.mark.parametrize(
    ("members", "value", "query"),
    [
        ({"style": "deepObject", "schema": LIST}, ["a", "b"], "c%5B0%5D=a&c%5B1%5D=b"),
        ({"style": "deepObject", "schema": OBJECTS}, [{"p": "1"}], "c%5B0%5D%5Bp%5D=1"),
        ({"style": "deepObject", "schema": LIST}, [], ""),
        ({"allowReserved": True, "schema": TEXT}, "a,b", "c=a,b"),
        ({"allowReserved": True, "schema": LIST}, ["a,b", "c"], "c=a,b&c=c"),
        ({"allowReserved": True, "schema": LIST, "explode": False}, ["a,b", "c"], "c=a%2Cb,c"),
    ],
)
async def test_query_has_its_style(tmp_path: Path, services: Services, members: Json, value: Json, query: str) -> None:
    parameter = {"name": "c", "in": "query", **members}
    given = document({"/x": {"get": operation(operationId="x", parameters=[parameter])}})
    catalog = compiled(config_of(given, tmp_path), services)
    assert request_of(catalog, "shop_x", {"c": value}).url.raw_query_string == query


# Schemas.


def pet(**extra: Json) -> dict[str, Json]:
    return {"type": "object", "required": ["kind"], "properties": {"kind": TEXT, **extra}}


CAT: Final = {"allOf": [{"$ref": "#/components/schemas/Pet"}, {"properties": {"lives": {"type": "integer"}}}]}
DOG: Final = {"allOf": [{"$ref": "#/components/schemas/Pet"}, {"properties": {"bark": {"type": "boolean"}}}]}
ONE_OF: Final = {"oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}]}
PET: Final = {"$ref": "#/components/schemas/Pet"}


def mapped(**mapping: str) -> dict[str, Json]:
    return {"propertyName": "kind", **({"mapping": mapping} if mapping else {})}


BOTH: Final = mapped(cat="#/components/schemas/Cat", tom="Cat", dog="Dog")


@pytest.mark.parametrize(
    ("body", "parent", "value", "fits"),
    [
        ({**ONE_OF, "discriminator": BOTH}, pet(), {"kind": "tom", "lives": 9}, True),
        ({**ONE_OF, "discriminator": BOTH}, pet(), {"kind": "cat", "lives": "x"}, False),
        ({**ONE_OF, "discriminator": mapped()}, pet(), {"kind": "cat", "lives": 9}, True),
        ({"anyOf": ONE_OF["oneOf"], "discriminator": BOTH}, pet(), {"kind": "bird"}, False),
        (PET, {**pet(), "discriminator": BOTH}, {"kind": "dog", "bark": True}, True),
        (PET, {**pet(), "discriminator": BOTH}, {"kind": "dog", "bark": "x"}, False),
        (PET, {**pet(), "discriminator": mapped()}, {"kind": "Dog", "bark": True}, True),
        ({"allOf": [PET]}, {**pet(), "discriminator": BOTH}, {"kind": "cat", "lives": "x"}, False),
        ({"type": "array", "items": PET}, {**pet(), "discriminator": BOTH}, [{"kind": "cat", "lives": 9}], True),
        (PET, {**pet(friend=PET), "discriminator": BOTH}, {"kind": "cat", "friend": {"kind": "dog"}}, True),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}], "anyOf": [{"minimum": 2}]}, pet(), 3, True),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}], "anyOf": [{"minimum": 2}]}, pet(), 1, False),
    ],
)
async def test_overlapping_alternatives_use_the_discriminator(  # one row for each way to write them
    tmp_path: Path, services: Services, body: Json, parent: Json, value: Json, fits: Json
) -> None:
    components = {"schemas": {"Pet": parent, "Cat": CAT, "Dog": DOG}}
    catalog = compiled(
        config_of(with_body({"application/json": {"schema": body}}, components=components), tmp_path), services
    )
    if fits:
        assert json.loads(body_of(request_of(catalog, "shop_x", {"body": value})) or "") == value
    else:
        with pytest.raises(ExecutionError, match="Invalid arguments"):
            request_of(catalog, "shop_x", {"body": value})


CLOSED: Final = {"type": "object", "additionalProperties": False}
PARENT: Final = {**CLOSED, "properties": {"a": TEXT}}


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({**CLOSED, "anyOf": [{"properties": {"a": TEXT}}]}, {"a": "1"}, True),
        ({"$ref": "#/components/schemas/Child"}, {"a": "1", "b": "2"}, True),
        ({"allOf": [{**PARENT}, {**CLOSED, "properties": {"b": TEXT}}]}, {"a": "1", "b": "2"}, True),
        ({**CLOSED, "properties": {"a": TEXT}}, {"b": "1"}, False),
    ],
)
async def test_schema_in_all_of_does_not_forbid_other_members(
    tmp_path: Path, services: Services, schema: Json, value: Json, fits: Json
) -> None:
    child = {"allOf": [{"$ref": "#/components/schemas/Parent"}, {**CLOSED, "properties": {"b": TEXT}}]}
    given = with_body(
        {"application/json": of_object(c=schema)}, components={"schemas": {"Parent": PARENT, "Child": child}}
    )
    catalog = compiled(config_of(given, tmp_path), services)
    if fits:
        assert json.loads(body_of(request_of(catalog, "shop_x", {"c": value})) or "") == {"c": value}
    else:
        with pytest.raises(ExecutionError, match="Invalid arguments"):
            request_of(catalog, "shop_x", {"c": value})


def test_subtype_body_is_flattened_and_unknown_targets_are_ignored(tmp_path: Path) -> None:
    parent = {
        **pet(),
        "discriminator": mapped(cat="Cat", bird="#/components/schemas/Missing", fish="https://x.example/Fish"),
    }
    components = {"schemas": {"Pet": parent, "Cat": CAT}}
    schema = {"$ref": "#/components/schemas/Cat"}
    [made] = offer(with_body({"application/json": {"schema": schema}}, components=components), tmp_path).made
    assert {*inputs_of(made.data)} == {"kind", "lives"}


def schema_of(tmp_path: Path, schema: Json) -> Any:
    given = document({"/x": {"get": operation(parameters=[{"name": "c", "in": "query", "schema": schema}])}})
    [made] = offer(given, tmp_path).made
    return inputs_of(made.data)["c"]


@pytest.mark.parametrize(
    ("written", "pattern"),
    [
        ("^[a-z]+$", "^[a-z]+$"),
        (r"^[\w.-]+@\w+$", r"^[\w.-]+@\w+$"),
        (r"^(?<y>\d{4})(?=a)(?<!b)\p{Lu}$", r"^(?<y>\d{4})(?=a)(?<!b)\p{Lu}$"),
        (r"^[A-Z\_0-9]*\:\ \"$", r'^[A-Z_0-9]*: "$'),
        (r"^([a-z]|\-)*$", r"^([a-z]|\x2d)*$"),
        (r"(?P<x>a)\Z", "(?<x>a)$"),
        ("(?i)^abc$", None),
        ("^[a-z]*+$", None),
        ("^(?>a)$", None),
        ("^[[:alpha:]]+$", None),
        (r"^[\w-.]+$", None),
        ("^{.*}$", None),
        (r"\p{Alpha}", None),
        (r"^\Qa.b\E$", None),
        ("^(?#comment)a$", None),
    ],
)
def test_non_ecma_pattern_is_moved_to_the_description(tmp_path: Path, written: str, pattern: str | None) -> None:
    found = schema_of(tmp_path, {**TEXT, "pattern": written})
    if pattern is None:
        assert (found.get("pattern"), found["description"]) == (None, f"Pattern: {written}.")
    else:
        assert found["pattern"] == pattern


def test_unsupported_pattern_property_forbids_nothing(tmp_path: Path) -> None:
    patterns = {
        "^(?i)x": TEXT,
        "^y": TEXT,
        "^(?=z)": TEXT,
    }  # the engine does not support look-around in property patterns
    schema = {"type": "object", "patternProperties": patterns, "additionalProperties": False}
    found = schema_of(tmp_path, schema)
    assert (found["patternProperties"], "additionalProperties" in found) == ({"^y": TEXT}, False)


def test_enum_values_are_unique(tmp_path: Path) -> None:
    values = ["a", "b", "a", 1, 1, True, 0, {"x": 1, "y": [2]}, {"y": [2], "x": 1}, 1.0, 0.5, 1e300]
    assert schema_of(tmp_path, {"enum": values})["enum"] == ["a", "b", 1, True, 0, {"x": 1, "y": [2]}, 0.5, 1e300]


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("string", [1, 7, "max"], {"type": "string", "enum": ["1", "7", "max"]}),
        ("string", [True, "true"], {"type": "string", "enum": ["true"]}),
        ("integer", ["0", "1", None], {"type": "integer", "enum": [0, 1, None]}),
        ("boolean", ["true", "false"], {"type": "boolean", "enum": [True, False]}),
        ("number", ["1.5", 2], {"type": "number", "enum": [1.5, 2]}),
        ("integer", ["Continue", 100], {"enum": ["Continue", 100]}),
    ],
)
def test_enum_values_have_the_type(tmp_path: Path, kind: str, values: Json, expected: JsonObject) -> None:
    assert schema_of(tmp_path, {"type": kind, "enum": values}) == {**expected, "required": False}


def test_unusual_paths_and_methods_are_read(tmp_path: Path) -> None:
    paths: Json = {"x": {"get": operation()}, "/y": {"GET": operation()}, "x-note": {"get": operation()}}
    assert [each.operation for each in offer(document(paths), tmp_path).made] == ["GET /x", "GET /y"]


def test_parameter_missing_from_the_path_is_a_warning(tmp_path: Path) -> None:
    parameter = {"name": "id", "in": "path", "required": True, "schema": TEXT}
    offered = offer(document({"/x/:id": {"get": operation(parameters=[parameter])}}), tmp_path)
    [(_, message)] = offered.warnings
    assert message == "GET /x/:id: the path parameter `id` is ignored, because the path has no `{id}`"


async def test_every_array_has_items(tmp_path: Path, services: Services) -> None:
    array = {"type": "array"}
    config = tmp_path / "config.yaml"
    nested = {"type": "object", "properties": {"a": array, "b": {"anyOf": [array, {"type": ["array", "null"]}]}}}
    tools = {
        "short": {"description": "D", "input": {"a": "array", "b": "array?", "c": nested}, "content": "x"},
        "long": {"description": "D", "input_schema": {**nested, "$defs": {"d": array}}, "content": "x"},
    }
    config.write_text(json.dumps({"tools": tools}))
    for tool in compiled(config, services).tools.values():
        written = json.dumps(tool.definition["inputSchema"])
        assert written.count("array") == written.count('"items": {}')
    for mismatch in ("error", "accept"):
        output = {"schema": nested, "mismatch": mismatch}
        http = {"description": "D", "http": {"url": "https://shop.example.com"}, "output": output}
        config.write_text(json.dumps({"tools": {"out": http}}))
        written = json.dumps(compiled(config, services).tools["out"].definition["outputSchema"])
        assert written.count("array") == written.count('"items": {}') == 3
    fixed = {"type": "array", "prefixItems": [TEXT], "unevaluatedItems": False}
    tools = {
        "fixed": {"description": "D", "input_schema": {"type": "object", "properties": {"a": fixed}}, "content": "x"}
    }
    config.write_text(json.dumps({"tools": tools}))
    assert compiled(config, services).tools["fixed"].definition["inputSchema"]["properties"]["a"] == fixed


# Versions, servers and others.


async def test_openapi_3_2_is_read_as_3_1_with_a_warning(tmp_path: Path, services: Services) -> None:
    item = {"get": operation(operationId="x"), "query": operation(), "additionalOperations": {"LINK": operation()}}
    offered = offer(document({"/x": item}, openapi="3.2.0"), tmp_path)
    assert [each.operation for each in offered.made] == ["GET /x"]
    assert [operation for operation, _ in offered.left_out] == ["QUERY /x", "LINK /x"]
    assert offered.warnings == [(("document",), "is an OpenAPI 3.2.0 document, which is read as 3.1")]


KINDS: Final = {"kind": TEXT, "n": {**TEXT, "x-nullable": True}}
TABS: Final = {"name": "t", "in": "query", "type": "array", "items": TEXT, "collectionFormat": "tsv"}
SWAGGER: Final = {
    "swagger": "2.0",
    "info": {"title": "A shop", "version": "1"},
    "definitions": {
        "Pet": {"type": "object", "discriminator": "kind", "properties": KINDS},
        "Cat": {"allOf": [{"$ref": "#/definitions/Pet"}, {"properties": {"lives": {"type": "integer"}}}]},
    },
    "paths": {
        "/x": {"post": {"operationId": "x", "parameters": [
            {"name": "pet", "in": "body", "schema": {"$ref": "#/definitions/Pet"}}]}},
        "/tabs": {"get": {"parameters": [TABS]}},
    },
}  # fmt: skip


async def test_swagger_2_is_read_under_openapi(tmp_path: Path, services: Services) -> None:
    catalog = compiled(config_of(SWAGGER, tmp_path), services)
    request = request_of(catalog, "shop_x", {"body": {"kind": "Cat", "lives": 9, "n": None}})
    assert json.loads(body_of(request) or "") == {"kind": "Cat", "lives": 9, "n": None}
    [left_out] = catalog.left_out
    assert "style `tsv`" in left_out.reason


@pytest.mark.parametrize(
    "server",
    [
        {"url": "https://{region}.example.com"},
        {"url": "https://{region}.example.com", "variables": {"region": {"enum": ["eu"]}}},
    ],
)
async def test_server_variable_without_a_default_is_an_error(tmp_path: Path, services: Services, server: Json) -> None:
    config = config_of(document({"/x": {"get": operation()}}, servers=[server]), tmp_path, connection=None)
    config.write_text(config.read_text().replace('"connection":null,', ""))
    (tmp_path / "shop.openapi.json").write_text(
        json.dumps(document({"/x": {"get": operation()}}, servers=[server]), indent=1)
    )
    with pytest.raises(ConfigError, match=r"GET /x: its server .* has no default for `region`"):
        compiled(config, services)


def test_star_includes_every_operation(tmp_path: Path) -> None:
    given = document({"/x": {"get": operation(operationId="x"), "post": operation()}, "/y": {"delete": operation()}})
    for pattern in ("*", "* *", "* /*"):
        assert len(offer(given, tmp_path, include={"operations": pattern}).made) == 3
    assert len(offer(given, tmp_path, include={"operations": "POST *"}).made) == 1


def test_entry_without_tools_is_a_warning(tmp_path: Path) -> None:
    given = document({"/x": {"post": operation()}})
    [(place, message)] = offer(given, tmp_path, include={}).warnings
    assert (place, message) == ((), "no tools or resources: 1 × without `include`, only GET and HEAD are tools")


@pytest.mark.parametrize("text", ["漢字" * 2000, "a" * 5000, "see " + "漢字" * 2000])
def test_long_description_without_spaces_is_truncated_at_its_end(tmp_path: Path, text: str) -> None:
    [made] = offer(document({"/x": {"get": operation(description=text)}}), tmp_path).made
    assert 2040 <= len(made.data["description"].encode()) <= 2048
