"""JSON Schemas of `server.json` and of server cards.

They contain the constraints of the published schemas without the descriptions:
https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json, and `schema.json` of
https://github.com/modelcontextprotocol/experimental-ext-server-card (July 2026, SHA-256 2c772b51edb3…c9ac03bf042).
Unlike the published schemas, they forbid unknown members, which are probably misspelt.
"""

from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker

TEXT: Final = {"type": "string"}
FLAG: Final = {"type": "boolean"}
URI: Final = {"type": "string", "format": "uri", "pattern": r"^[a-z][a-z0-9+.-]*:\S+$"}
SHORT: Final = {"type": "string", "minLength": 1, "maxLength": 100}


def object_schema(required: list[str], **properties: object) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def list_schema(items: object) -> dict[str, Any]:
    return {"type": "array", "items": items}


INPUT: Final[dict[str, Any]] = {
    "description": TEXT,
    "isRequired": FLAG,
    "isSecret": FLAG,
    "format": {"enum": ["string", "number", "boolean", "filepath"]},
    "default": TEXT,
    "placeholder": TEXT,
    "value": TEXT,
    "choices": list_schema(TEXT),
}
VARIABLES: Final = {"type": "object", "additionalProperties": object_schema([], **INPUT)}
KEY_VALUE: Final = object_schema(["name"], name=TEXT, variables=VARIABLES, **INPUT)
POSITIONAL: Final = {
    **object_schema(
        ["type"], type={"const": "positional"}, valueHint=TEXT, isRepeated=FLAG, variables=VARIABLES, **INPUT
    ),
    "anyOf": [{"required": ["valueHint"]}, {"required": ["value"]}],
}
NAMED: Final = object_schema(
    ["type", "name"], type={"const": "named"}, name=TEXT, isRepeated=FLAG, variables=VARIABLES, **INPUT
)
ARGUMENTS: Final = list_schema({"anyOf": [POSITIONAL, NAMED]})
PACKAGE: Final = object_schema(
    ["registryType", "identifier", "transport"],
    registryType=TEXT,
    registryBaseUrl=URI,
    identifier=TEXT,
    version={"type": "string", "minLength": 1, "not": {"const": "latest"}},
    fileSha256={"type": "string", "pattern": "^[a-f0-9]{64}$"},
    runtimeHint=TEXT,
    runtimeArguments=ARGUMENTS,
    packageArguments=ARGUMENTS,
    environmentVariables=list_schema(KEY_VALUE),
    transport=object_schema(["type"], type={"const": "stdio"}),
)


def remote(**more: object) -> dict[str, Any]:
    return object_schema(
        ["type", "url"],
        type={"enum": ["streamable-http", "sse"]},
        url={"type": "string", "pattern": r"^https?://[^\s]+$"},
        headers=list_schema(KEY_VALUE),
        variables=VARIABLES,
        **more,
    )


def icon(**src: object) -> dict[str, Any]:
    return object_schema(
        ["src"],
        src={**URI, **src},
        mimeType={"enum": ["image/png", "image/jpeg", "image/jpg", "image/svg+xml", "image/webp"]} if src else TEXT,
        sizes=list_schema({"type": "string", "pattern": r"^(\d+x\d+|any)$"}),
        theme={"enum": ["light", "dark"]},
    )


ABOUT: Final[dict[str, Any]] = {
    "name": {"type": "string", "minLength": 3, "maxLength": 200, "pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$"},
    "version": {"type": "string", "maxLength": 255},
    "description": SHORT,
    "title": SHORT,
    "websiteUrl": URI,
    "repository": object_schema(["url", "source"], url=URI, source=TEXT, subfolder=TEXT, id=TEXT),
}
SERVER_JSON: Final = object_schema(
    ["$schema", "name", "description", "version"],
    **{"$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"}},
    **ABOUT,
    icons=list_schema(icon(maxLength=255)),
    remotes=list_schema(remote()),
    packages=list_schema(PACKAGE),
)
SERVER_CARD: Final = object_schema(
    ["$schema", "name", "version", "description"],
    **{"$schema": {"const": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"}},
    **ABOUT,
    icons=list_schema(icon()),
    remotes=list_schema(remote(supportedProtocolVersions=list_schema(TEXT))),
)


def check(document: object, schema: dict[str, Any]) -> None:
    """Raise an error that names the first invalid member."""
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(document)
