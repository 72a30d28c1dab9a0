"""Ranking of tools for a query."""

from typing import Any

import pytest

from gateway.catalog.search_tools import ToolIndex, words

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
def test_matching_tools_are_ranked(query: str, found: list[str]) -> None:
    index = ToolIndex(TOOLS)
    assert [TOOLS[each]["name"] for each in index.ranked(query, limit=5)][: len(found)] == found
    assert bool(index.ranked(query, limit=5)) is bool(found)


def test_search_result_is_limited_and_stable() -> None:
    tools = [{"name": f"tool_{number}", "description": "The same."} for number in range(9)]
    assert ToolIndex(tools).ranked("same tool", limit=3) == [0, 1, 2]


def test_empty_index_finds_nothing() -> None:
    assert ToolIndex([]).ranked("anything", limit=5) == []
    assert ToolIndex([{}]).ranked("anything", limit=5) == []


def test_identifiers_are_split_into_words() -> None:
    assert words("getHTTPStatus list_users v2 class") == ["get", "httpstatus", "list", "users", "v2", "class"]


@pytest.mark.parametrize(
    "forms",
    [
        "repository repositories",
        "create creates creating created",
        "branch branches branching",
        "movie movies",
        "address addresses",
        "status statuses",
        "database databases",
        "run runs running",
        "add adds adding added",
        "call calls calling",
        "deploy deploys deploying",
        "day days",
    ],
)
def test_forms_of_a_word_match(forms: str) -> None:
    first, *_ = forms.split()
    for form in forms.split():
        assert ToolIndex([{"name": first}]).ranked(form, limit=1) == [0]
        assert ToolIndex([{"name": form}]).ranked(first, limit=1) == [0]


@pytest.mark.parametrize(("query", "name"), [("deploy", "deployment"), ("its", "is"), ("car", "cat")])
def test_short_words_match_only_longer_forms(query: str, name: str) -> None:
    assert bool(ToolIndex([{"name": name}]).ranked(query, limit=1)) is name.startswith(query)


def test_other_words_with_the_same_start_rank_last() -> None:
    tools = [{"name": name} for name in ("report_bug", "list_repo", "get_repo", "delete_repo")]
    assert ToolIndex(tools).ranked("repo", limit=4) == [1, 2, 3, 0]


UNSPACED = {
    "删除仓库中的文件": ["删除", "仓库", "文件", "请删除文件", "删"],
    "リポジトリを検索する": ["検索", "リポジトリ", "ﾘﾎﾟｼﾞﾄﾘ", "検索したい"],
    "저장소를 삭제합니다": ["저장소", "삭제", "저장소의 목록"],
    "ค้นหาเอกสารในระบบ": ["เอกสาร", "ค้นหา"],
}


@pytest.mark.parametrize(("text", "query"), [(text, query) for text, queries in UNSPACED.items() for query in queries])
def test_tools_are_found_in_languages_without_spaces(text: str, query: str) -> None:
    tools = [{"name": "other", "description": "天気 날씨 อากาศ 重启"}, {"name": "wanted", "description": text}]
    assert list(ToolIndex(tools).ranked(query, limit=1)) == [1]
