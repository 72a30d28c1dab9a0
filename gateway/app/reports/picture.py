"""A picture of what a file offers, and to whom: enough to say what another file would change.

Why a value of its own: a running daemon answers with one (`/-/config`), and so it holds nothing that could not be
shown. Secrets are masked in it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import chain
from typing import Final, Self

from gateway.catalog.primitives import Catalog, Resource, ResourceTemplate
from gateway.catalog.views import view
from gateway.config.base import Model
from gateway.config.document import Document
from gateway.config.written import written
from gateway.executors.cache import CachingExecutor
from gateway.executors.invocation import Executor
from gateway.executors.python.executor import PythonExecutor
from gateway.json_types import Json, JsonObject

KINDS: Final = ("tools", "resources", "prompts")
_SECTIONS: Final = ("server", "listen", "auth", "limits", "defaults")
EVERYBODY: Final = "everybody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """What those see who hold the same scopes."""

    names: Mapping[str, list[str]]
    """Of each kind, the keys of what is listed to them."""
    fingerprints: Mapping[str, str]
    """Of each list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What a file offers."""

    written: Mapping[str, Json]
    """What stands at `tools.deploy`, `connections.github`, `listen` …; only what was written."""
    left_out: Mapping[str, str]
    """Why a definition is not on offer here, by such a place."""
    code: Mapping[str, str]
    """The module behind each function, by such a place; its name is another when its directory's content is."""
    audiences: Mapping[str, Audience]
    """By who they are."""

    def as_json(self) -> dict[str, Json]:
        audiences = {
            name: {"names": audience.names, "fingerprints": audience.fingerprints}
            for name, audience in self.audiences.items()
        }
        return {"written": self.written, "left_out": self.left_out, "code": self.code, "audiences": audiences}

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Read what another process drew.

        Raises:
            ValueError: it is no picture.
        """
        try:
            parts = {field.name: value[field.name] for field in fields(cls)}
            audiences = {
                name: Audience(names=audience["names"], fingerprints=audience["fingerprints"])
                for name, audience in parts.pop("audiences").items()
            }
            return cls(**parts, audiences=audiences)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("is no picture of a configuration") from error


def draw(document: Document, catalog: Catalog) -> Picture:
    """Draw what is served from a document."""
    redactor = catalog.redactor  # what is a secret at one place is not shown at another, either
    return Picture(
        written=redactor.json(dict(_written(document))),
        left_out={f"{each.kind}.{each.name}": redactor.text(each.reason) for each in catalog.left_out},
        code=dict(_code(catalog)),
        audiences=dict(_audiences(document, catalog)),
    )


def _written(document: Document) -> Iterator[tuple[str, Json]]:
    for section in _SECTIONS:
        model = getattr(document, section)
        if isinstance(model, Model) and (said := written(model)):
            yield section, said
    for kind in ("connections", *KINDS):
        for name, definition in getattr(document, kind).items():
            yield f"{kind}.{name}", written(definition)


def _code(catalog: Catalog) -> Iterator[tuple[str, str]]:
    resources = chain[Resource | ResourceTemplate](catalog.resources.values(), catalog.resource_templates)
    executors = chain(
        ((f"tools.{tool.name}", tool.executor) for tool in catalog.tools.values()),
        ((f"resources.{resource.name}", resource.executor) for resource in resources),
    )
    for place, executor in executors:
        if (function := _function_of(executor)) is not None:
            yield place, function.signature.function.__module__


def _function_of(executor: Executor) -> PythonExecutor | None:
    match executor:
        case PythonExecutor():
            return executor
        case CachingExecutor():
            return _function_of(executor.executor)
        case _:
            return None


def _audiences(document: Document, catalog: Catalog) -> Iterator[tuple[str, Audience]]:
    """Each API key; whoever has a token with none, or with one, of the scopes that matter; or else everybody."""
    auth = document.auth
    if auth is None:
        yield EVERYBODY, _audience(catalog)
        return
    for name, key in auth.api_keys.items():
        yield f"key {name}", _audience(view(catalog, frozenset(key.scopes)))
    if auth.oauth is not None:
        yield "token without scopes", _audience(view(catalog, frozenset()))
        for scope in sorted(catalog.scopes):
            yield f"token with {scope}", _audience(view(catalog, frozenset({scope})))


def _audience(catalog: Catalog) -> Audience:
    resources = [*catalog.resources.values(), *catalog.resource_templates]
    names = {
        "tools": list(catalog.tools),
        "resources": list(dict.fromkeys(each.name for each in resources)),
        "prompts": list(catalog.prompts),
    }
    return Audience(names=names, fingerprints=dict(catalog.fingerprints))
