"""Checks the SQL of a configuration for `validate --connect`, by preparing statements without executing them."""

import asyncio
from collections.abc import Iterator
from typing import Final

from gateway.catalog.compile.arguments import compile_arguments
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.models.backends import SqlCompletion
from gateway.config.models.definitions import CommandCompletion
from gateway.errors import ExecutionError, Problem
from gateway.executors.sql.compiler import compile_query
from gateway.executors.sql.dialects import StatementError, dialect_of, first_word
from gateway.executors.sql.pools import DatabasePools
from gateway.executors.sql.sessions import DatabaseProfile, Session, failure_of
from gateway.json_types import DocumentPath
from gateway.language.scope import Inputs, Scope

_SECONDS: Final = 10.0
"""Time limit for all queries of one database."""
_Query = tuple[SqlCompletion, DocumentPath, Inputs]
"""A query, its path in the file, and the inputs that it can use."""
_DEFINING: Final = frozenset({"CREATE", "ALTER", "DROP"})
"""Statements that define names. Later statements cannot be checked, because the names do not exist yet."""


async def refused_queries(loaded: LoadedConfig, profiles: frozenset[DatabaseProfile]) -> tuple[Problem, ...]:
    """Return an error for each query that a database rejects, and a warning for each unreachable database."""
    problems = Problems(loaded.sources, redactor=loaded.redactor)
    async with DatabasePools() as pools:
        for profile in sorted(profiles, key=lambda each: each.name):
            queries = [each for each in _queries_of(loaded) if each[0].database == profile.name]
            place = problems.at("databases", profile.name)
            try:
                async with asyncio.timeout(_SECONDS), pools.pool(profile, read_only=True).session() as session:
                    for query in queries:
                        await _check(query, session, profile=profile, problems=problems)
            except TimeoutError:
                place.warning("did not respond in time, so its queries were not checked")
            except Exception as error:  # Boundary: a driver can raise any exception
                failure = failure_of(error, profile)
                if not isinstance(failure, ExecutionError):
                    raise
                place.warning(f"cannot check its queries: {failure}")
    return tuple(problems)


async def _check(query: _Query, session: Session, *, profile: DatabaseProfile, problems: Problems) -> None:
    config, path, inputs = query
    scope = Scope(inputs=inputs, problems=problems.at(*path))
    for statement, report in compile_query(config, dialect=dialect_of(profile.dialect), scope=scope):
        # Bind a list with one item, because the number of items determines the number of placeholders.
        bound = statement.bind({piece.text: [None] for piece in statement.pieces if piece.is_list})
        first = first_word(bound.text, dialect_of(profile.dialect))
        try:
            await session.prepare(bound)
        except StatementError as error:
            offset = bound.written_offset(first.start if error.offset is None else error.offset)
            report(offset, f"the database rejected the statement: {error}")
        if first.text.upper() in _DEFINING:
            return


def _queries_of(loaded: LoadedConfig) -> Iterator[_Query]:
    document, unnamed = loaded.document, Inputs(is_open=True)
    for name, tool in document.tools.items():
        if tool.sql is not None:
            unreported = loaded.start_problems().at("tools", name)
            yield tool.sql, ("tools", name, "sql"), compile_arguments(tool, unreported).inputs
    for name, resource in document.resources.items():
        if resource.sql is not None:
            yield resource.sql, ("resources", name, "sql"), unnamed
        for variable, source in resource.complete.items():
            if isinstance(source, CommandCompletion) and source.sql is not None:
                yield source.sql, ("resources", name, "complete", variable, "sql"), unnamed
    for name, prompt in document.prompts.items():
        for key, argument in prompt.arguments.items():
            if isinstance(argument.complete, CommandCompletion) and argument.complete.sql is not None:
                path = ("prompts", name, "arguments", key, "complete", "sql")
                yield argument.complete.sql, path, unnamed
