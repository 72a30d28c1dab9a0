"""Conversion of definitions and results to older revisions."""

from typing import Final

from gateway.wire import downgrade

AUDIO: Final = {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}


def test_audio_is_an_embedded_resource_in_2024_11_05() -> None:
    contents = {"uri": "audio:///audio.wav", "mimeType": "audio/wav", "blob": "UklGRg=="}
    assert downgrade.content([AUDIO], "2024-11-05") == [{"type": "resource", "resource": contents}]
    assert downgrade.content([AUDIO], "2025-03-26") == [AUDIO]


def test_boolean_schemas_of_properties_are_objects_before_2026_07_28() -> None:
    properties = {"any": True, "none": False, "text": {"type": "string"}}
    definition = {"name": "echo", "inputSchema": {"type": "object", "properties": properties}}
    assert downgrade.tool(definition, "2026-07-28") == definition
    older = downgrade.tool(definition, "2025-11-25")["inputSchema"]["properties"]
    assert older == {"any": {}, "none": {"not": {}}, "text": {"type": "string"}}
