"""Size limits of results of upstreams."""

from pathlib import Path
from typing import Final

import pytest

from gateway import exact_json
from gateway.errors import RpcError
from gateway.json_types import Json, JsonObject
from tests.upstreams.scripted_server import OBJECT, Answers, relayed

LARGE: Final = "x" * 200_000
SMALL: Final = {"type": "text", "text": "small"}
BLOCKS: Final[list[JsonObject]] = [
    {"type": "image", "data": LARGE, "mimeType": "image/png"},
    {"type": "audio", "data": LARGE, "mimeType": "audio/wav"},
    {"type": "resource", "resource": {"uri": "a://b", "text": LARGE}},
    {"type": "resource", "resource": {"uri": "a://b", "blob": LARGE}},
    {"type": "resource_link", "uri": "a://b", "name": LARGE},
    {"type": "text", "text": "a", "_meta": {"x": LARGE}},
]


def answering(result: JsonObject) -> Answers:
    return {
        "tools/list": {"tools": [{"name": "t", "inputSchema": OBJECT}]},
        "tools/call": result,
        "prompts/list": {"prompts": [{"name": "p", "arguments": [{"name": "a"}]}]},
        "prompts/get": {"messages": [{"role": "user", "content": SMALL}], **result},
        "completion/complete": {"completion": {"values": [LARGE, "small"]}},
    }


def limit(overflow: str = "truncate") -> str:
    return f", tools: {{override: {{t: {{output: {{max_size: 1KiB, overflow: {overflow}}}}}}}}}"


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: str(block["type"]))
@pytest.mark.parametrize("overflow", ["truncate", "resource", "error"])
async def test_too_large_block_is_omitted(tmp_path: Path, block: JsonObject, overflow: str) -> None:
    async with relayed(tmp_path, answering({"content": [SMALL, block, SMALL]}), limit(overflow)) as (_, client, _):
        result = await client.call("t")

    assert len(exact_json.dumps(result)) < 4096
    assert result.get("isError", False) is (overflow == "error")
    assert "max_size" in str(result["content"])
    assert result["content"].count(SMALL) == (0 if overflow == "error" else 2)


async def test_blocks_are_bounded_together(tmp_path: Path) -> None:
    async with relayed(tmp_path, answering({"content": [{**SMALL, "text": "x" * 900}] * 100}), limit()) as (
        _,
        client,
        _,
    ):
        assert len(exact_json.dumps(await client.call("t"))) < 4096


async def test_default_limit_allows_images(tmp_path: Path) -> None:
    image = {"type": "image", "data": "x" * 1_000_000, "mimeType": "image/png"}
    async with relayed(tmp_path, answering({"content": [image]})) as (_, client, _):
        assert (await client.call("t"))["content"] == [image]


async def test_metadata_of_results_is_bounded(tmp_path: Path) -> None:
    result = {"content": [SMALL], "_meta": {"x": LARGE}}
    async with relayed(tmp_path, answering(result), limit()) as (_, client, _):
        assert len(exact_json.dumps(await client.call("t"))) < 4096


async def test_prompts_and_completions_are_bounded(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": {"type": "text", "text": LARGE}}]
    text = "defaults: {output: {max_size: 1KiB}}"
    async with relayed(tmp_path, answering({"messages": messages}), text=text) as (_, client, _):
        error = await client.error("prompts/get", {"name": "p"})
        reference = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}
        completion = (await client.request("completion/complete", reference))["completion"]

    assert "too large" in error.message
    assert completion["values"] == ["small"]


async def test_errors_are_bounded(tmp_path: Path) -> None:
    def refuse(_params: JsonObject) -> Json:
        raise RpcError(-32000, LARGE, {"x": LARGE})

    async with relayed(tmp_path, {**answering({}), "tools/call": refuse}) as (_, client, _):
        error = await client.error("tools/call", {"name": "t"})

    assert (len(error.message), error.data) == (4096, None)
