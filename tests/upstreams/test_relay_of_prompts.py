"""Prompts and completions of upstreams."""

from pathlib import Path

import pytest

from gateway.json_types import Json, JsonObject
from gateway.wire import meta
from tests.upstreams.scripted_server import Answers, relayed

ARGUMENTS = [
    {"name": "a", "description": "first", "type": "string", "_meta": {"x": 1}},
    {"name": "b", "required": True},
]


def with_prompt(**result: Json) -> Answers:
    return {
        "prompts/list": {"prompts": [{"name": "p", "description": "of the list", "arguments": ARGUMENTS}]},
        "prompts/get": {"messages": [], **result},
    }


@pytest.mark.parametrize(
    ("result", "override", "expected"),
    [
        ({"description": "of this one"}, "", {"description": "of this one"}),
        ({}, "", {}),
        ({"description": "of this one"}, "description: ours", {"description": "ours"}),
        (
            {"_meta": {"com.example/x": 1, "io.modelcontextprotocol/serverInfo": {}}},
            "",
            {"_meta": {"com.example/x": 1}},
        ),
    ],
)
async def test_prompt_keeps_its_description_and_metadata(
    tmp_path: Path, result: JsonObject, override: str, expected: JsonObject
) -> None:
    more = f", prompts: {{override: {{p: {{{override}}}}}}}"
    async with relayed(tmp_path, with_prompt(**result), more) as (_, client, _):
        got = dict(await client.request("prompts/get", {"name": "p", "arguments": {"b": "x"}}))

    fields = {name: value for name, value in got.pop("_meta").items() if name != meta.META_SERVER_INFO}
    assert {**got, **({"_meta": fields} if fields else {})} == {"messages": [], "resultType": "complete", **expected}


async def test_prompt_arguments_are_listed_unchanged(tmp_path: Path) -> None:
    async with relayed(tmp_path, with_prompt()) as (server, client, _):
        [prompt] = (await client.request("prompts/list"))["prompts"]
        await client.prompt("p", b="x", more="y")

    assert prompt["arguments"] == ARGUMENTS
    assert server.params_of("prompts/get")[0]["arguments"] == {"b": "x", "more": "y"}


@pytest.mark.parametrize("capability", ["roots", "sampling", "elicitation"])
async def test_client_with_capabilities_gets_completions(tmp_path: Path, capability: str) -> None:
    completion = {"values": ["x"], "total": 250, "hasMore": True}
    answers = with_prompt() | {"completion/complete": {"completion": completion}}
    fields: Json = {meta.META_CLIENT_CAPABILITIES: {capability: {}}}
    params = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}, "_meta": fields}
    async with relayed(tmp_path, answers) as (server, client, _):
        assert (await client.request("completion/complete", params))["completion"] == completion
        assert len(server.params_of("completion/complete")) == 1
