"""Describes what a configuration serves and to whom, to show the effect of a change.

A daemon publishes its manifest (`/-/config`), so secrets are masked.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Self

import msgspec

from gateway.catalog.caller_catalogs import scoped, viewed
from gateway.catalog.catalog import Catalog
from gateway.config.models.base import Model
from gateway.config.models.document import LISTS, Document
from gateway.config.secrets.literal_secrets import masked_document
from gateway.json_types import Json, JsonObject

_SECTIONS: Final = ("server", "listen", "auth", "audit", "limits", "defaults")
_ENTRIES: Final = ("connections", "databases", "upstreams", "openapi", "views", *LISTS)
_EVERYBODY: Final = "everybody"


class Audience(msgspec.Struct, frozen=True, kw_only=True):
    """The lists that callers with the same scopes see."""

    names: Mapping[str, list[str]]
    """Keys of the listed definitions, by kind."""
    fingerprints: Mapping[str, str]
    """By kind."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    written: Mapping[str, Json]
    """Values in the file by path, such as `tools.deploy` or `listen`."""
    left_out: Mapping[str, str]
    """Path of a definition → why it is not served."""
    code: Mapping[str, str]
    """Path of a definition → digest of its code."""
    audiences: Mapping[str, Audience]

    def as_json(self) -> JsonObject:
        found: JsonObject = msgspec.to_builtins(self)
        return found

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Parse the manifest of another process.

        Raises:
            ValueError: the value is not a manifest.
        """
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError as error:
            raise ValueError("is no manifest of a configuration") from error


def manifest(document: Document, catalog: Catalog) -> Manifest:
    redactor = catalog.redactor  # a secret in one field is masked in all fields
    return Manifest(
        written=redactor.json(dict(_written(document, catalog))),
        left_out={f"{each.kind}.{each.name}": redactor.text(each.reason) for each in catalog.left_out},
        code={".".join(name): pin["code"] for name, pin in catalog.pins.items() if "code" in pin},
        audiences=dict(_audiences(document, catalog)),
    )


def _written(document: Document, catalog: Catalog) -> Iterator[tuple[str, Json]]:
    for section in _SECTIONS:
        model = getattr(document, section)
        if isinstance(model, Model) and (said := masked_document(model)):
            yield section, said
    for kind in _ENTRIES:
        for name, definition in getattr(document, kind).items():
            yield f"{kind}.{name}", masked_document(definition)
    for skill in catalog.skills.values():
        yield (
            f"skills.{skill.name}",
            {
                **skill.entry["frontmatter"],
                "files": {each["uri"]: each["digest"] for each in skill.entry["resources"]},
            },
        )


def _audiences(document: Document, catalog: Catalog) -> Iterator[tuple[str, Audience]]:
    """Yield an audience for each API key, for tokens without scopes, for each relevant scope, and for each view."""
    auth = document.auth
    if auth is None:
        yield _EVERYBODY, _audience(catalog)
    else:
        for name, key in auth.api_keys.items():
            yield f"key {name}", _audience(scoped(catalog, frozenset(key.scopes)))
    if auth is not None and auth.oauth:
        yield "token without scopes", _audience(scoped(catalog, frozenset()))
        # There are 2^n sets of scopes, so only single scopes are listed.
        for scope in sorted(catalog.scopes):
            yield f"token with {scope}", _audience(scoped(catalog, frozenset({scope})))
    for name, view in catalog.views.items():
        yield f"view {name}", _audience(viewed(catalog, view))


def _audience(catalog: Catalog) -> Audience:
    resources = [*catalog.resources.values(), *catalog.resource_templates]
    names = {
        "tools": list(catalog.tools),
        "resources": list(dict.fromkeys(each.name for each in resources)),
        "prompts": list(catalog.prompts),
    }
    return Audience(names=names, fingerprints=dict(catalog.fingerprints))
