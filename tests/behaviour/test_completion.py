"""Suggestions for arguments of prompts and variables of resource templates."""

from typing import Final

import pytest

from gateway.json_types import Json
from tests.behaviour.cells import cells
from tests.behaviour.client import Client
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")

ASKS: Final = {"type": "ref/prompt", "name": "asks"}
SUGGESTIONS: Final[list[tuple[Json, str, str, list[str]]]] = [
    (ASKS, "who", "a", ["ada", "alan", "grace"]),
    (ASKS, "who", "AL", ["alan"]),
    (ASKS, "who", "zz", []),
    (ASKS, "how", "", []),
    (ASKS, "no such argument", "", []),
    ({"type": "ref/resource", "uri": "test://guest/{name}"}, "name", "gr", ["grace"]),
    ({"type": "ref/resource", "uri": "test://note"}, "name", "", []),
]
INVALID: Final[list[Json]] = [
    {},
    {"ref": ASKS},
    {"ref": ASKS, "argument": {"name": "who"}},
    {"ref": ASKS, "argument": {"name": "who", "value": 3}},
    {"ref": {"type": "ref/prompt", "name": "no_such"}, "argument": {"name": "who", "value": ""}},
    {"ref": {"type": "ref/resource", "uri": "test://nothing"}, "argument": {"name": "x", "value": ""}},
    {"ref": {"type": "ref/tool", "name": "say"}, "argument": {"name": "text", "value": ""}},
    {"ref": ASKS, "argument": {"name": "who", "value": ""}, "context": {"arguments": {"how": 1}}},
]


@cells()
@requirement("completion/values")
async def test_suggestions_start_with_or_contain_the_typed_text(client: Client) -> None:
    context = {"context": {"arguments": {"how": "warmly"}}} if client.cell.revision >= "2025-06-18" else {}
    for reference, name, value, values in SUGGESTIONS:
        params = {"ref": reference, "argument": {"name": name, "value": value}, **context}
        answer = await client.ask("completion/complete", params)
        assert answer.result["completion"] == {"values": values, "total": len(values), "hasMore": False}


@cells()
@requirement("completion/most-values")
async def test_more_than_a_hundred_suggestions_are_truncated(client: Client) -> None:
    params = {"ref": {"type": "ref/prompt", "name": "crowded"}, "argument": {"name": "one", "value": ""}}
    completion = (await client.ask("completion/complete", params)).result["completion"]
    assert len(completion["values"]) == 100
    assert (completion["total"], completion["hasMore"]) == (150, True)


@cells()
@requirement("completion/invalid")
async def test_unknown_reference_is_invalid_params(client: Client) -> None:
    for params in INVALID:
        assert (await client.ask("completion/complete", params)).error["code"] == -32602, params
