"""Which scopes a definition needs: those of its own `access`, and those of every rule in `auth.rules` that it fits."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain

from gateway.catalog.primitives import Access
from gateway.config import definitions as models
from gateway.config.auth import Match, Rule
from gateway.config.definitions import Definition
from gateway.config.document import Document
from gateway.config.primitives import Tool
from gateway.config.problems import Problems
from gateway.plugin import ListKind

Accesses = Mapping[tuple[ListKind, str], Access]
"""By kind and name; what is not in it is for everybody."""


def compile_access(document: Document, *, may_have_auth: bool, problems: Problems) -> Accesses:
    """What each definition of the file needs.

    `access` without `auth` is an error (`may_have_auth`: there is such a section, if with a mistake in it); a rule that
    fits nothing is a doubt.
    """
    rules = [] if document.auth is None else document.auth.rules
    fitting: set[int] = set()
    accesses: dict[tuple[ListKind, str], Access] = {}
    for kind, name, config in _definitions(document):
        if config.access is not None and not may_have_auth:
            problems.at(kind, name, "access").error("goes with `auth`: without it nobody could hold a scope")
        fits = [index for index, rule in enumerate(rules) if _fits(rule.match, kind, name, config)]
        fitting.update(fits)
        if fits or config.access is not None:
            accesses[kind, name] = _access(config, [rules[index] for index in fits])
    for index in range(len(rules)):
        if index not in fitting:
            problems.at("auth", "rules", index, "match").warning("fits none of the definitions")
    return accesses


def _definitions(document: Document) -> Iterator[tuple[ListKind, str, Definition]]:
    for name, tool in document.tools.items():
        yield "tools", name, tool
    for name, resource in document.resources.items():
        yield "resources", name, resource
    for name, prompt in document.prompts.items():
        yield "prompts", name, prompt


def _fits(match: Match, kind: ListKind, name: str, config: Definition) -> bool:
    if match.kind is not None and match.kind != kind:
        return False
    if match.name is not None and not fnmatchcase(name, match.name):
        return False
    if match.tag is not None and match.tag not in config.tags:
        return False
    return match.annotation is None or _is_annotated(config, match.annotation)


def _is_annotated(config: Definition, annotation: str) -> bool:
    return (
        isinstance(config, Tool) and config.annotations is not None and getattr(config.annotations, annotation) is True
    )


def _access(config: Definition, rules: Sequence[Rule]) -> Access:
    """All scopes that anything asks for; listed to those without them only if nothing says otherwise."""
    own = [] if config.access is None else [config.access]
    sources = list(chain[Rule | models.Access](rules, own))
    return Access(
        scopes=frozenset(scope for source in sources for scope in source.scopes),
        is_visible=all(source.visible for source in sources),
    )
