"""Protocol revisions and their two eras.

A revision is a date, so string comparison orders revisions.
"""

import re
from enum import StrEnum
from typing import Final

from gateway.json_types import Json

V2024_11_05: Final = "2024-11-05"
V2025_03_26: Final = "2025-03-26"
V2025_06_18: Final = "2025-06-18"
V2025_11_25: Final = "2025-11-25"
V2026_07_28: Final = "2026-07-28"

LEGACY: Final = (V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25)
"""The revisions in which a session starts with `initialize`, oldest first."""
MODERN: Final = (V2026_07_28,)
"""The revisions in which every request contains metadata, without `initialize`."""
LATEST_LEGACY: Final = LEGACY[-1]
LATEST_MODERN: Final = MODERN[-1]

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


class Era(StrEnum):
    LEGACY = "legacy"
    MODERN = "modern"


def negotiate(requested: str) -> str:
    """Return the requested revision if `initialize` supports it, otherwise the latest legacy revision."""
    # MCP 2025-11-25 basic/lifecycle, "Version Negotiation". Modern revisions have no handshake.
    return requested if requested in LEGACY else LATEST_LEGACY


def closest_legacy(version: Json) -> str:
    """Return the latest legacy revision that is not newer than a server's version, or the oldest one."""
    # MCP 2025-06-18 basic/lifecycle, "Version Negotiation": clients should disconnect, but such servers usually work.
    earlier = [known for known in LEGACY if isinstance(version, str) and known <= version]
    return earlier[-1] if earlier else LEGACY[0]


def has_batches(revision: str) -> bool:
    """Return whether a message can be a JSON-RPC batch (MCP 2025-03-26 basic/index, "Batching")."""
    return revision == V2025_03_26


def has_priming_events(revision: str) -> bool:
    return revision >= V2025_11_25


def requires_error_id(revision: str) -> bool:
    """Return whether an error response without a known id must contain `"id": null`. Newer revisions omit `id`."""
    return revision < V2025_11_25


def is_modern_date(version: str) -> bool:
    """Return whether a version is a revision of the modern era, even if the gateway does not support it."""
    # Later revisions count too, because their clients receive -32022 with the supported revisions.
    return version in MODERN or (version >= V2026_07_28 and _DATE.fullmatch(version) is not None)
