"""Builds the definitions that clients receive, in the format of MCP 2026-07-28."""

from collections.abc import Mapping, Sequence
from typing import Final

import gateway
from gateway.catalog.compile.relayed import relayed_of
from gateway.config.models.definition_keys import HINTS, ContentAnnotations, Icon, ToolAnnotations
from gateway.config.models.definitions import Prompt, PromptArgument, Resource, Tool
from gateway.config.models.document import SKILL_FILE
from gateway.config.models.server import Server
from gateway.control_characters import visible_path
from gateway.executors.content import content_annotations
from gateway.executors.files.globs import Found
from gateway.executors.files.regular_files import FileFacts
from gateway.json_types import Json, JsonObject
from gateway.language.files.media_types import media_type_of
from gateway.rfc3339 import timestamp

_ANNOTATIONS: Final = {"title": "title", **HINTS}


def server_info(server: Server) -> JsonObject:
    """Return the server's `Implementation` object (MCP 2026-07-28 schema)."""
    return _given(
        name=server.name,
        title=server.title,
        # MCP 2026-07-28 schema, Implementation: `name` and `version` are required.
        version=server.version or gateway.__version__,
        description=server.description,
        icons=_icons(server.icons),
        websiteUrl=server.website_url,
    )


def tool_definition(  # noqa: PLR0913 - the members of a definition
    name: str,
    config: Tool,
    *,
    description: str | None,
    input_schema: JsonObject,
    output_schema: JsonObject | None,
    meta: JsonObject | None = None,
) -> JsonObject:
    """Return the definition of a tool. The members of `meta` are added to the `_meta` from the file."""
    definition = _described(
        name,
        config,
        description=description,
        inputSchema=input_schema,
        outputSchema=output_schema,
        annotations=_hints(config.hints),
    )
    return {**definition, "_meta": {**(config.meta or {}), **meta}} if meta else definition


def resource_definition(name: str, config: Resource, *, description: str | None, **uri: str) -> JsonObject:
    """Return the definition of a resource or template. `uri` is the member `uri` or `uriTemplate`."""
    media_type, annotations = _mime_type(config), _annotations(config.annotations)
    return _described(name, config, description=description, **uri, mimeType=media_type, annotations=annotations)


def file_definition(config: Resource, *, uri: str, file: Found) -> JsonObject:
    """Return the definition of one file. `config` describes all files of a glob, so the name is the file's path."""
    annotations = {**_given(lastModified=_timestamp(file.facts.modified)), **(_annotations(config.annotations) or {})}
    return _given(
        uri=uri,
        name=visible_path(file.path),
        description=config.description,
        icons=_icons(config.icons),
        _meta=config.meta,
        mimeType=config.mime_type or media_type_of(file.path),
        size=file.facts.size,
        annotations=annotations or None,
    )


def skill_file_definition(*, uri: str, path: str, facts: FileFacts, frontmatter: JsonObject) -> JsonObject:
    """Return the definition of a skill's file. SKILL.md has the name and description of the skill (SEP-2640)."""
    is_skill_file = path == SKILL_FILE
    modified = _timestamp(facts.modified)
    return _given(
        uri=uri,
        name=frontmatter["name"] if is_skill_file else visible_path(path),
        description=frontmatter["description"] if is_skill_file else None,
        mimeType=media_type_of(path),
        size=facts.size,
        annotations=None if modified is None else {"lastModified": modified},
    )


def _timestamp(seconds: float) -> str | None:
    """Format a Unix time (MCP 2025-11-25 schema, Annotations). Return None if the time is out of range."""
    try:
        return timestamp(seconds, timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return None


def prompt_definition(
    name: str, config: Prompt, *, description: str | None, arguments: Mapping[str, PromptArgument]
) -> JsonObject:
    described = [
        _given(name=key, title=value.title, description=value.description, required=value.required)
        for key, value in arguments.items()
    ]
    # Keep the arguments of an upstream's prompt unchanged, with all members.
    written = {} if relayed_of(config) else {"arguments": described or None}
    return _described(name, config, description=description, **written)


def _described(name: str, config: Tool | Resource | Prompt, *, description: str | None, **fields: Json) -> JsonObject:
    written = _given(
        name=name, title=config.title, description=description, icons=_icons(config.icons), _meta=config.meta, **fields
    )
    return written if (relayed := relayed_of(config)) is None else _overridden(relayed.definition, written)


def _overridden(definition: JsonObject, written: dict[str, Json]) -> dict[str, Json]:
    """Replace members of an upstream's definition with members from the file. A resource keeps the upstream's name."""
    if "uri" in definition or "uriTemplate" in definition:
        written.pop("name")
    annotations = {**definition.get("annotations", {}), **written.get("annotations", {})}
    return {**definition, **written, **({"annotations": annotations} if annotations else {})}


def _mime_type(config: Resource) -> str | None:
    if config.mime_type is not None:
        return config.mime_type
    if config.text is not None:
        return "text/plain"
    return media_type_of(config.file) if config.file is not None else None


def _annotations(annotations: ContentAnnotations | None) -> JsonObject | None:
    return None if annotations is None else content_annotations(annotations) or None


def _hints(annotations: ToolAnnotations | None) -> JsonObject | None:
    if annotations is None:
        return None
    given = annotations.model_dump(include=set(_ANNOTATIONS), exclude_none=True)
    return {_ANNOTATIONS[name]: value for name, value in given.items()} or None


def _icons(icons: Sequence[Icon] | None) -> list[JsonObject] | None:
    if icons is None:
        return None
    return [_given(src=icon.src, mimeType=icon.mime_type, sizes=icon.sizes, theme=icon.theme) for icon in icons]


def _given(**fields: Json) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if value is not None}
