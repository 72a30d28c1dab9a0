"""The `server.json` of a registry of MCP servers, in the form of `SCHEMA`. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from gateway import __version__
from gateway.cli.commands.bundle.manifest import DISTRIBUTION
from gateway.config.reading.interpolation import Variable
from gateway.json_types import Json, JsonObject
from gateway.protocol.server_card import PublicEndpoint, introduction, remotes

SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_RANGE: Final = re.compile(r"[\^~<>=*|]|(^|\.)[xX](\.|$)|^latest$")
_MAX_VERSION: Final = 255
_MAX_ICON_URL: Final = 255
_ICON_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/jpg", "image/svg+xml", "image/webp"})
_SOURCES: Final = {"github.com": "github", "gitlab.com": "gitlab"}
BUNDLE_HOSTS: Final = frozenset({"github.com", "gitlab.com"})
"""The hosts of whose releases the official registry takes bundles."""


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a server that are published."""

    name: str
    """Under a reversed domain."""
    server_info: JsonObject
    endpoint: PublicEndpoint | None = None
    packages: Sequence[JsonObject] = ()
    repository: str | None = None
    """The URL of its source."""


def server_json(published: Published) -> dict[str, Json]:
    """The document, its members in the order in which people read them."""
    about = introduction(published.server_info, name=published.name)
    icons = [icon for icon in _list(about.pop("icons", [])) if _is_listable(icon)]
    url = published.repository
    optional: dict[str, Json] = {
        "repository": None if url is None else {"url": url, "source": _source(url)},
        "icons": icons,
        "remotes": [] if published.endpoint is None else list(remotes(published.endpoint)),
        "packages": list(published.packages),
    }
    return {"$schema": SCHEMA, **about, **{key: value for key, value in optional.items() if value}}


def daemon_package(variables: Mapping[str, Variable]) -> JsonObject:
    """The daemon, as a client starts it with the configuration that its user has."""
    return {
        "registryType": "pypi",
        "registryBaseUrl": "https://pypi.org",
        "identifier": DISTRIBUTION,
        "version": __version__,
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
        "packageArguments": [
            {"type": "positional", "value": "serve"},
            {
                "type": "positional",
                "valueHint": "config",
                "description": "Path of the configuration",
                "format": "filepath",
                "isRequired": True,
            },
            {"type": "named", "name": "--stdio"},
        ],
        **({"environmentVariables": [_variable(*each) for each in variables.items()]} if variables else {}),
    }


def bundle_package(url: str, *, sha256: str, version: str) -> JsonObject:
    """An MCP bundle at a URL; it asks for variables by itself."""
    return {
        "registryType": "mcpb",
        "identifier": url,
        "version": version,
        "fileSha256": sha256,
        "transport": {"type": "stdio"},
    }


def is_version(version: str) -> bool:
    """Whether a registry takes it: one version, and no range."""
    return 0 < len(version) <= _MAX_VERSION and _RANGE.search(version) is None


def _variable(name: str, variable: Variable) -> JsonObject:
    return {
        "name": name,
        "description": f"The value of {name}",
        "isRequired": variable.is_needed,
        "isSecret": variable.is_secret,
    }


def _source(url: str) -> str:
    host = (urlsplit(url).hostname or "").removeprefix("www.")
    return _SOURCES.get(host, host)


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _is_listable(icon: Json) -> bool:
    """Whether a registry takes the icon: at a URL, of a type that it knows."""
    if not isinstance(icon, Mapping):
        return False
    source = str(icon["src"])
    is_known = icon.get("mimeType") is None or icon["mimeType"] in _ICON_TYPES
    return is_known and source.startswith("https://") and len(source) <= _MAX_ICON_URL
