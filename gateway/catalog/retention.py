"""A catalog in which definitions that are withheld stay as they were, where they were as the lock has them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from gateway.catalog.fingerprints import fingerprints
from gateway.catalog.pins import INSTRUCTIONS, Name, Pins
from gateway.catalog.primitives import Catalog, Primitive, deciding_scopes
from gateway.config.document import Document

P = TypeVar("P", bound=Primitive)


def retained(catalog: Catalog, *, served: Catalog | None, locked: Pins, document: Document) -> Catalog:
    """Put what is served now in the place of what was withheld from `catalog`, if it is what was locked.

    What was removed from the files is gone: nobody is harmed by a tool that is not there, and whoever takes one out in
    a hurry must not be held up.
    """
    withheld = {(each.kind, each.name) for each in catalog.left_out if each.is_locked_out}
    if served is None:
        return catalog
    kept = {name for name in withheld if name in locked and served.pins.get(name) == locked[name]}
    if not kept:
        return catalog
    tools = _in_order(document.tools, _named(catalog.tools, served.tools, "tools", kept))
    resources = _in_order(document.resources, _named(catalog.resources, served.resources, "resources", kept))
    templates = _in_order(
        document.resources,
        _named(
            {each.uri_template: each for each in catalog.resource_templates},
            {each.uri_template: each for each in served.resource_templates},
            "resources",
            kept,
        ),
    )
    prompts = _in_order(document.prompts, _named(catalog.prompts, served.prompts, "prompts", kept))
    lists: dict[str, Mapping[str, Primitive]] = {"tools": tools, "resources": resources, "prompts": prompts}
    return replace(
        catalog,
        redactor=catalog.redactor | served.redactor,  # what is kept holds secrets as they were
        instructions=served.instructions if INSTRUCTIONS in kept else catalog.instructions,
        tools=tools,
        resources=resources,
        resource_templates=tuple(templates.values()),
        prompts=prompts,
        aliases={kind: _aliases(each) for kind, each in lists.items()},
        scopes=deciding_scopes((*tools.values(), *resources.values(), *templates.values(), *prompts.values())),
        left_out=tuple(each for each in catalog.left_out if (each.kind, each.name) not in kept),
        pins={**catalog.pins, **{name: served.pins[name] for name in kept}},
        fingerprints=fingerprints(
            tools=tools, resources=resources, templates=tuple(templates.values()), prompts=prompts
        ),
    )


def _named(new: Mapping[str, P], old: Mapping[str, P], section: str, kept: set[Name]) -> dict[str, P]:
    """The new ones, and the old ones that are kept."""
    return {**new, **{key: each for key, each in old.items() if (section, each.name) in kept}}


def _in_order(names: Iterable[str], primitives: Mapping[str, P]) -> dict[str, P]:
    """In the order of the file."""
    order = {name: index for index, name in enumerate(names)}
    return dict(sorted(primitives.items(), key=lambda item: order.get(item[1].name, len(order))))


def _aliases(primitives: Mapping[str, Primitive]) -> dict[str, str]:
    """Old names; one that has become a name of something else stands for that."""
    return {alias: key for key, each in primitives.items() for alias in each.aliases if alias not in primitives}
