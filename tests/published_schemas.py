"""What registries and clients demand of `server.json` and of a server card, as JSON Schemas.

The constraints are those of the published schemas, written down without their prose:
https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json, and `schema.json` of
https://github.com/modelcontextprotocol/experimental-ext-server-card (July 2026, SHA-256 2c772b51edb3…c9ac03bf042).
They are stricter in one thing: a member that the schemas do not know is refused, for it would be misspelt.
"""

from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker

TEXT: Final = {"type": "string"}
FLAG: Final = {"type": "boolean"}
URI: Final = {"type": "string", "format": "uri", "pattern": r"^[a-z][a-z0-9+.-]*:\S+$"}
SHORT: Final = {"type": "string", "minLength": 1, "maxLength": 100}


def an_object(required: list[str], **properties: object) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def a_list(items: object) -> dict[str, Any]:
    return {"type": "array", "items": items}


INPUT: Final[dict[str, Any]] = {
    "description": TEXT,
    "isRequired": FLAG,
    "isSecret": FLAG,
    "format": {"enum": ["string", "number", "boolean", "filepath"]},
    "default": TEXT,
    "placeholder": TEXT,
    "value": TEXT,
    "choices": a_list(TEXT),
}
VARIABLES: Final = {"type": "object", "additionalProperties": an_object([], **INPUT)}
KEY_VALUE: Final = an_object(["name"], name=TEXT, variables=VARIABLES, **INPUT)
POSITIONAL: Final = {
    **an_object(["type"], type={"const": "positional"}, valueHint=TEXT, isRepeated=FLAG, variables=VARIABLES, **INPUT),
    "anyOf": [{"required": ["valueHint"]}, {"required": ["value"]}],
}
NAMED: Final = an_object(
    ["type", "name"], type={"const": "named"}, name=TEXT, isRepeated=FLAG, variables=VARIABLES, **INPUT
)
ARGUMENTS: Final = a_list({"anyOf": [POSITIONAL, NAMED]})
PACKAGE: Final = an_object(
    ["registryType", "identifier", "transport"],
    registryType=TEXT,
    registryBaseUrl=URI,
    identifier=TEXT,
    version={"type": "string", "minLength": 1, "not": {"const": "latest"}},
    fileSha256={"type": "string", "pattern": "^[a-f0-9]{64}$"},
    runtimeHint=TEXT,
    runtimeArguments=ARGUMENTS,
    packageArguments=ARGUMENTS,
    environmentVariables=a_list(KEY_VALUE),
    transport=an_object(["type"], type={"const": "stdio"}),
)


def remote(**more: object) -> dict[str, Any]:
    return an_object(
        ["type", "url"],
        type={"enum": ["streamable-http", "sse"]},
        url={"type": "string", "pattern": r"^https?://[^\s]+$"},
        headers=a_list(KEY_VALUE),
        variables=VARIABLES,
        **more,
    )


def icon(**src: object) -> dict[str, Any]:
    return an_object(
        ["src"],
        src={**URI, **src},
        mimeType={"enum": ["image/png", "image/jpeg", "image/jpg", "image/svg+xml", "image/webp"]} if src else TEXT,
        sizes=a_list({"type": "string", "pattern": r"^(\d+x\d+|any)$"}),
        theme={"enum": ["light", "dark"]},
    )


ABOUT: Final[dict[str, Any]] = {
    "name": {"type": "string", "minLength": 3, "maxLength": 200, "pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$"},
    "version": {"type": "string", "maxLength": 255},
    "description": SHORT,
    "title": SHORT,
    "websiteUrl": URI,
    "repository": an_object(["url", "source"], url=URI, source=TEXT, subfolder=TEXT, id=TEXT),
}
SERVER_JSON: Final = an_object(
    ["$schema", "name", "description", "version"],
    **{"$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"}},
    **ABOUT,
    icons=a_list(icon(maxLength=255)),
    remotes=a_list(remote()),
    packages=a_list(PACKAGE),
)
SERVER_CARD: Final = an_object(
    ["$schema", "name", "version", "description"],
    **{"$schema": {"const": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"}},
    **ABOUT,
    icons=a_list(icon()),
    remotes=a_list(remote(supportedProtocolVersions=a_list(TEXT))),
)


def check(document: object, schema: dict[str, Any]) -> None:
    """Raise an error that names the first member that does not fit."""
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(document)
