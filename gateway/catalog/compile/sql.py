"""Compiles `databases`, and the `sql` of tools, resources and completions."""

import re
from collections.abc import Mapping, Sequence

from gateway.catalog.compile.context import CompileContext, path_of_input
from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import is_file
from gateway.config.models.backends import Sql, SqlCompletion
from gateway.config.models.definitions import Resource, Tool
from gateway.config.models.document import Database
from gateway.executors.sql.compiler import compile_query, query_path
from gateway.executors.sql.dialects import Dialect, dialect_of, dialect_of_url
from gateway.executors.sql.executor import SqlExecutor
from gateway.executors.sql.pools import DatabaseProfile
from gateway.executors.sql.query import Statement
from gateway.language.scope import Scope
from gateway.language.templates.caller import CALLER, is_fact_path
from gateway.language.templates.templating import JsonTemplate, TextTemplate, compile_json, compile_text


def compile_databases(databases: Mapping[str, Database], *, problems: Problems) -> Mapping[str, DatabaseProfile]:
    """Return the valid databases. Unused databases are checked too."""
    found = {name: compile_database(name, config, problems.at(name)) for name, config in databases.items()}
    return {name: profile for name, profile in found.items() if profile is not None}


def compile_database(name: str, config: Database, problems: Problems) -> DatabaseProfile | None:
    dialect = dialect_of_url(config.url)
    if not dialect.is_installed():
        problems.error(f"needs packages that are not installed: {dialect.install}")
        return None
    if dialect.refused_url is not None and re.search(dialect.refused_url[0], config.url, re.IGNORECASE):
        problems.at("url").error(dialect.refused_url[1])
        return None
    compile_url = _file if dialect.is_file else _server
    return compile_url(name, config, dialect, problems)


def _file(name: str, config: Database, dialect: Dialect, problems: Problems) -> DatabaseProfile | None:
    place, written = problems.at("url"), config.url.partition(":")[2]
    path = written.removeprefix("///")
    if config.password is not None:
        problems.at("password").error(f"{dialect.title} databases have no password")
    example = f"notes.{dialect.suffix}"
    if path in {"", ":memory:"}:
        place.error(f"each connection would have a separate in-memory database. Use a file: {dialect.name}:{example}")
        return None
    if path.startswith("//") or "?" in path or "\0" in path:
        place.error(
            f"expected only a path after `{dialect.name}:`, such as {dialect.name}:{example} or "
            f"{dialect.name}:/var/lib/{example}"
        )
        return None
    file = place.directory / path
    if not is_file(file):
        creates = "; a query with `writes: true` creates it" if dialect.can_write else ""
        place.warning(f"file `{path}` does not exist{creates}")
    return DatabaseProfile(name=name, dialect=dialect.name, url=str(file), size=config.pool)


def _server(name: str, config: Database, dialect: Dialect, problems: Problems) -> DatabaseProfile | None:
    from sqlalchemy import make_url  # noqa: PLC0415 - of the extra
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError  # noqa: PLC0415 - of the extra

    place = problems.at("url")
    try:
        url = make_url(config.url)
        if dialect.driver is not None:
            url = url.set(drivername=dialect.driver)
        names = dialect.renamed_parameters
        url = url.set(query={names.get(name, name): value for name, value in url.query.items()})
        engine = url.get_dialect()
        # Report a missing driver now rather than at the first connection.
        engine.import_dbapi()
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
    if not engine.is_async:
        place.error(
            f"the driver `{engine.driver}` does not support asyncio. Use one that does, such as oracle+oracledb_async://"
        )
        return None
    if not dialect.reads_only:
        who = f"`{url.username}`" if url.username else "the database user"
        place.warning(
            f"the gateway cannot make {dialect.name} transactions read-only, so only the grants of {who} restrict its "
            "queries; use a user with SELECT grants only"
        )
    if config.password is not None:
        if url.password is not None:
            problems.at("password").error("the URL also has a password, but only one is allowed")
        url = url.set(password=config.password)
    # The URL is used to connect, so the password must not be hidden.
    return DatabaseProfile(
        name=name, dialect=dialect.name, url=url.render_as_string(hide_password=False), size=config.pool
    )


_UNKNOWN = DatabaseProfile(name="", dialect="postgresql", url="", size=1)
"""Placeholder for an undefined database, so that the query is still checked."""


def compile_sql(config: SqlCompletion, *, scope: Scope, context: CompileContext, max_bytes: int) -> SqlExecutor:
    """Compile the statements of a query. Report errors at the location of `scope`."""
    profile = _profile(config, scope=scope, context=context)
    dialect = dialect_of(profile.dialect)
    writes = isinstance(config, Sql) and config.writes
    if writes and not dialect.can_write:
        scope.at("writes").problems.error(f"{dialect.title} databases are opened read-only")
    if config.query_file is not None:
        context.dependencies.files.add(query_path(config, scope.problems))
    statements = tuple(statement for statement, _ in compile_query(config, dialect=dialect, scope=scope, writes=writes))
    return SqlExecutor(
        database=profile,
        statements=statements,
        writes=writes,
        max_rows=config.max_rows,
        max_bytes=max_bytes,
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
    if config.settings and not dialect.has_settings:
        scope.problems.error(f"`settings` requires PostgreSQL. {dialect.name} has no transaction settings")
    return {name: compile_text(value, scope.at(name)) for name, value in config.settings.items()}


def check_bound(executor: SqlExecutor, scope: Scope, config: Tool | Resource) -> None:
    """Report inputs that are neither bound in a statement nor used in a template."""
    names = {name for statement in executor.statements for name in statement.names}
    if not scope.problems.has_no_errors:
        return
    for name in scope.inputs.schemas:
        # Values of `bind` and `settings` can also use inputs.
        if name not in names and name not in scope.used:
            # Mark the input as used, so that it is not reported twice.
            scope.used.add(name)
            scope.problems.at(*path_of_input(config, name)).error(
                f"no query uses `{name}`; bind it as `:{name}`, or remove it"
            )


def _profile(config: SqlCompletion, *, scope: Scope, context: CompileContext) -> DatabaseProfile:
    name = config.database
    if name not in context.databases:
        hint = did_you_mean(name, [*context.databases])
        scope.at("database").problems.error(f"unknown database `{name}`{hint}")
    return context.profiles.get(name, _UNKNOWN)
