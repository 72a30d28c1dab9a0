"""Selection and names of operations. Skipped ones are always reported."""

import random
import re
from pathlib import Path
from typing import Final

import orjson
import pytest

from gateway.json_types import Json
from gateway.openapi.operations import MAX_NAME, names_of
from tests.openapi.shop_documents import document, offer, operation

PATHS: Final = {
    "/items": {
        "get": operation(operationId="listItems", tags=["items"]),
        "post": operation(operationId="createItem", tags=["items"]),
        "trace": operation(operationId="traceItems"),
    },
    "/items/{id}": {
        "get": operation(operationId="getItem", tags=["items"]),
        "delete": operation(operationId="deleteItem", tags=["items"], deprecated=True),
    },
    "/orders": {"get": operation(tags=["orders"], deprecated=True)},
}
EVERYTHING: Final = {"listItems", "createItem", "getItem", "deleteItem", "get_orders"}

CHOICES = [
    ({"include": {}}, {"listItems", "getItem", "get_orders"}),
    ({}, EVERYTHING),
    ({"include": {"tags": ["items"]}}, EVERYTHING - {"get_orders"}),
    ({"include": {"tags": ["items"], "methods": ["get"]}}, {"listItems", "getItem"}),
    ({"include": {"tags": ["items", "orders"]}}, EVERYTHING),
    ({"include": {"operations": ["getItem", "POST /items"]}}, {"getItem", "createItem"}),
    ({"include": {"operations": ["* /items*"]}}, EVERYTHING - {"get_orders"}),
    ({"include": {"operations": ["*Item"]}}, {"createItem", "getItem", "deleteItem"}),
    ({"exclude": {"deprecated": True}}, EVERYTHING - {"get_orders", "deleteItem"}),
    ({"exclude": {"deprecated": True, "tags": ["orders"]}}, EVERYTHING - {"get_orders"}),
    ({"exclude": {"methods": ["get"]}}, {"createItem", "deleteItem"}),
]


@pytest.mark.parametrize(("entry", "expected"), CHOICES)
def test_filters_select_operations_and_report_the_others(tmp_path: Path, entry: Json, expected: set[str]) -> None:
    offered = offer(document(PATHS), tmp_path, **entry)
    assert {each.name for each in offered.made} == {f"shop_{name}" for name in expected}
    keys: set[str] = {f"{method.upper()} {path}" for path, item in PATHS.items() for method in item}
    assert {each.operation for each in offered.made} | {operation for operation, _ in offered.left_out} == keys
    assert all(reason for _, reason in offered.left_out)


@pytest.mark.parametrize("place", ["root", "path", "operation"])
def test_x_mcp_disables_names_and_describes_operations(tmp_path: Path, place: str) -> None:
    get: dict[str, Json] = operation(operationId="getItem")
    item: dict[str, Json] = {"get": get}
    given = document({"/items": item, "/on": {"get": operation(**{"x-mcp": {"enabled": True, "name": "on"}})}})
    {"root": given, "path": item, "operation": get}[place]["x-mcp"] = {"enabled": False}
    offered = offer(given, tmp_path)
    assert [each.name for each in offered.made] == ["shop_on"]
    assert [reason for _, reason in offered.left_out] == ["`x-mcp: {enabled: false}` disables it"]


def test_name_comes_from_override_x_mcp_operation_id_or_path(tmp_path: Path) -> None:
    paths = {
        "/a": {"get": operation(operationId="a", **{"x-mcp": {"name": "b", "description": "Said by x-mcp."}})},
        "/c/{d}": {"get": operation()},
        "/e": {"get": operation(operationId="repos/get e")},
    }
    offered = offer(document(paths), tmp_path, override={"GET /e": {"name": "f"}}, prefix="")
    assert [each.name for each in offered.made] == ["b", "get_c_d", "f"]
    assert offered.made[0].data["description"] == "Said by x-mcp."


def test_x_mcp_of_a_path_applies_to_its_operations(tmp_path: Path) -> None:
    own = operation(**{"x-mcp": {"description": "Said by the operation."}})
    item = {"x-mcp": {"name": "items", "description": "Said by the path."}, "get": operation(), "post": own}
    given = document({"/items": item, "/z": {"get": operation()}})
    given["x-mcp"] = {"name": "shop", "description": "Us."}
    offered = offer(given, tmp_path, prefix="")
    assert [each.name.rpartition("_")[0] for each in offered.made] == ["items", "items", "get"]
    said = [each.data["description"] for each in offered.made]
    assert said == ["Said by the path.", "Said by the operation.", "GET /z"]


def test_names_are_valid_unique_and_do_not_depend_on_order() -> None:
    long = "a_word_" * 12
    wanted = {f"GET /{n}": f"{long}{n}" for n in range(40)}
    wanted |= {f"POST /{n}": "same" for n in range(5)} | {f"PUT /{n}": f"ü{n}#!" for n in range(5)}
    names = names_of(wanted, prefix="shop_")
    shuffled = list(wanted.items())
    random.Random(7).shuffle(shuffled)
    assert names_of(dict(shuffled), prefix="shop_") == names
    assert len(set(names.values())) == len(wanted)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names.values())
    assert names["GET /7"].startswith("shop_a_word_")
    assert re.fullmatch(r"shop_same_[0-9a-f]{6}", names["POST /1"])
    assert len(names["GET /7"]) <= MAX_NAME


def test_tools_do_not_depend_on_the_order_of_the_document(tmp_path: Path) -> None:
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("a[b]", "a_b", "a.b", "id")]
    paths = {**PATHS, "/x/{id}": {"get": operation(parameters=parameters)}}

    def shuffled(value: Json, dice: random.Random) -> Json:
        if isinstance(value, dict):
            items = list(value.items())
            dice.shuffle(items)
            return {key: shuffled(member, dice) for key, member in items}
        if isinstance(value, list):
            return dice.sample([shuffled(item, dice) for item in value], len(value))
        return value

    def tools(given: Json) -> dict[str, bytes]:
        made = offer(given, tmp_path).made
        return {each.name: orjson.dumps(_unordered(each.data), option=orjson.OPT_SORT_KEYS) for each in made}

    expected = tools(document(paths))
    for seed in range(10):
        assert tools(shuffled(document(paths), random.Random(seed))) == expected


def _unordered(value: Json) -> Json:
    if isinstance(value, dict):
        return {
            key: sorted(member) if key in {"tags", "required"} else _unordered(member) for key, member in value.items()
        }
    return value


def test_too_many_tools_are_a_warning_that_names_include(tmp_path: Path) -> None:
    paths = {f"/{n}": {"get": operation()} for n in range(41)}
    [(_, message)] = offer(document(paths), tmp_path).warnings
    assert "41 tools" in message
    assert "`include`" in message


def test_unmatched_patterns_and_overrides_are_warnings(tmp_path: Path) -> None:
    entry: dict[str, Json] = {"include": {"operations": ["getItm", "getItem"]}, "override": {"getItm": {"name": "x"}}}
    warnings = offer(document(PATHS), tmp_path, **entry).warnings
    assert [place for place, _ in warnings] == [("include", "operations"), ("override", "getItm")]


@pytest.mark.parametrize(
    ("root", "message"),
    [
        ({"swagger": "1.2"}, "is Swagger 1.2. Use OpenAPI 3.x or Swagger 2.0"),
        ({"openapi": "4.0"}, "is OpenAPI 4.0. Use OpenAPI 3.x or Swagger 2.0"),
        ({}, "is not OpenAPI. Use OpenAPI 3.x or Swagger 2.0"),
    ],
)
def test_other_kinds_of_documents_are_rejected(tmp_path: Path, root: Json, message: str) -> None:
    with pytest.raises(Exception, match=re.escape(message)):
        offer(root, tmp_path)
