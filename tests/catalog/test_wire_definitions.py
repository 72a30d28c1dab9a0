"""Definitions as clients see them."""

from pathlib import Path

import gateway
from gateway.catalog.compile import wire_definitions
from gateway.config.models.definition_keys import HINTS, ToolAnnotations
from gateway.config.models.definitions import Prompt, PromptArgument, Resource, Tool
from gateway.config.models.server import Server
from gateway.control_characters import visible_path
from gateway.executors.files.globs import Found
from gateway.executors.files.regular_files import FileFacts
from gateway.json_types import JsonObject

ICON = {"src": "https://x.example/i.png", "mime_type": "image/png", "sizes": "48x48", "theme": "dark"}
SCHEMA: JsonObject = {"type": "object", "additionalProperties": False}


def test_server_version_defaults_to_the_gateway_version() -> None:
    assert wire_definitions.server_info(Server()) == {"name": "mcp-gateway", "version": gateway.__version__}
    server = Server.model_validate({"name": "n", "version": "1.4", "website_url": "https://x.example", "icons": [ICON]})
    assert wire_definitions.server_info(server) == {
        "name": "n",
        "version": "1.4",
        "icons": [{"src": "https://x.example/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}],
        "websiteUrl": "https://x.example",
    }


def test_tool_in_wire_form() -> None:
    config = Tool.model_validate(
        {
            "title": "T",
            "content": "x",
            "icons": [ICON],
            "meta": {"a/b": 1},
            "annotations": {
                "title": "H",
                "read_only": True,
                "destructive": False,
                "idempotent": True,
                "open_world": False,
            },
        }
    )
    definition = wire_definitions.tool_definition(
        "t", config, description="D", input_schema=SCHEMA, output_schema={"type": "object"}
    )
    assert definition == {
        "name": "t",
        "title": "T",
        "description": "D",
        "icons": [{"src": "https://x.example/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}],
        "_meta": {"a/b": 1},
        "inputSchema": SCHEMA,
        "outputSchema": {"type": "object"},
        "annotations": {
            "title": "H",
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        },
    }


def test_omitted_members_are_not_sent() -> None:
    config = Tool.model_validate({"content": "x", "annotations": {}})
    definition = wire_definitions.tool_definition(
        "t", config, description=None, input_schema=SCHEMA, output_schema=None
    )
    assert definition == {"name": "t", "inputSchema": SCHEMA}


def test_file_definition_has_type_and_time() -> None:
    config = Resource.model_validate({"files": "*", "title": "All", "description": "D", "annotations": {"priority": 1}})
    file = Found("sub/ü.md", FileFacts(size=3, modified=1_767_225_600.9))
    assert wire_definitions.file_definition(config, uri="docs:///x", file=file) == {
        "uri": "docs:///x",
        "name": "sub/ü.md",
        "description": "D",
        "mimeType": "text/markdown",
        "size": 3,
        "annotations": {"lastModified": "2026-01-01T00:00:00Z", "priority": 1.0},
    }


def test_file_name_that_is_not_utf_8_is_shown() -> None:
    assert visible_path("a\udcff.md") == "a\ufffd.md"


def test_time_out_of_range_is_omitted() -> None:
    file = Found("a", FileFacts(size=0, modified=1e18))
    definition = wire_definitions.file_definition(Resource.model_validate({"files": "*"}), uri="x:a", file=file)
    assert "annotations" not in definition


def test_media_type_is_guessed() -> None:
    text = Resource.model_validate(
        {"uri": "a:b", "text": "x", "annotations": {"last_modified": "2026-01-01T00:00:00Z"}}
    )
    assert wire_definitions.resource_definition("n", text, uri="a:b", description=None) == {
        "name": "n",
        "uri": "a:b",
        "mimeType": "text/plain",
        "annotations": {"lastModified": "2026-01-01T00:00:00Z"},
    }
    file = Resource.model_validate({"uri": "a:{b}", "file": str(Path("x.json"))})
    assert wire_definitions.resource_definition("n", file, description="D", uriTemplate="a:{b}") == {
        "name": "n",
        "description": "D",
        "uriTemplate": "a:{b}",
        "mimeType": "application/json",
    }


def test_prompt_lists_its_arguments() -> None:
    config = Prompt.model_validate({"messages": [{"user": "x"}]})
    arguments = {"a": PromptArgument(description="A", required=True), "b": PromptArgument(title="B")}
    assert wire_definitions.prompt_definition("p", config, description=None, arguments=arguments) == {
        "name": "p",
        "arguments": [
            {"name": "a", "description": "A", "required": True},
            {"name": "b", "title": "B", "required": False},
        ],
    }
    assert wire_definitions.prompt_definition("p", config, description=None, arguments={}) == {"name": "p"}


def test_each_hint_is_a_key_of_annotations() -> None:
    assert {"title", *HINTS} == set(ToolAnnotations.model_fields)
    assert HINTS["open_world"] == "openWorldHint"
