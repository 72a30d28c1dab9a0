"""Keeps serving the locked version of a definition that has changed in the files."""

from msgspec.structs import replace

from gateway.catalog.catalog import Catalog
from gateway.catalog.lockfile.digests import INSTRUCTIONS, SKILLS, DefinitionDigests, Name, instructions_of
from gateway.catalog.primitives import ResourceTemplate
from gateway.config.models.document import LISTS, Document


def keep_locked(catalog: Catalog, *, served: Catalog | None, locked: DefinitionDigests, document: Document) -> Catalog:
    """Add the served version of each definition that `catalog` leaves out, if that version is locked.

    Definitions that are no longer in the files are dropped, so that an operator can remove a tool at once. Skills are
    dropped too, because their files are read on request.
    """
    left_out = {(each.kind, each.name) for each in catalog.left_out if each.is_locked_out}
    if served is None:
        return catalog
    pinned = {name for name in left_out if name in locked and name[0] != SKILLS}
    # The served version can differ from the lock, for example after `mcp-gateway lock`.
    kept = {name for name in pinned if served.pins.get(name) == locked[name]}
    if not kept:
        return catalog
    primitives = [*catalog.primitives(), *(each for each in served.primitives() if (each.kind, each.name) in kept)]
    order = _order(document)
    # Files of skills and pages of tools are not in a section, so they come last. Templates follow resources.
    primitives.sort(
        key=lambda each: (isinstance(each, ResourceTemplate), order.get((each.kind, each.name), len(order)))
    )
    return replace(
        catalog.with_primitives(primitives),
        redactor=catalog.redactor | served.redactor,  # kept definitions can contain old secrets
        instructions=served.instructions if INSTRUCTIONS in kept else catalog.instructions,
        upstream_instructions={
            **catalog.upstream_instructions,
            **{name: text for name, text in served.upstream_instructions.items() if instructions_of(name) in kept},
        },
        left_out=tuple(each for each in catalog.left_out if (each.kind, each.name) not in kept),
        pins={**catalog.pins, **{name: served.pins[name] for name in kept}},
    )


def _order(document: Document) -> dict[Name, int]:
    names = [(kind, name) for kind in LISTS for name in getattr(document, kind)]
    return {name: index for index, name in enumerate(names)}
