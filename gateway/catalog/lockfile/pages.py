"""Digests of the pages of upstreams (MCP Apps, SEP-1865), and the check of a page when it is read. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.catalog.lockfile.digests import PAGES, DefinitionDigest, DefinitionDigests
from gateway.catalog.lockfile.lock import COMMAND, differences
from gateway.config.reading.source_file import digest_of_json
from gateway.errors import ExecutionError
from gateway.json_types import Json

_PARTS: Final[Mapping[str, tuple[str, ...]]] = {"markup": ("text", "blob"), "media_type": ("mimeType",)}
"""The parts of a digest, with the members of the contents that each covers."""


class LockedPages(msgspec.Struct, frozen=True, kw_only=True):
    """The locked pages of one upstream, where `server.lock` is `enforce`."""

    pins: DefinitionDigests
    required: frozenset[str]
    """The URIs to which tools refer. They must be in the lock."""
    differing: dict[str, str] = msgspec.field(default_factory=dict)
    """The pages that differed when they were last read, with the reason."""

    def check(self, uri: str, contents: Json) -> None:
        """Compare the contents of a resource with the lock.

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
    """Digest the contents of a page: its markup, media type and `_meta.ui`."""
    blocks = [each for each in contents if isinstance(each, dict)] if isinstance(contents, list) else []
    parts = {
        part: digest_of_json([[each.get(member) for member in members] for each in blocks])
        for part, members in _PARTS.items()
    }
    metas = [each.get("_meta") for each in blocks]
    return {**parts, "ui": digest_of_json([meta.get("ui") if isinstance(meta, dict) else None for meta in metas])}
