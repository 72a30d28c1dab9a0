"""Digests upstream pages (MCP Apps, SEP-1865), and checks pages against the lock when they are read."""

from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.catalog.lockfile.digests import PAGES, DefinitionDigest, DefinitionDigests
from gateway.catalog.lockfile.lock import COMMAND, differences
from gateway.config.reading.source_file import digest_of_json
from gateway.errors import ExecutionError
from gateway.json_types import Json

_PARTS: Final[Mapping[str, tuple[str, ...]]] = {"markup": ("text", "blob"), "media_type": ("mimeType",)}
"""Part of a digest → the members of the contents that it covers."""


class LockedPages(msgspec.Struct, frozen=True, kw_only=True):
    """The locked pages of one upstream with `server.lock: enforce`."""

    pins: DefinitionDigests
    required: frozenset[str]
    """URIs that tools refer to. These pages must be in the lock."""
    differing: dict[str, str] = msgspec.field(default_factory=dict)
    """Pages that differed when they were last read, and the reason."""

    def check(self, uri: str, contents: Json) -> None:
        """Check the contents of a resource against the lock.

        Raises:
            ExecutionError: the page differs, or is not in the lock.
        """
        locked = {name: pin for name, pin in self.pins.items() if name == (PAGES, uri)}
        if not locked and uri not in self.required:
            return
        for difference in differences({(PAGES, uri): page_digest(contents)}, locked):
            self.differing[uri] = difference.how
            raise ExecutionError(f"The page `{uri}` {difference.how}. After a review, run `{COMMAND}`.")
        self.differing.pop(uri, None)


def page_digest(contents: Json) -> DefinitionDigest:
    """Digest the markup, media type and `_meta.ui` of a page."""
    blocks = [each for each in contents if isinstance(each, dict)] if isinstance(contents, list) else []
    parts = {
        part: digest_of_json([[each.get(member) for member in members] for each in blocks])
        for part, members in _PARTS.items()
    }
    metas = [each.get("_meta") for each in blocks]
    return {**parts, "ui": digest_of_json([meta.get("ui") if isinstance(meta, dict) else None for meta in metas])}
