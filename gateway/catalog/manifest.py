"""Describes the definitions that a configuration serves and who can use them, to show the effect of a change.

A daemon publishes its manifest (`/-/config`), so secrets are masked.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, Self

import msgspec

from gateway.catalog.catalog import Catalog, names_of, scoped, viewed
from gateway.catalog.primitives import Primitive, Prompt, Tool
from gateway.config.models.base import Model
from gateway.config.models.document import LISTS, Document
from gateway.config.secrets.literal_secrets import masked_document
from gateway.json_types import Json, JsonObject

_SECTIONS: Final = ("server", "listen", "auth", "audit", "limits", "defaults")
_ENTRIES: Final = ("connections", "databases", "upstreams", "openapi", "views", *LISTS)
_EVERYBODY: Final = "everybody"


class Audience(msgspec.Struct, frozen=True, kw_only=True):
    """The definitions that callers with the same scopes see in lists."""

    names: Mapping[str, list[str]]
    """Keys of the listed definitions, by kind."""
    fingerprints: Mapping[str, str]
    """Digest of each list, by kind."""


class Contract(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The schemas and audiences of one tool, resource or prompt. Clients depend on both."""

    input: Json = None
    """JSON Schema of the arguments, or None for resources."""
    output: Json = None
    audiences: list[str]
    """Names of the audiences that can use the name or URI."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    written: Mapping[str, Json]
    """Definitions and sections as written in the files, by path, such as `tools.deploy` or `listen`."""
    left_out: Mapping[str, str]
    """Reasons why definitions are not served, by the path of the definition."""
    code: Mapping[str, str]
    """Digests of plugin code, by the path of the definition."""
    audiences: Mapping[str, Audience]
    contracts: Mapping[str, Contract] | None = None
    """Contracts by kind and name, alias or URI, such as `tools.deploy`. None if contracts were not requested."""

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
            raise ValueError("not the manifest of a configuration") from error


def manifest(document: Document, catalog: Catalog, *, with_contracts: bool = False) -> Manifest:
    redactor = catalog.redactor  # a secret in one field is masked in all fields
    parts = dict(_parts(document, catalog))
    contracts = dict(_contracts(catalog, parts)) if with_contracts else None
    return Manifest(
        written=redactor.json(dict(_written(document, catalog))),
        left_out={f"{each.kind}.{each.name}": redactor.text(each.reason) for each in catalog.left_out},
        code={".".join(name): pin["code"] for name, pin in catalog.pins.items() if "code" in pin},
        audiences={name: _audience(part) for name, part in parts.items()},
        contracts=msgspec.convert(redactor.json(msgspec.to_builtins(contracts)), dict[str, Contract] | None),
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


def _parts(document: Document, catalog: Catalog) -> Iterator[tuple[str, Catalog]]:
    """Yield the name and catalog of each audience. Audiences are API keys, tokens with at most one scope, and views."""
    auth = document.auth
    if auth is None:
        yield _EVERYBODY, catalog
    else:
        for name, key in auth.api_keys.items():
            yield f"key {name}", scoped(catalog, frozenset(key.scopes))
    if auth is not None and auth.oauth:
        yield "token without scopes", scoped(catalog, frozenset())
        # There are 2^n sets of scopes, so only single scopes are listed.
        for scope in sorted(catalog.scopes):
            yield f"token with {scope}", scoped(catalog, frozenset({scope}))
    for name, view in catalog.views.items():
        yield f"view {name}", viewed(catalog, view)


def _audience(catalog: Catalog) -> Audience:
    resources = [*catalog.resources.values(), *catalog.resource_templates]
    names = {
        "tools": list(catalog.tools),
        "resources": list(dict.fromkeys(each.name for each in resources)),
        "prompts": list(catalog.prompts),
    }
    return Audience(names=names, fingerprints=dict(catalog.fingerprints))


def _contracts(catalog: Catalog, parts: Mapping[str, Catalog]) -> Iterator[tuple[str, Contract]]:
    audiences: defaultdict[str, list[str]] = defaultdict(list)
    for name, part in parts.items():
        for each in part.primitives():
            audiences[_place(each)].append(name)
    aliases = []
    for each in catalog.primitives():
        contract = _contract(each, audiences[_place(each)])
        aliases += [(f"{each.kind}.{alias}", contract) for alias in each.aliases]
        yield _place(each), contract
    names = {_place(each) for each in catalog.primitives()}
    yield from (alias for alias in aliases if alias[0] not in names)


def _place(primitive: Primitive) -> str:
    return f"{primitive.kind}.{names_of(primitive)[-1]}"


def _contract(primitive: Primitive, audiences: list[str]) -> Contract:
    definition = primitive.definition
    match primitive:
        case Tool():
            schema = definition.get("inputSchema")
            return Contract(input=schema, output=definition.get("outputSchema"), audiences=audiences)
        case Prompt():
            arguments = {each["name"]: each for each in definition.get("arguments") or ()}
            return Contract(
                input={
                    "properties": {name: {} for name in arguments},
                    "required": [name for name, each in arguments.items() if each.get("required")],
                    "additionalProperties": False,
                },
                audiences=audiences,
            )
        case _:
            return Contract(audiences=audiences)
