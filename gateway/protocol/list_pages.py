"""Makes the pages of lists as bytes, once for each part of the catalog, revision and offset; and the pages' cursors.

Why: a list of 1,000 tools costs a millisecond to encode and 20 µs to splice into an envelope.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from itsdangerous import BadData, URLSafeSerializer

from gateway.catalog.catalog import Catalog
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol import results
from gateway.state.keys import FromKeys, SigningKeys
from gateway.wire import downgrade, jsonrpc


class _List(msgspec.Struct, frozen=True, kw_only=True):
    """One of the listing methods' lists."""

    entries: Callable[[Catalog], Iterable[JsonObject]]
    convert: Callable[[JsonObject, str], JsonObject]
    fingerprint: str


MAX_PAGES: Final = 4096
"""Pages that are kept at once. Callers with different scopes have different ones."""

LISTS: Final[Mapping[str, _List]] = {
    "tools": _List(
        entries=lambda catalog: (
            tool.definition
            for tool in (catalog.tools.values() if catalog.listed_tools is None else catalog.listed_tools)
        ),
        convert=downgrade.tool,
        fingerprint="tools",
    ),
    "resources": _List(
        entries=lambda catalog: (resource.definition for resource in catalog.resources.values()),
        convert=downgrade.resource,
        fingerprint="resources",
    ),
    "resourceTemplates": _List(
        entries=lambda catalog: (template.definition for template in catalog.resource_templates),
        convert=downgrade.resource,
        fingerprint="resources",
    ),
    "prompts": _List(
        entries=lambda catalog: (prompt.definition for prompt in catalog.prompts.values()),
        convert=downgrade.prompt,
        fingerprint="prompts",
    ),
    "skills": _List(
        entries=lambda catalog: (skill.entry for skill in catalog.skills.values()),
        convert=lambda entry, _: entry,
        fingerprint="resources",
    ),
}
"""By the name of the member that holds the entries in the result."""


class ListPages:
    """Encoded pages of the newest catalog that was asked for. A call on an older one encodes anew."""

    def __init__(self, cursors: "Cursors") -> None:
        self._cursors: Final = cursors
        self._generation = -1
        self._pages: dict[tuple[str, str, int, str | None, frozenset[str] | None], bytes] = {}

    def page(self, name: str, *, catalog: Catalog, revision: str, cursor: Json) -> bytes:
        """The encoded result of a listing method.

        Raises:
            RpcError: -32602, the cursor is foreign or stale.
        """
        fingerprint = catalog.fingerprints.get(LISTS[name].fingerprint, "")
        offset = 0 if cursor is None else self._cursors.redeem(cursor, _list_name(name, catalog), fingerprint)
        # A call that began before a reload: a page of the old catalog must not stand among those of the new one.
        if catalog.generation < self._generation:
            return self._encode(name, catalog, revision, offset)
        if catalog.generation > self._generation:
            self._generation, self._pages = catalog.generation, {}
        key = (name, revision, offset, catalog.view, catalog.scoped_to)
        if (page := self._pages.get(key)) is None:
            if len(self._pages) >= MAX_PAGES:
                # All at once: a page is made again in a millisecond, and an order of use would cost each request.
                self._pages.clear()
            page = self._pages[key] = self._encode(name, catalog, revision, offset)
        return page

    def _encode(self, name: str, catalog: Catalog, revision: str, offset: int) -> bytes:
        wanted = LISTS[name]
        entries = tuple(wanted.entries(catalog))
        end = offset + catalog.page_size
        result: dict[str, Json] = {
            name: [wanted.convert(entry, revision) for entry in entries[offset:end]],
            **results.cache_hints(catalog.cache_ttl, is_shared=not catalog.scopes),
        }
        if end < len(entries):
            fingerprint = catalog.fingerprints.get(wanted.fingerprint, "")
            result["nextCursor"] = self._cursors.issue(_list_name(name, catalog), fingerprint, end)
        return jsonrpc.encode(results.complete(result, catalog=catalog, revision=revision))


def _list_name(name: str, catalog: Catalog) -> str:
    """Tell a list of one view from those of others, whose cursors are not good for it."""
    return name if catalog.view is None else f"{name} of {catalog.view}"


class Cursors:
    """Makes pagination cursors: opaque, signed, and bound to the list that they were made for.

    MCP 2025-11-25 server/utilities/pagination: an invalid cursor should yield -32602. A cursor that outlived its list
    would skip or repeat entries, so it carries the list's fingerprint.
    """

    def __init__(self, keys: SigningKeys) -> None:
        self._serializers: Final = FromKeys(
            keys, lambda newest_first: [URLSafeSerializer(key, salt="cursor") for key in newest_first]
        )

    def issue(self, list_name: str, fingerprint: str, offset: int) -> str:
        return str(self._serializers()[0].dumps([list_name, fingerprint, offset]))

    def redeem(self, cursor: Json, list_name: str, fingerprint: str) -> int:
        """The offset at which the page begins.

        Raises:
            RpcError: -32602, the cursor is not ours, belongs to another list, or the list has changed since.
        """
        content = self._content(cursor) if isinstance(cursor, str) else None
        # What our key has signed has the three members that `issue` wrote.
        if not isinstance(content, list) or content[0] != list_name:
            raise RpcError(ErrorCode.INVALID_PARAMS, "Invalid cursor")
        if content[1] != fingerprint:
            raise RpcError(ErrorCode.INVALID_PARAMS, "Stale cursor: the list has changed; begin again without one")
        offset: int = content[2]
        return offset

    def _content(self, cursor: str) -> Json:
        """Content that one of the keys signed, to the byte: the decoder is lenient about its base64."""
        for serializer in self._serializers():
            try:
                content = serializer.loads(cursor)
            except BadData:
                continue
            return content if serializer.dumps(content) == cursor else None
        return None
