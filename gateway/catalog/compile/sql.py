"""Compiles the mapping `sql` of tools, resources and completions."""

from collections.abc import Mapping, Sequence

from gateway.catalog.compile.context import CompileContext, place_of_input
from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.models.backends import Sql, SqlCompletion
from gateway.config.models.definitions import Resource, Tool
from gateway.executors.sql.compiler import compile_query, query_path
from gateway.executors.sql.dialects import POSTGRESQL, Dialect, dialect_of
from gateway.executors.sql.executor import SqlExecutor
from gateway.executors.sql.pools import DatabaseProfile
from gateway.executors.sql.query import Statement
from gateway.executors.sql.rows import RowLimits
from gateway.language.scope import Scope
from gateway.language.templates.caller import CALLER, is_fact_path
from gateway.language.templates.templating import JsonTemplate, TextTemplate, compile_json, compile_text

_UNKNOWN = DatabaseProfile(name="", dialect="postgresql", url="", size=1)
"""Stands for a database that there is not, so that the other problems of a query are found."""


def compile_sql(config: SqlCompletion, *, scope: Scope, context: CompileContext, max_bytes: int) -> SqlExecutor:
    """Compile a query, at whose mapping `scope` stands; mistakes go to its problems, and nothing then runs it."""
    profile = _profile(config, scope=scope, context=context)
    dialect = dialect_of(profile.dialect)
    writes = isinstance(config, Sql) and config.writes
    if not writes and not dialect.reads_only:
        scope.at("database").problems.error(
            f"no read-only transaction is known of {dialect.name}; say `writes: true`, with a user who may only read"
        )
    if config.query_file is not None:
        context.dependencies.files.add(query_path(config, scope.problems))
    statements = tuple(statement for statement, _ in compile_query(config, dialect=dialect, scope=scope))
    return SqlExecutor(
        database=profile,
        statements=statements,
        writes=writes,
        limits=RowLimits(max_rows=config.max_rows, max_bytes=max_bytes),
        is_single=isinstance(config, Sql) and config.single,
        decimals=config.decimals if isinstance(config, Sql) else "string",
        pools=context.services.databases,
        bind=_compile_bind(config, statements, scope=scope.at("bind")),
        settings=_compile_settings(config, dialect, scope=scope.at("settings")),
    )


def _compile_bind(
    config: SqlCompletion, statements: Sequence[Statement], *, scope: Scope
) -> Mapping[str, JsonTemplate]:
    names = {name for statement in statements for name in statement.names}
    for name in config.bind:
        place = scope.at(name).problems
        if name in scope.inputs.schemas or is_fact_path(name):
            place.error(f"`{name}` is already the name of an input" if name != CALLER else f"`{CALLER}` is reserved")
        elif name not in names and scope.problems.has_no_errors:
            place.error(f"no query uses `{name}`; bind it as `:{name}`, or remove it")
    return {name: compile_json(value, scope.at(name)) for name, value in config.bind.items()}


def _compile_settings(config: SqlCompletion, dialect: Dialect, *, scope: Scope) -> Mapping[str, TextTemplate]:
    if config.settings and dialect.name != POSTGRESQL.name:
        scope.problems.error(f"`settings` requires PostgreSQL; {dialect.name} has no settings of a transaction")
    return {name: compile_text(value, scope.at(name)) for name, value in config.settings.items()}


def check_bound(executor: SqlExecutor, scope: Scope, config: Tool | Resource) -> None:
    """Report inputs of a definition that no statement binds."""
    names = {name for statement in executor.statements for name in statement.names}
    if not scope.problems.has_no_errors:
        return
    for name in scope.inputs.schemas:
        # An input may also be part of a value of `bind` or `settings`.
        if name not in names and name not in scope.used:
            # So that it is not reported as unused, too.
            scope.used.add(name)
            scope.problems.at(*place_of_input(config, name)).error(
                f"no query uses `{name}`; bind it as `:{name}`, or take it out"
            )


def _profile(config: SqlCompletion, *, scope: Scope, context: CompileContext) -> DatabaseProfile:
    name = config.database
    if name not in context.databases:
        hint = did_you_mean(name, [*context.databases])
        scope.at("database").problems.error(f"there is no database `{name}`{hint}")
    return context.profiles.get(name, _UNKNOWN)
