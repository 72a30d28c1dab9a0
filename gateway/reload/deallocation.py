"""Frees what reloads made and nobody uses any more, part after part, in the thread that loads.

Why: ten thousand tools are some million objects, and one statement that frees them all would hold up every call for a
tenth of a second. A thread that frees them one by one gives way to the event loop between two of them.
"""

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from gateway.catalog.catalog import Catalog
from gateway.config.loader import LoadedConfig
from gateway.config.models.base import Model
from gateway.config.models.document import Document
from gateway.config.reading.merger import DEFINITIONS
from gateway.reload.candidate import Candidate

Parts = list[Any]
"""Objects to be freed; whoever hands them over keeps no other reference to them."""


def free(parts: Parts) -> None:
    """Free what nothing else refers to, one part after the other: other threads have turns between two parts."""
    while parts:
        parts.pop()


def parts_of_loaded(config: LoadedConfig) -> Parts:
    """The parts of what was loaded that are not kept once it was compiled."""
    return [*config.sources.definitions(), *_definitions(config.document), *config.problems]


def parts_of_compiled(candidate: Candidate) -> Parts:
    """The parts of what was compiled, and was never served."""
    return [*parts_of_served(candidate), *candidate.catalog.primitives()]


def parts_of_served(candidate: Candidate) -> Parts:
    """The parts of what was served but the primitives, which calls may still use."""
    return [
        *_definitions(candidate.document),
        *candidate.catalog.warnings,
        *candidate.steps.steps.values(),
        *candidate.record.entries.values(),
    ]


def when_unused(catalog: Catalog, hand_over: Callable[[Parts], None]) -> None:
    """Hand over the primitives of a catalog once no call uses it; in whichever thread used it last."""
    # Not at exit: everything is freed then anyway, and the event loop has ended.
    weakref.finalize(catalog, hand_over, [*catalog.primitives()]).atexit = False


def _definitions(document: Document) -> Iterator[Model]:
    for section in DEFINITIONS:
        yield from getattr(document, section).values()
