"""Builds the public server card, and parts of a registry's `server.json`.

The format of the card is a draft (SEP-2127). See `schema.ts` and `docs/discovery.md` in
https://github.com/modelcontextprotocol/experimental-ext-server-card.
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import msgspec

from gateway.json_types import Json, JsonObject
from gateway.wire.revisions import LEGACY, MODERN

CARD_TYPE: Final = "application/mcp-server-card+json"
CATALOG_TYPE: Final = "application/ai-catalog+json"
_CARD_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
MAX_TEXT: Final = 100
MAX_NAME: Final = 200
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+/[A-Za-z0-9._-]+")
_CODE_HOSTS: Final = {"github.com": "io.github"}
"""Registry namespaces by code host. The user `acme` of github.com has the namespace `io.github.acme`."""


class PublicEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    sse_url: str | None = None
    takes_keys: bool = False
    takes_tokens: bool = False
    """Whether clients can sign in with OAuth."""


def server_card(server_info: JsonObject, endpoint: PublicEndpoint, *, name: str) -> dict[str, Json]:
    return {
        "$schema": _CARD_SCHEMA,
        **introduction(server_info, name=name),
        "remotes": [
            {**remote, "supportedProtocolVersions": _revisions(str(remote["type"]))} for remote in remotes(endpoint)
        ],
    }


def ai_catalog(name: str, url: str) -> JsonObject:
    """Return a catalog with one server card, which has a qualified name and a URL."""
    return {"specVersion": "1.0", "entries": [{"identifier": _identifier(name), "type": CARD_TYPE, "url": url}]}


def introduction(server_info: JsonObject, *, name: str) -> dict[str, Json]:
    title, website, icons = (server_info.get(key) for key in ("title", "websiteUrl", "icons"))
    return {
        "name": name,
        "version": server_info["version"],
        # Required by the schema of `server.json`.
        "description": shortened(str(server_info.get("description") or title or f"The server {server_info['name']}")),
        **({"title": shortened(title)} if isinstance(title, str) and title.strip() else {}),
        **({"websiteUrl": website} if website else {}),
        **({"icons": icons} if icons else {}),
    }


def remotes(endpoint: PublicEndpoint) -> list[dict[str, Json]]:
    urls = {"streamable-http": endpoint.url, "sse": endpoint.sse_url}
    headers: dict[str, Json] = {"headers": [_key_header(endpoint)]} if endpoint.takes_keys else {}
    return [{"type": kind, "url": url, **headers} for kind, url in urls.items() if url is not None]


def qualified_name(name: str, urls: Iterable[str | None]) -> str | None:
    """Return `name` with a namespace, if necessary from the first usable URL. Return None without a usable URL."""
    if _QUALIFIED.fullmatch(name):
        return name
    namespace = next(filter(None, (_namespace(url) for url in urls if url)), None)
    local = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._") or "mcp"
    return None if namespace is None else f"{namespace}/{local}"[:MAX_NAME]


def is_qualified(name: str) -> bool:
    return _QUALIFIED.fullmatch(name) is not None and len(name) <= MAX_NAME


def shortened(text: str) -> str:
    """Return the text in one line, truncated after a word to at most `MAX_TEXT` characters."""
    line = " ".join(text.split())
    if len(line) <= MAX_TEXT:
        return line
    cut = line[: MAX_TEXT - 1]
    return (cut.rpartition(" ")[0] or cut).rstrip(" ,.;:–-") + "…"


def _namespace(url: str) -> str | None:
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".").removeprefix("www.")
    try:
        ip_address(host)
    except ValueError:
        pass
    else:
        return None
    if (known := _CODE_HOSTS.get(host)) is not None:
        user = parts.path.strip("/").partition("/")[0]
        return f"{known}.{user}" if re.fullmatch(r"[A-Za-z0-9-]+", user) else None
    try:
        labels = host.encode("idna").decode().split(".")  # RFC 5891: the name in DNS
    except UnicodeError:
        return None
    return ".".join(reversed(labels)) if len(labels) > 1 and all(labels) else None


def _identifier(name: str) -> str:
    # discovery.md, "Server Card Entries": urn:air:{publisher}:{namespace}:{name}
    namespace, _, local = name.partition("/")
    return f"urn:air:{'.'.join(reversed(namespace.split('.')))}:mcp:{local}"


def _revisions(kind: str) -> list[Json]:
    return [*LEGACY, *(MODERN if kind == "streamable-http" else ())]


def _key_header(endpoint: PublicEndpoint) -> JsonObject:
    secret = {"isRequired": not endpoint.takes_tokens, "isSecret": True}
    description = "An API key of this server" + (", unless the client signs in with OAuth" * endpoint.takes_tokens)
    return {
        "name": "Authorization",
        "description": description,
        **secret,
        "value": "Bearer {api_key}",
        "variables": {"api_key": {"description": "The API key", **secret}},
    }
