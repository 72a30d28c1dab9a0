"""Compiles the section `databases`."""

from collections.abc import Mapping
from typing import Final

from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import is_file
from gateway.config.models.document import Database
from gateway.distribution import install_command
from gateway.executors.sql.pools import DatabaseProfile, is_installed

_POSTGRESQL: Final = frozenset({"postgresql", "postgres"})


def compile_databases(databases: Mapping[str, Database], *, problems: Problems) -> Mapping[str, DatabaseProfile]:
    """Check all databases, including unused ones, and return the valid ones."""
    found = {name: compile_database(name, config, problems.at(name)) for name, config in databases.items()}
    return {name: profile for name, profile in found.items() if profile is not None}


def compile_database(name: str, config: Database, problems: Problems) -> DatabaseProfile | None:
    """Compile one entry. Return None after reporting an error."""
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
        problems.at("password").error("SQLite has none")
    if path in {"", ":memory:"}:
        place.error("each connection would have a separate in-memory database; use a file: sqlite:notes.db")
        return None
    if path.startswith("//") or "?" in path or "\0" in path:
        place.error("expected only a path after `sqlite:`, such as sqlite:notes.db or sqlite:/var/lib/notes.db")
        return None
    file = place.directory / path
    if not is_file(file):
        place.warning(f"there is no file `{path}` now; a query with `writes: true` creates it")
    return DatabaseProfile(name=name, dialect="sqlite", url=str(file), size=config.pool)


def _server(name: str, config: Database, problems: Problems) -> DatabaseProfile | None:
    from sqlalchemy import make_url  # noqa: PLC0415 - of the extra
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError  # noqa: PLC0415 - of the extra

    place = problems.at("url")
    try:
        url = make_url(config.url)
        backend = url.get_backend_name()
        if backend in _POSTGRESQL:
            # asyncpg has another name for libpq's `sslmode`.
            query = {"ssl" if key == "sslmode" else key: value for key, value in url.query.items()}
            url = url.set(drivername="postgresql+asyncpg", query=query)
            backend = "postgresql"
        dialect = url.get_dialect()
        # A missing driver should be reported now, not at the first connection.
        dialect.import_dbapi()
    # SQLAlchemy raises ValueError for an invalid port.
    except (ArgumentError, ValueError):
        place.error("is not a URL of a database; expected one such as postgresql://app@db/shop")
        return None
    except NoSuchModuleError:
        place.error(f"SQLAlchemy does not know the database `{config.url.partition(':')[0]}`")
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
            problems.at("password").error("the URL has a password too; only one can be given")
        url = url.set(password=config.password)
    # SQLAlchemy hides the password by default, but this URL is used to connect.
    return DatabaseProfile(name=name, dialect=backend, url=url.render_as_string(hide_password=False), size=config.pool)
