"""A catalog as one caller sees it: without what needs scopes that the caller lacks.

Whoever is handed a view needs no further check to list, find or complete only what is this caller's: what is not there
is as unknown as what was never written. What is `visible` is there, and checked when it is used.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeVar

from gateway.catalog.fingerprints import fingerprints
from gateway.catalog.primitives import Catalog, Primitive

P = TypeVar("P", bound=Primitive)

MOST: Final = 256
"""Views that are kept; those used longest ago are made again."""


class Views:
    """The views of the catalogs that are in use, each made once."""

    def __init__(self) -> None:
        self._kept: Final[OrderedDict[tuple[int, frozenset[str]], Catalog]] = OrderedDict()

    def of(self, catalog: Catalog, scopes: frozenset[str] | None) -> Catalog:
        """What a caller with these scopes sees; None is every scope."""
        if scopes is None or catalog.scopes <= scopes:
            return catalog
        key = catalog.generation, scopes & catalog.scopes
        if (kept := self._kept.get(key)) is None:
            kept = self._kept[key] = view(catalog, key[1])
            if len(self._kept) > MOST:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return kept


def view(catalog: Catalog, held: frozenset[str]) -> Catalog:
    """The part of a catalog that is for holders of these scopes."""
    tools = _left(catalog.tools, held)
    resources = _left(catalog.resources, held)
    templates = tuple(template for template in catalog.resource_templates if template.access.is_listed_for(held))
    prompts = _left(catalog.prompts, held)
    return replace(
        catalog,
        view_of=held,
        tools=tools,
        resources=resources,
        resource_templates=templates,
        prompts=prompts,
        fingerprints=fingerprints(tools=tools, resources=resources, templates=templates, prompts=prompts),
    )


def _left(primitives: Mapping[str, P], held: frozenset[str]) -> dict[str, P]:
    return {key: each for key, each in primitives.items() if each.access.is_listed_for(held)}
