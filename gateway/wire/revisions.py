"""The protocol's revisions and their two eras. Values only.

A revision is a date, so plain string comparison orders them.
"""

import re
from enum import StrEnum
from typing import Final

V2024_11_05: Final = "2024-11-05"
V2025_03_26: Final = "2025-03-26"
V2025_06_18: Final = "2025-06-18"
V2025_11_25: Final = "2025-11-25"
V2026_07_28: Final = "2026-07-28"

LEGACY: Final = (V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25)
"""Revisions that begin with `initialize`, oldest first."""
MODERN: Final = (V2026_07_28,)
"""Revisions in which every request carries its own metadata."""
LATEST_LEGACY: Final = LEGACY[-1]
LATEST_MODERN: Final = MODERN[-1]

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


class Era(StrEnum):
    LEGACY = "legacy"
    MODERN = "modern"


def negotiate(requested: str) -> str:
    """Choose the revision that `initialize` answers with: the one asked for, or our latest legacy one."""
    # MCP 2025-11-25 basic/lifecycle, "Version Negotiation". Never a modern one: these have no handshake.
    return requested if requested in LEGACY else LATEST_LEGACY


def is_modern_date(version: str) -> bool:
    """Tell whether this reads as a revision of the modern era, whether or not it is served here."""
    # A later one than ours is of this era, too: its client is told (-32022) which ones are served, and can choose.
    return version in MODERN or (_DATE.fullmatch(version) is not None and version >= V2026_07_28)
