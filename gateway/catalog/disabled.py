"""Filters out of a catalog the primitives that plugins switched off at run time. Pure."""

from gateway.catalog.primitives import Catalog
from gateway.errors import ExecutionError
from gateway.plugin import ListKind

Disabled = frozenset[tuple[ListKind, str]]
"""Kinds, and names as they are in the file."""


def check_name(catalog: Catalog, kind: ListKind, name: str) -> None:
    """Refuse a name that the file does not define.

    Raises:
        ExecutionError: the file has no such definition.
    """
    if (kind, name) not in _names(catalog):
        raise ExecutionError(f"There is no {name!r} among the {kind}")


def prune_disabled(catalog: Catalog, disabled: Disabled) -> Disabled:
    """The part of `disabled` that this catalog has; what is gone from the file need not be remembered."""
    return disabled and disabled & _names(catalog)


def apply_disabled(catalog: Catalog, disabled: Disabled) -> Catalog:
    return catalog.where(lambda each: (each.kind, each.name) not in disabled) if disabled else catalog


def _names(catalog: Catalog) -> Disabled:
    return frozenset((each.kind, each.name) for each in catalog.primitives())
