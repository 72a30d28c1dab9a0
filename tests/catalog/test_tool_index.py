"""Search over tools: which of them fit some words, and in which order."""

from typing import Any

import pytest

from gateway.catalog.tool_index import ToolIndex, words

TOOLS: list[dict[str, Any]] = [
    {"name": "restart_service", "description": "Restart a service of the cluster."},
    {"name": "get_invoice", "description": "One invoice, with its lines and its customer."},
    {
        "name": "list_orders",
        "title": "Orders",
        "description": "Orders of a customer, newest first.",
        "inputSchema": {"properties": {"customerId": {"description": "The customer's number."}}},
    },
    {
        "name": "measure",
        "description": "Length, weight and temperature.",
        "inputSchema": {"properties": {"unit": True}},
    },
    {"name": "odd", "description": 7, "inputSchema": []},
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("restart the service", ["restart_service"]),
        ("INVOICES", ["get_invoice"]),
        ("order", ["list_orders"]),
        ("customer orders", ["list_orders", "get_invoice"]),
        ("customer_id", ["list_orders", "get_invoice"]),
        ("unit", ["measure"]),
        ("temp", ["measure"]),
        ("", []),
        ("!?", []),
        ("ünknown", []),
    ],
)
def test_the_tools_that_fit_come_best_first(query: str, found: list[str]) -> None:
    index = ToolIndex(TOOLS)
    assert [TOOLS[each]["name"] for each in index.ranked(query, limit=5)][: len(found)] == found
    assert bool(index.ranked(query, limit=5)) is bool(found)


def test_no_more_than_asked_for_are_found_and_equals_keep_their_order() -> None:
    tools = [{"name": f"tool_{number}", "description": "The same."} for number in range(9)]
    assert ToolIndex(tools).ranked("same tool", limit=3) == [0, 1, 2]


def test_there_may_be_nothing_to_look_through() -> None:
    assert ToolIndex([]).ranked("anything", limit=5) == []
    assert ToolIndex([{}]).ranked("anything", limit=5) == []


def test_words_are_taken_apart_where_programs_join_them() -> None:
    assert words("getHTTPStatus list_users v2 class") == ["get", "httpstatu", "list", "user", "v2", "class"]
