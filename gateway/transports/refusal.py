"""Why a request goes no further. A value only: whoever refuses returns it, and `incoming.refuse` answers with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    status: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


RETRY: Final = {"Retry-After": "30"}
"""What a client is told that found no room."""
LEAVING: Final = Refusal(status=503, message="The server is about to stop", headers={"Connection": "close"})
