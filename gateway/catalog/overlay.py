"""A catalog without the primitives that were switched off at run time. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from gateway.catalog.fingerprints import fingerprints
from gateway.catalog.primitives import Catalog, Primitive
from gateway.errors import ExecutionError
from gateway.plugin import ListKind

P = TypeVar("P", bound=Primitive)

Disabled = frozenset[tuple[ListKind, str]]
"""Kinds, and names as they stand in the file."""


def check_name(catalog: Catalog, kind: ListKind, name: str) -> None:
    """Raises: ExecutionError: the file has no such definition."""
    if name not in _names(catalog, kind):
        raise ExecutionError(f"There is no {name!r} among the {kind}")


def still_named(catalog: Catalog, disabled: Disabled) -> Disabled:
    """Those of `disabled` that this catalog has; what is gone from the file need not be remembered."""
    return frozenset((kind, name) for kind, name in disabled if name in _names(catalog, kind))


def without(catalog: Catalog, disabled: Disabled) -> Catalog:
    if not disabled:
        return catalog
    tools = _left(catalog.tools, "tools", disabled)
    resources = _left(catalog.resources, "resources", disabled)
    prompts = _left(catalog.prompts, "prompts", disabled)
    templates = tuple(each for each in catalog.resource_templates if ("resources", each.name) not in disabled)
    return replace(
        catalog,
        tools=tools,
        resources=resources,
        resource_templates=templates,
        prompts=prompts,
        fingerprints=fingerprints(tools=tools, resources=resources, templates=templates, prompts=prompts),
    )


def _names(catalog: Catalog, kind: ListKind) -> set[str]:
    if kind == "resources":
        return {each.name for each in (*catalog.resources.values(), *catalog.resource_templates)}
    return set(catalog.tools if kind == "tools" else catalog.prompts)


def _left(primitives: Mapping[str, P], kind: ListKind, disabled: Disabled) -> dict[str, P]:
    return {key: each for key, each in primitives.items() if (kind, each.name) not in disabled}
