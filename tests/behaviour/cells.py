"""The cells of the behaviour tests: combinations of a binding and a revision."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from gateway.wire.revisions import LEGACY, MODERN

STDIO: Final = "stdio"
HTTP: Final = "http"
SSE: Final = "sse"
BINDINGS: Final = (STDIO, HTTP, SSE)
LATEST_LEGACY: Final = LEGACY[-1]
LATEST: Final = MODERN[-1]
REVISIONS: Final = (*LEGACY, *MODERN)


@dataclass(frozen=True, kw_only=True)
class Cell:
    binding: str
    revision: str

    def __str__(self) -> str:
        return f"{self.binding}-{self.revision}"

    @property
    def is_modern(self) -> bool:
        return self.revision in MODERN

    @property
    def is_http(self) -> bool:
        """Whether the binding is Streamable HTTP, so that responses have a status."""
        return self.binding == HTTP


CELLS: Final = [
    Cell(binding=binding, revision=revision)
    for binding in BINDINGS
    for revision in (LEGACY if binding == SSE else REVISIONS)
]


def cells(*, since: str = REVISIONS[0], until: str = REVISIONS[-1], binding: str | None = None) -> pytest.MarkDecorator:
    """Run a test in each cell, or in the cells of some revisions or of one binding.

    Legacy revisions between the first and the last are marked `build`, because they rarely fail separately.
    """
    wanted = [
        cell for cell in CELLS if since <= cell.revision <= until and (binding is None or cell.binding == binding)
    ]
    legacy = [cell.revision for cell in wanted if not cell.is_modern]
    between = {revision for revision in legacy if min(legacy) < revision < max(legacy)}
    marked = [pytest.param(cell, marks=pytest.mark.build) if cell.revision in between else cell for cell in wanted]
    return pytest.mark.parametrize("cell", marked, ids=str)


def since(table: Mapping[str, str], revision: str) -> set[str]:
    """Return the names in a table of first revisions that exist in this revision."""
    return {name for name, first in table.items() if first <= revision}
