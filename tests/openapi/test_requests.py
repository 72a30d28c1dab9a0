"""Requests of OpenAPI tools: parameters in every style, bodies of every kind, hostile values."""

import json
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, quote

import pytest

from gateway.errors import ExecutionError
from gateway.executors.shared_services import Services
from gateway.json_types import Json
from tests.openapi.shop_documents import compiled, config_of, document, inputs_of, offer, operation, request_of

TEXT: Final = {"type": "string"}
LIST: Final = {"type": "array", "items": {"type": "string"}}
OBJECT: Final = {"type": "object", "additionalProperties": {"type": "string"}}
RGB: Final = {"R": "1", "G": "2"}


def with_parameter(place: str, schema: Json, **members: Json) -> dict[str, Json]:
    parameter = {"name": "c", "in": place, "required": True, "schema": schema, **members}
    path = "/x/{c}" if place == "path" else "/x"
    return document({path: {"get": operation(operationId="x", parameters=[parameter])}})


PARAMETERS = [
    ("path", TEXT, {}, "a/b", "/v1/x/a%2Fb"),
    ("path", LIST, {}, ["a", "b,c"], "/v1/x/a,b%2Cc"),
    ("path", OBJECT, {}, RGB, "/v1/x/G,2,R,1"),
    ("path", OBJECT, {"explode": True}, RGB, "/v1/x/G=2,R=1"),
    ("path", TEXT, {"style": "label"}, "a", "/v1/x/.a"),
    ("path", LIST, {"style": "label", "explode": True}, ["a", "b"], "/v1/x/.a.b"),
    ("path", TEXT, {"style": "matrix"}, "a", "/v1/x/;c=a"),
    ("path", LIST, {"style": "matrix"}, ["a", "b"], "/v1/x/;c=a,b"),
    ("path", LIST, {"style": "matrix", "explode": True}, ["a", "b"], "/v1/x/;c=a;c=b"),
    ("query", TEXT, {}, "a b&d=1", "/v1/x?c=a%20b%26d%3D1"),
    ("query", TEXT, {"allowReserved": True}, "a/b&d=1", "/v1/x?c=a/b%26d%3D1"),
    ("query", LIST, {}, ["a", "b"], "/v1/x?c=a&c=b"),
    ("query", LIST, {"explode": False}, ["a", "b"], "/v1/x?c=a,b"),
    ("query", LIST, {"style": "spaceDelimited", "explode": False}, ["a", "b"], "/v1/x?c=a%20b"),
    ("query", LIST, {"style": "pipeDelimited", "explode": False}, ["a", "b"], "/v1/x?c=a%7Cb"),
    ("query", OBJECT, {}, RGB, "/v1/x?R=1&G=2"),
    ("query", OBJECT, {"explode": False}, RGB, "/v1/x?c=R,1,G,2"),
    ("query", OBJECT, {"style": "deepObject", "explode": True}, RGB, "/v1/x?c%5BR%5D=1&c%5BG%5D=2"),
]


@pytest.mark.parametrize(("place", "schema", "members", "value", "target"), PARAMETERS)
async def test_parameter_has_its_style(  # one row for each style and type
    tmp_path: Path, services: Services, place: str, schema: Json, members: Json, value: Json, target: str
) -> None:
    catalog = compiled(config_of(with_parameter(place, schema, **members), tmp_path), services)
    assert request_of(catalog, "shop_x", {"c": value}).url.raw_path_qs == target


async def test_content_parameter_is_json(tmp_path: Path, services: Services) -> None:
    given = with_parameter("query", TEXT, content={"application/json": {"schema": OBJECT}})
    catalog = compiled(config_of(given, tmp_path), services)
    assert request_of(catalog, "shop_x", {"c": {"a": "1"}}).url.raw_query_string == "c=%7B%22a%22%3A%221%22%7D"


@pytest.mark.parametrize(
    ("place", "schema", "value", "field"),
    [
        ("header", TEXT, "a", ("c", "a")),
        ("header", LIST, ["a", "b"], ("c", "a,b")),
        ("cookie", TEXT, "a;b", ("Cookie", "c=a%3Bb")),
    ],
)
async def test_header_fields_and_cookies_are_sent(
    tmp_path: Path, services: Services, place: str, schema: Json, value: Json, field: tuple[str, str]
) -> None:
    catalog = compiled(config_of(with_parameter(place, schema), tmp_path), services)
    headers = request_of(catalog, "shop_x", {"c": value}).headers
    assert [(each.name, each.value) for each in headers] == [field]


@pytest.mark.parametrize(
    "name", ["Authorization", "host", "Content-Type", "Content-Length", "Mcp-Session-Id", "Accept", "cookie"]
)
def test_reserved_header_fields_are_no_inputs(tmp_path: Path, name: str) -> None:
    parameters = [{"name": name, "in": "header", "schema": TEXT}, {"name": "X-A", "in": "header", "schema": TEXT}]
    [made] = offer(document({"/x": {"get": operation(parameters=parameters)}}), tmp_path).made
    assert list(inputs_of(made.data)) == ["X-A"]


async def test_inputs_of_the_same_name_get_a_suffix(tmp_path: Path, services: Services) -> None:
    parameters = [{"name": "id", "in": place, "schema": TEXT} for place in ("cookie", "header", "query")]
    body = {"content": {"application/json": {"schema": {"properties": {"id": TEXT, "b": TEXT}}}}}
    item = {
        "parameters": [{"name": "id", "in": "path", "required": True, "schema": TEXT}],
        "post": operation(operationId="x", parameters=parameters, requestBody=body),
    }
    catalog = compiled(config_of(document({"/x/{id}": item}), tmp_path), services)
    names = ["id", "id__query", "id__header", "id__cookie", "id__body"]
    assert set(catalog.tools["shop_x"].definition["inputSchema"]["properties"]) == {*names, "b"}
    request = request_of(catalog, "shop_x", {name: name for name in names})
    assert request.url.raw_path_qs == "/v1/x/id?id=id__query"
    assert {each.name: each.value for each in request.headers}["Cookie"] == "id=id__cookie"
    assert isinstance(request.body, bytes)
    assert json.loads(request.body) == {"id": "id__body"}


def test_operation_parameter_overrides_that_of_its_path(tmp_path: Path) -> None:
    item = {
        "parameters": [{"name": "a", "in": "query", "required": True, "schema": TEXT}],
        "get": operation(parameters=[{"name": "a", "in": "query", "schema": {"type": "integer"}}]),
    }
    [made] = offer(document({"/x": item}), tmp_path).made
    assert inputs_of(made.data) == {"a": "integer?"}


def with_body(content: Json, *, required: bool = True) -> dict[str, Json]:
    body = {"required": required, "content": content}
    return document({"/x": {"post": operation(operationId="x", requestBody=body)}})


def of_object(**properties: Json) -> dict[str, Json]:
    return {"schema": {"type": "object", "properties": properties}}


NESTED: Final = {"type": "object", "properties": {"b": LIST}}
BODIES = [
    ({"application/json": of_object(a=TEXT, n=NESTED)}, {"a": "1"}, "application/json", '{"a":"1"}'),
    ({"application/vnd.a+json": {"schema": LIST}}, {"body": ["1"]}, "application/vnd.a+json", '["1"]'),
    ({"*/*": of_object(a=TEXT)}, {"a": "1"}, "application/json", '{"a":"1"}'),
    ({"application/x-www-form-urlencoded": of_object(a=TEXT, l=LIST)}, {"a": "&=", "l": ["1", "2"]},
     "application/x-www-form-urlencoded", "a=%26%3D&l=1&l=2"),
    ({"application/x-www-form-urlencoded": of_object(n=NESTED)}, {"n": {"b": ["1"]}},
     "application/x-www-form-urlencoded", "n%5Bb%5D%5B0%5D=1"),
    ({"application/x-www-form-urlencoded": {**of_object(l=LIST), "encoding": {"l": {"explode": False}}}},
     {"l": ["1", "2"]}, "application/x-www-form-urlencoded", "l=1%2C2"),
    ({"text/plain": {"schema": TEXT}}, {"body": "hello"}, "text/plain; charset=utf-8", "hello"),
    ({"application/xml": {"schema": {"type": "object"}}}, {"body": "<a/>"}, "application/xml", "<a/>"),
    ({"application/xml": {}, "application/json": of_object(a=TEXT)}, {"a": "1"}, "application/json", '{"a":"1"}'),
]  # fmt: skip


@pytest.mark.parametrize(("content", "arguments", "media_type", "body"), BODIES)
async def test_body_has_the_first_supported_media_type(  # one row for each kind
    tmp_path: Path, services: Services, content: Json, arguments: Json, media_type: str, body: str
) -> None:
    catalog = compiled(config_of(with_body(content), tmp_path), services)
    request = request_of(catalog, "shop_x", arguments)
    assert {each.name: each.value for each in request.headers}["Content-Type"] == media_type
    assert isinstance(request.body, bytes)
    assert request.body.decode() == body


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"multipart/related": {}}, "its body has no supported media type: multipart/related"),
        ({"application/x-www-form-urlencoded": {"schema": LIST}}, "is not an object with known fields"),
    ],
)
def test_operation_with_an_unsupported_body_is_omitted_and_named(tmp_path: Path, content: Json, reason: str) -> None:
    offered = offer(with_body(content), tmp_path)
    assert offered.made == []
    assert reason in offered.left_out[0][1]


async def test_optional_body_has_all_required_members_or_none(tmp_path: Path, services: Services) -> None:
    schema = {"type": "object", "required": ["a", "b"], "properties": {"a": TEXT, "b": TEXT, "c": TEXT}}
    given = with_body({"application/json": {"schema": schema}}, required=False)
    catalog = compiled(config_of(given, tmp_path), services)
    nothing = request_of(catalog, "shop_x", {})
    assert (nothing.body, nothing.headers) == (None, ())
    assert request_of(catalog, "shop_x", {"a": "1", "b": "2"}).body == b'{"a":"1","b":"2"}'
    for lacking in ({"a": "1"}, {"c": "3"}, {"a": "1", "c": "3"}):
        with pytest.raises(ExecutionError, match="Invalid arguments"):
            request_of(catalog, "shop_x", lacking)


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ({"allOf": [{"$ref": "#/components/schemas/A"}, {"properties": {"b": TEXT}, "required": ["a"]}]}, {"a", "b"}),
        ({"oneOf": [{"$ref": "#/components/schemas/A"}, {"properties": {"b": TEXT}}]}, {"body"}),
        ({"type": "object", "additionalProperties": TEXT}, {"body"}),
        ({"type": "object", "properties": {"a": TEXT}, "additionalProperties": TEXT}, {"body"}),
        ({"$ref": "#/components/schemas/A"}, {"a"}),
        ({"properties": {"a": {**TEXT, "readOnly": True}, "b": {**TEXT, "writeOnly": True}}}, {"b"}),
    ],
)
def test_object_body_is_flattened(tmp_path: Path, schema: Json, names: set[str]) -> None:
    components = {"schemas": {"A": {"type": "object", "properties": {"a": TEXT}}}}
    given = {**with_body({"application/json": {"schema": schema}}), "components": components}
    [made] = offer(given, tmp_path).made
    assert set(inputs_of(made.data)) == names


FORM: Final = "application/x-www-form-urlencoded"
BY_CARD: Final = {"properties": {"kind": {"const": "card"}, "number": TEXT}, "required": ["kind", "number"]}
BY_BANK: Final = {"properties": {"kind": {"const": "bank"}, "iban": TEXT}, "required": ["kind", "iban"]}


@pytest.mark.parametrize("keyword", ["oneOf", "anyOf"])
@pytest.mark.parametrize("media_type", [FORM, "multipart/form-data"])
async def test_form_has_the_fields_of_all_alternatives(
    tmp_path: Path, services: Services, keyword: str, media_type: str
) -> None:
    schema = {"properties": {"amount": {"type": "integer"}}, "required": ["amount"], keyword: [BY_CARD, BY_BANK]}
    given = with_body({media_type: {"schema": schema}})
    catalog = compiled(config_of(given, tmp_path), services)
    definition = catalog.tools["shop_x"].definition["inputSchema"]
    assert definition["properties"].keys() == {"amount", "kind", "number", "iban"}
    assert set(definition["required"]) == {"amount", "kind"}
    assert definition["properties"]["kind"] == {"anyOf": [{"const": "card"}, {"const": "bank"}]}
    if media_type == FORM:
        body = request_of(catalog, "shop_x", {"amount": 1, "kind": "bank", "iban": "x"}).body
        assert parse_qs(str(body, "ascii") if isinstance(body, bytes) else "") == {
            "amount": ["1"],
            "kind": ["bank"],
            "iban": ["x"],
        }


def test_form_without_an_alternative_that_is_an_object_is_not_a_tool(tmp_path: Path) -> None:
    given = with_body({FORM: {"schema": {"oneOf": [LIST, TEXT]}}})
    [(_, why)] = offer(given, tmp_path).left_out
    assert "is not an object with known fields" in why


async def test_required_member_without_a_declaration_is_an_input(tmp_path: Path, services: Services) -> None:
    schema = {"type": "object", "properties": {"a": TEXT}, "required": ["b"]}
    catalog = compiled(config_of(with_body({"application/json": {"schema": schema}}), tmp_path), services)
    assert catalog.tools["shop_x"].definition["inputSchema"]["required"] == ["b"]
    assert request_of(catalog, "shop_x", {"b": [1]}).body == b'{"b":[1]}'
    with pytest.raises(ExecutionError, match="Invalid arguments"):
        request_of(catalog, "shop_x", {"a": "1"})


def test_required_member_that_is_read_only_is_not_an_input(tmp_path: Path) -> None:
    schema = {"properties": {"a": TEXT, "id": {**TEXT, "readOnly": True}}, "required": ["id"]}
    [made] = offer(with_body({"application/json": {"schema": schema}}), tmp_path).made
    assert set(inputs_of(made.data)) == {"a"}


async def test_hidden_inputs_are_never_sent_and_set_values_always(tmp_path: Path, services: Services) -> None:
    parameters = [
        {"name": name, "in": place, "required": name == "id", "schema": TEXT}
        for name, place in (("id", "path"), ("trace", "query"), ("locale", "query"))
    ]
    body = {"content": {"application/json": of_object(kind=TEXT, n={"type": "integer"}, a=TEXT)}}
    given = document({"/x/{id}": {"post": operation(operationId="x", parameters=parameters, requestBody=body)}})
    override = {"hide": ["trace", "kind"], "set": {"locale": "en&x", "n": 3, "id": "a/b"}}
    catalog = compiled(config_of(given, tmp_path, override={"x": override}), services)
    assert list(catalog.tools["shop_x"].definition["inputSchema"]["properties"]) == ["a"]
    request = request_of(catalog, "shop_x", {"a": "1"})
    assert request.url.raw_path_qs == "/v1/x/a%2Fb?locale=en%26x"
    assert request.body == b'{"n":3,"a":"1"}'


async def test_interpolated_text_in_a_set_value_is_literal(
    tmp_path: Path, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", 'a"/{{ 7*7 }}{b}')
    parameters = [{"name": name, "in": place, "schema": {}} for name, place in (("id", "path"), ("q", "query"))]
    given = document({"/x/{id}": {"get": operation(operationId="x", parameters=parameters)}})
    fixed = {"id": "${env:SHOP_KEY}", "q": "x${env:SHOP_KEY}"}
    catalog = compiled(config_of(given, tmp_path, override={"x": {"set": fixed}}), services)
    url = request_of(catalog, "shop_x", {}).url
    assert url.raw_path == "/v1/x/" + quote('a"/{{ 7*7 }}{b}', safe="")
    assert parse_qs(url.raw_query_string) == {"q": ['xa"/{{ 7*7 }}{b}']}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"hide": ["c"]}, "`c` is required, so it cannot be hidden. Use `set`"),
        ({"set": {"d": 1}}, "names `d`, but the inputs are c"),
        ({"set": {"c": [1]}}, "`set` of a parameter must be text, a number or a boolean, not a list or an object"),
    ],
)
def test_impossible_override_is_an_error_at_its_place(tmp_path: Path, override: Json, message: str) -> None:
    offered = offer(with_parameter("query", TEXT), tmp_path, override={"x": override})
    assert offered.errors[0][0] == ("override", "x")
    assert message in offered.errors[0][1]


HOSTILE: Final = [
    "../admin", "..%2fadmin", "%2e%2e/%2e%2e", "a#b", "a?admin=1", "a&admin=1", "a;admin=1", "a\r\nX-Admin: 1",
    "a\n", "\0", "{{ 7*7 }}", "{admin}", "${env:HOME}", '","admin":"1', "a]=1&c[admin", "%00", "é\u202e", "a" * 70_000,
]  # fmt: skip
PLACES: Final[dict[str, Json]] = {
    "path": with_parameter("path", TEXT),
    "query": with_parameter("query", TEXT),
    "list": with_parameter("query", LIST),
    "deep": with_parameter("query", OBJECT, style="deepObject"),
    "header": with_parameter("header", TEXT),
    "cookie": with_parameter("cookie", TEXT),
    "json": with_body({"application/json": of_object(c=TEXT)}),
    "form": with_body({"application/x-www-form-urlencoded": of_object(c=TEXT)}),
}


@pytest.mark.parametrize("place", PLACES)
async def test_hostile_value_is_encoded_or_rejected(tmp_path: Path, services: Services, place: str) -> None:
    """As a control, a harmless value of similar length is sent too."""
    catalog = compiled(config_of(PLACES[place], tmp_path), services)

    def shape(value: str) -> tuple[object, ...]:
        argument = {"list": [value], "deep": {"k": value}}.get(place, value)
        request = request_of(catalog, "shop_x", {"c": argument})
        body = request.body if isinstance(request.body, bytes) else b""
        fields = sorted(json.loads(body)) if place == "json" else body.count(b"&") + body.count(b"=")
        names = [each.name for each in request.headers]
        cookies = [each.value.count(";") for each in request.headers if each.name == "Cookie"]
        assert not any("\r" in each.value or "\n" in each.value for each in request.headers)
        url = request.url
        return (url.host, len(url.raw_parts), [*url.query], url.raw_fragment, names, cookies, fields)

    control = shape("harmless")
    for value in HOSTILE:
        try:
            found = shape(value)
        except ExecutionError:
            continue
        assert found == control, value[:40]
