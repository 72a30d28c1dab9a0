"""Collects the scopes that definitions require, from `access` and `auth.rules`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from itertools import chain

from gateway.catalog.primitives import RequiredScopes
from gateway.catalog.skill_snapshot import SkillSnapshot, key_of
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.models import definition_keys as models
from gateway.config.models.auth import Match, Rule
from gateway.config.models.definition_keys import Definition
from gateway.config.models.definitions import Tool
from gateway.config.models.document import LISTS, Document, SkillDirectories
from gateway.config.models.openapi import OpenApi
from gateway.config.models.upstreams import Upstream
from gateway.json_types import DocumentPath
from gateway.plugin import ListKind

Accesses = Mapping[tuple[ListKind, str], RequiredScopes]
"""Required scopes by kind and name. Definitions that are open to all callers have no entry."""


def compile_access(loaded: LoadedConfig, *, problems: Problems, skills: Iterable[SkillSnapshot] = ()) -> Accesses:
    """Return the scopes that each definition and each skill requires.

    Report an error for `access` without `auth`. Warn about rules in `auth.rules` that match nothing, unless definitions
    are missing because of errors.
    """
    document = loaded.document
    has_auth = document.auth is not None or loaded.is_hidden("auth")
    rules = [] if document.auth is None else document.auth.rules
    names = [re.compile(translate("*" if rule.match.name is None else rule.match.name)) for rule in rules]
    fitting: set[int] = set()
    accesses: dict[tuple[ListKind, str], RequiredScopes] = {}
    for kind, key, name, config in _protected(document, skills):
        fits = [
            index for index, rule in enumerate(rules) if names[index].match(name) and _fits(rule.match, kind, config)
        ]
        fitting.update(fits)
        if fits or config.access is not None:
            accesses[kind, key] = _access(config, [rules[index] for index in fits])
    for place in () if has_auth else _paths_with_access(document):
        if place[:2] not in loaded.origins:  # otherwise, the source's entry contains the `access`
            problems.at(*place, "access").error("requires `auth`: without it, callers have no scopes")
    if not problems.has_errors:  # if there are errors, matching definitions can be missing
        for index in sorted(set(range(len(rules))) - fitting):
            problems.at("auth", "rules", index, "match").warning("does not match any definition")
    return accesses


def _protected(
    document: Document, skills: Iterable[SkillSnapshot]
) -> Iterator[tuple[ListKind, str, str, Definition | SkillDirectories]]:
    for kind in LISTS:
        for name, config in getattr(document, kind).items():
            yield kind, name, name, config
    for skill in skills:
        yield "resources", key_of(skill.name), skill.name, skill.config


def _paths_with_access(document: Document) -> Iterator[DocumentPath]:
    entries: list[tuple[DocumentPath, Definition | SkillDirectories | Upstream | OpenApi]] = [
        (("skills", index), each) for index, each in enumerate(document.skills)
    ]
    for section in (*LISTS, "upstreams", "openapi"):
        entries.extend(((section, name), each) for name, each in getattr(document, section).items())
    for name, upstream in document.upstreams.items():
        for kind in LISTS:
            overrides = getattr(upstream, kind).override
            entries.extend((("upstreams", name, kind, "override", key), each) for key, each in overrides.items())
    for name, api in document.openapi.items():
        entries.extend((("openapi", name, "override", key), each) for key, each in api.override.items())
    return (path for path, each in entries if each.access is not None)


def _fits(match: Match, kind: ListKind, config: Definition | SkillDirectories) -> bool:
    if match.kind is not None and match.kind != kind:
        return False
    if match.tag is not None and match.tag not in config.tags:
        return False
    if match.annotation is None:
        return True
    return isinstance(config, Tool) and getattr(config.hints, match.annotation, None) is True


def _access(config: Definition | SkillDirectories, rules: Sequence[Rule]) -> RequiredScopes:
    own = [] if config.access is None else [config.access]
    sources = list(chain[Rule | models.Access](rules, own))
    return RequiredScopes(
        scopes=frozenset(scope for source in sources for scope in source.scopes),
        is_visible=all(source.visible for source in sources),
    )
