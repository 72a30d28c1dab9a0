"""Null parameters count as omitted, because several clients send them."""

from pathlib import Path

import pytest

from gateway.json_types import Json
from gateway.wire import meta
from tests.behaviour.inside import product

CONFIG = """
tools: {t: {description: d, input: {a: string?}, content: ["{{ a or 'none' }}"]}}
prompts: {p: {description: d, arguments: {a: {description: d, complete: [x]}}, messages: [{user: "{{ a or 'none' }}"}]}}
"""
TOOL = {"name": "t"}
PROMPT = {"name": "p"}
REFERENCE = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}
IN_META = [meta.META_CLIENT_INFO, meta.META_LOG_LEVEL, meta.META_PROGRESS_TOKEN]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {**TOOL, "arguments": None}),
        ("tools/call", {**TOOL, "arguments": {"a": None}}),
        ("tools/call", {**TOOL, "requestState": None, "task": None}),
        *(("tools/call", {**TOOL, "_meta": {name: None}}) for name in IN_META),
        ("tools/call", {**TOOL, "_meta": {meta.META_CLIENT_CAPABILITIES: {"elicitation": None, "extensions": None}}}),
        ("prompts/get", {**PROMPT, "arguments": None}),
        ("prompts/get", {**PROMPT, "arguments": {"a": None}}),
        ("completion/complete", {**REFERENCE, "context": None}),
        ("completion/complete", {**REFERENCE, "context": {"arguments": None}}),
        ("completion/complete", {**REFERENCE, "context": {"arguments": {"b": None}}}),
        ("tools/list", {"cursor": None}),
        ("resources/templates/list", {"cursor": None}),
    ],
)
async def test_null_means_omitted(tmp_path: Path, method: str, params: dict[str, Json]) -> None:
    async with product(tmp_path, CONFIG) as client:
        result = await client.request(method, params)

    assert not result.get("isError")


async def test_null_capability_is_not_declared(tmp_path: Path) -> None:
    text = CONFIG.replace("description: d,", "description: d, confirm: 'Go on?',", 1)
    capabilities: Json = {"elicitation": {"form": None, "url": {}}}
    async with product(tmp_path, text) as client:
        error = await client.error("tools/call", {**TOOL, "_meta": {meta.META_CLIENT_CAPABILITIES: capabilities}})

    assert error.code == -32021
