"""Compiles `databases`, and the `sql` of tools, resources and completions."""

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.catalog.compile.context import CompileContext, place_of_input
from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import is_file
from gateway.config.models.backends import Sql, SqlCompletion
from gateway.config.models.definitions import Resource, Tool
from gateway.config.models.document import Database
from gateway.distribution import install_command
from gateway.executors.sql.compiler import compile_query, query_path
from gateway.executors.sql.dialects import POSTGRESQL, Dialect, dialect_of
from gateway.executors.sql.executor import SqlExecutor
from gateway.executors.sql.pools import DatabaseProfile, is_installed
from gateway.executors.sql.query import Statement
from gateway.executors.sql.rows import RowLimits
from gateway.language.scope import Scope
from gateway.language.templates.caller import CALLER, is_fact_path
from gateway.language.templates.templating import JsonTemplate, TextTemplate, compile_json, compile_text

_POSTGRESQL: Final = frozenset({"postgresql", "postgres"})


def compile_databases(databases: Mapping[str, Database], *, problems: Problems) -> Mapping[str, DatabaseProfile]:
    """Return the valid databases. Unused databases are checked too."""
    found = {name: compile_database(name, config, problems.at(name)) for name, config in databases.items()}
    return {name: profile for name, profile in found.items() if profile is not None}


def compile_database(name: str, config: Database, problems: Problems) -> DatabaseProfile | None:
    if not is_installed():
        problems.error(f"needs packages that are not installed: {install_command('sql')}")
        return None
    scheme = config.url.partition(":")[0].lower()
    if scheme.partition("+")[0] == "sqlite":
        return _sqlite(name, config, problems)
    return _server(name, config, problems)


def _sqlite(name: str, config: Database, problems: Problems) -> DatabaseProfile | None:
    place, written = problems.at("url"), config.url.partition(":")[2]
    path = written.removeprefix("///")
    if config.password is not None:
        problems.at("password").error("SQLite databases have no password")
    if path in {"", ":memory:"}:
        place.error("each connection would have a separate in-memory database; use a file: sqlite:notes.db")
        return None
    if path.startswith("//") or "?" in path or "\0" in path:
        place.error("expected only a path after `sqlite:`, such as sqlite:notes.db or sqlite:/var/lib/notes.db")
        return None
    file = place.directory / path
    if not is_file(file):
        place.warning(f"file `{path}` does not exist; a query with `writes: true` creates it")
    return DatabaseProfile(name=name, dialect="sqlite", url=str(file), size=config.pool)


def _server(name: str, config: Database, problems: Problems) -> DatabaseProfile | None:
    from sqlalchemy import make_url  # noqa: PLC0415 - of the extra
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError  # noqa: PLC0415 - of the extra

    place = problems.at("url")
    try:
        url = make_url(config.url)
        backend = url.get_backend_name()
        if backend in _POSTGRESQL:
            # asyncpg calls libpq's `sslmode` `ssl`.
            query = {"ssl" if key == "sslmode" else key: value for key, value in url.query.items()}
            url = url.set(drivername="postgresql+asyncpg", query=query)
            backend = "postgresql"
        dialect = url.get_dialect()
        # Report a missing driver now rather than at the first connection.
        dialect.import_dbapi()
    # SQLAlchemy raises ValueError for an invalid port.
    except (ArgumentError, ValueError):
        place.error("is not a database URL; expected a URL such as postgresql://app@db/shop")
        return None
    except NoSuchModuleError:
        place.error(f"SQLAlchemy has no dialect named `{config.url.partition(':')[0]}`")
        return None
    except ImportError as error:
        place.error(f"needs a driver that is not installed: {error}")
        return None
    if not dialect.is_async:
        place.error(
            f"the driver `{dialect.driver}` does not support asyncio; use one that does, such as mysql+aiomysql://"
        )
        return None
    if config.password is not None:
        if url.password is not None:
            problems.at("password").error("the URL has a password too; only one is allowed")
        url = url.set(password=config.password)
    # The URL is used to connect, so the password must not be hidden.
    return DatabaseProfile(name=name, dialect=backend, url=url.render_as_string(hide_password=False), size=config.pool)


_UNKNOWN = DatabaseProfile(name="", dialect="postgresql", url="", size=1)
"""Placeholder for an undefined database, so that the query is still checked."""


def compile_sql(config: SqlCompletion, *, scope: Scope, context: CompileContext, max_bytes: int) -> SqlExecutor:
    """Compile the query in the mapping at `scope`."""
    profile = _profile(config, scope=scope, context=context)
    dialect = dialect_of(profile.dialect)
    writes = isinstance(config, Sql) and config.writes
    if not writes and not dialect.reads_only:
        scope.at("database").problems.error(
            f"{dialect.name} has no read-only transactions here; set `writes: true`, and use a user that can only read"
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
    """Report inputs that no statement uses."""
    names = {name for statement in executor.statements for name in statement.names}
    if not scope.problems.has_no_errors:
        return
    for name in scope.inputs.schemas:
        # Values of `bind` and `settings` can also use inputs.
        if name not in names and name not in scope.used:
            # Avoid a second report of an unused input.
            scope.used.add(name)
            scope.problems.at(*place_of_input(config, name)).error(
                f"no query uses `{name}`; bind it as `:{name}`, or remove it"
            )


def _profile(config: SqlCompletion, *, scope: Scope, context: CompileContext) -> DatabaseProfile:
    name = config.database
    if name not in context.databases:
        hint = did_you_mean(name, [*context.databases])
        scope.at("database").problems.error(f"unknown database `{name}`{hint}")
    return context.profiles.get(name, _UNKNOWN)
