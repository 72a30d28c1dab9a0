"""An upstream's offer: its lists as it sent them, and what they were made with. Values only."""

import msgspec

from gateway.json_types import Json


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a server offers, in the wire form of its revision."""

    tools: list[dict[str, Json]] = []
    resources: list[dict[str, Json]] = []
    templates: list[dict[str, Json]] = []
    prompts: list[dict[str, Json]] = []
    era: str = "legacy"
    revision: str = ""
    completes: bool = False
    """Whether it suggests values for arguments."""
    subscribes: bool = False
    """Whether its resources can be watched."""
    server_info: dict[str, Json] = {}
    missing: dict[str, str] = {}
    """The lists that could not be had, with the reason."""
