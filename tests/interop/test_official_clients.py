"""Results of both versions of the official Python client on each binding."""

from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.conftest import CELLS, Cell, Plan, walk
from tests.interop.official_clients import PROJECT, OfficialClients

pytestmark = [pytest.mark.build, pytest.mark.parametrize("cell", CELLS, ids=str)]

DEMO: Final = PROJECT / "config" / "demo.yaml"
DEMO_PLAN: Final = Plan(
    arguments={
        "search_text": {"text": "YAML"},
        "measure_text": {"text": "one two three"},
        "count_down": {"start": 3, "pause": 0},
        "bar_chart": {"values": [1, 2.5, 3]},
        "review_document": {"document": "README.md"},
    },
    uris=["daemon://ready"],
    completions=[
        ["prompt", "review_document", "document", "read"],
        ["template", "daemon://{page}", "page", "he"],
    ],
)
ODD_NAMES: Final = ["my file.md", "a:b.md", "[x].md", "50%.md", "c#.md", "q?.md", "ü.md", "plain.md"]


async def test_everything_of_the_demo_works(clients: OfficialClients, cell: Cell) -> None:
    seen = await walk(clients, cell, DEMO, DEMO_PLAN)
    assert seen["server"] == "demo"
    _check_tools(seen)
    _check_resources(seen)
    _check_prompts(seen)
    completions = [completion["completion"]["values"] for completion in seen["completions"]]
    assert completions == [["README.md"], ["healthy"]]


def _check_tools(seen: dict[str, Any]) -> None:
    assert set(seen["calls"]) == {tool["name"] for tool in seen["tools"]}
    assert len(seen["calls"]) >= 7
    for name, result in seen["calls"].items():
        assert not result.get("isError"), (name, result)
    assert seen["calls"]["measure_text"]["structuredContent"]["words"] == 3
    assert seen["calls"]["count_down"]["content"][0]["text"] == "Lift-off."
    assert seen["calls"]["bar_chart"]["content"][0]["mimeType"] == "image/png"
    assert "README.md" in seen["calls"]["count_words"]["content"][0]["text"]
    assert [value for value, *_ in seen["progress"]["count_down"]] == [0, 1, 2, 3]
    assert any("README.md" in message for *_, message in seen["progress"]["count_words"])


def _check_resources(seen: dict[str, Any]) -> None:
    assert set(seen["reads"]) == {resource["uri"] for resource in seen["resources"]}
    assert {"project:///README.md", "demo://about"} <= set(seen["reads"])
    for uri, result in seen["reads"].items():
        [contents] = result["contents"]
        assert contents["uri"] == uri
    [readme] = seen["reads"]["project:///README.md"]["contents"]
    assert readme["text"] == (PROJECT / "README.md").read_text()
    assert readme["mimeType"] == "text/markdown"
    assert {template["uriTemplate"] for template in seen["templates"]} == {"project:///{+path}", "daemon://{page}"}
    for result in seen["more_reads"].values():
        [contents] = result["contents"]
        assert '"ready":true' in contents["text"]


def _check_prompts(seen: dict[str, Any]) -> None:
    assert set(seen["gets"]) == {prompt["name"] for prompt in seen["prompts"]}
    assert len(seen["gets"]) >= 2
    blocks = [message["content"] for message in seen["gets"]["review_document"]["messages"]]
    assert blocks[-1]["resource"]["uri"] == "project:///README.md"
    assert blocks[-1]["resource"]["text"].startswith("# mcp-gateway")


async def test_files_with_unusual_names_can_be_listed_and_read(
    clients: OfficialClients, cell: Cell, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    for name in ODD_NAMES:
        (tmp_path / "notes" / name).write_text(f"This is {name}.")
    config = tmp_path / "config.yaml"
    config.write_text('resources: {notes: {files: "notes/*.md"}}\n')
    seen = await walk(clients, cell, config, Plan())
    assert {resource["name"] for resource in seen["resources"]} == set(ODD_NAMES)
    texts = {result["contents"][0]["text"] for result in seen["reads"].values()}
    assert texts == {f"This is {name}." for name in ODD_NAMES}
