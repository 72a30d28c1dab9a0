"""Computes the version of a primitive, a digest that changes with its definition, code and files."""

import hashlib
import os
from functools import cache
from typing import Final

import orjson

from gateway import exact_json
from gateway.catalog.compile.context import CompileContext
from gateway.catalog.digests import query_digests
from gateway.config.diagnostics.problems import Problems
from gateway.config.models.base import Model
from gateway.config.models.definition_keys import Definition
from gateway.config.models.definitions import Resource
from gateway.executors.files.regular_files import FileFacts, facts_of
from gateway.executors.python.signature import Signature
from gateway.json_types import Json

_OPTIONS: Final = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_NON_STR_KEYS


def definition_version(
    config: Definition, signature: Signature | None, *, problems: Problems, context: CompileContext
) -> str:
    """Digest a definition, its plugin's code, its queries, and the connections and databases that it refers to."""
    queries = query_digests(config, problems.directory)
    return _digest(config, context.defaults, context.entries_of(config), queries, _code_of(signature))


def resource_version(
    config: Resource, signature: Signature | None, *, problems: Problems, context: CompileContext
) -> str:
    """Digest the parts of a resource that determine its content: backend, code, queries and file."""
    facts = facts_of(file_of(config, problems=problems)) if config.file is not None else None
    entries, queries = context.entries_of(config), query_digests(config, problems.directory)
    return _digest(config.mime_type, getattr(config, config.backend), entries, queries, _code_of(signature), facts)


def file_of(config: Resource, *, problems: Problems) -> str:
    return os.path.normpath(problems.at("file").directory / (config.file or ""))


def file_version(config: Resource, facts: FileFacts) -> str:
    return _digest(config.mime_type, facts)


def _code_of(signature: Signature | None) -> str:
    return signature.function.__module__ if signature else ""  # the name contains a digest of the plugin directory


def _digest(*facts: object) -> str:
    return hashlib.sha256(exact_json.dumps(facts, default=_plain, option=_OPTIONS)).hexdigest()


def _plain(value: object) -> Json:
    """Convert a model to its class name and the fields set in the files. Convert other values to their `repr`."""
    if not isinstance(value, Model):
        return repr(value)
    # Sort the names, because sets of strings are ordered differently in each process.
    names = sorted(value.model_fields_set & _deciding_fields(type(value)))
    return type(value).__name__, [(name, getattr(value, name)) for name in names]


@cache
def _deciding_fields(model: type[Model]) -> frozenset[str]:
    return frozenset(name for name, field in model.model_fields.items() if field.repr)
