"""Creates a configuration with one read-only tool for each table of a database."""

import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from gateway.catalog.compile.sql import compile_database
from gateway.config.diagnostics.problems import Problems
from gateway.config.models.document import Database
from gateway.config.secrets.literal_secrets import is_secret_key
from gateway.errors import ConfigError, ExecutionError
from gateway.executors.sql.dialects import Dialect, dialect_of
from gateway.executors.sql.pools import DatabasePools, DatabaseProfile, failure_of
from gateway.executors.sql.query import BoundStatement
from gateway.executors.sql.rows import RowCollector
from gateway.json_types import Json
from gateway.language.templates.caller import CALLER

_SECONDS: Final = 20.0
_MAX_TABLES: Final = 50
_MAX_FILTERS: Final = 6
_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(["int", "integer", "smallint", "mediumint", "bigint", "tinyint", "hugeint", "year"], "integer"),
    **dict.fromkeys(["utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"], "integer"),
    **dict.fromkeys(("decimal", "numeric", "real", "float", "double", "double precision"), "number"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("date", "datetime", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"), "date"),
    **dict.fromkeys(("timestamp with time zone", "timestamp without time zone"), "date"),
    **dict.fromkeys(("text", "varchar", "char", "character", "character varying", "citext"), "text"),
    **dict.fromkeys(("tinytext", "mediumtext", "longtext"), "text"),
    **dict.fromkeys(("enum", "uuid"), "string"),
}
"""The filter kind by column type. Columns of other types have no filter."""
_AFFINITIES: Final = (
    ("DATE", "date"), ("TIME", "date"), ("BOOL", "boolean"), ("INT", "integer"), ("CHAR", "text"), ("CLOB", "text"),
    ("TEXT", "text"), ("BLOB", ""), ("REAL", "number"), ("FLOA", "number"), ("DOUB", "number"), ("NUM", "number"),
    ("DEC", "number"), ("", "string"),
)  # fmt: skip
"""Filter kinds in SQLite, by substring of the column type. The first match applies (datatype3, section 3.1)."""

_FILE: Final = """\
# A read-only database. Each query becomes a tool. Arguments are bound, and never become part of the SQL text.
# Needs these packages: {install}. `validate --connect` checks each query against the database.{omitted}

databases:
  {name}:
    url: {url}{password}

tools:
{tools}
resources:
  schema:
    uri: "schema://{name}"
    description: The tables and columns of the database.
    text: |
{schema}

server:
  name: {name}
"""
_ACCESS: Final = """
    # Set {variable} to the password. Use a database user that can only read.
    password: "${{env:{variable}:-none}}\""""
_TOOL: Final = """\
  {tool}:
    description: {description}
    input:
{inputs}
    sql:
      database: {database}
      query: |
        SELECT * FROM {table}
        WHERE {conditions}
        ORDER BY {order}
        LIMIT :limit OFFSET :offset
"""


class _Column(NamedTuple):
    name: str
    sql: str
    """The quoted name, qualified with the table. SQLite would treat an unknown unqualified name as a string."""
    input: str
    kind: str
    """The kind of filter: a value of `_KINDS`, or empty for no filter."""
    is_key: bool


async def of_database(kind: str, source: str, directory: Path | None, option: str) -> str:
    """Return a configuration with a tool for each table of a database. `source` is a file or the URL of a server."""
    dialect = dialect_of(kind)
    url = f"{dialect.name}:{path_from(None, source)}" if dialect.is_file else source
    scheme, separator, _ = source.partition("://")
    if not dialect.is_file and (not separator or dialect_of(scheme.partition("+")[0]).driver != dialect.driver):
        raise ConfigError.at("--from", f"expected a URL such as {dialect.name}://app@db/shop")
    profile = _profile(kind, url, option)
    if dialect.is_file:
        name, written, has_password = Path(source).name, f"{dialect.name}:{path_from(directory, source)}", False
    else:
        name, written, has_password = _without_password(source)
    name = _identifier(name.partition(".")[0] or kind)
    variable = f"{name.upper()}_PASSWORD"
    if not dialect.is_file and not has_password and variable in os.environ:
        profile, has_password = _profile(name, url, option, os.environ[variable]), True
    rows = await _columns_of(profile, dialect, source if dialect.is_file else name)
    tools = list(_tools(rows, dialect, name))
    if not tools:
        raise ConfigError.at(source if dialect.is_file else name, "has no tables")
    left = len(tools) - _MAX_TABLES
    return _FILE.format(
        install=dialect.install,
        omitted=f"\n# {left} more tables are left out. Copy a tool to add one." if left > 0 else "",
        name=name,
        url=json.dumps(written.replace("${", "$${"), ensure_ascii=False),
        password=_ACCESS.format(variable=variable) if has_password else "",
        tools="\n".join(tools[:_MAX_TABLES]).replace("${", "$${"),
        schema="\n".join(_schema(rows)),
    )


def _profile(name: str, url: str, option: str, password: str | None = None) -> DatabaseProfile:
    problems = Problems()
    profile = compile_database(name, Database(url=url, pool=1, password=password), problems)
    if profile is None:
        raise ConfigError.at(option, "; ".join(problem.message for problem in problems))
    return profile


def _without_password(source: str) -> tuple[str, str, bool]:
    """Return the database name in a URL, the URL without the password, and whether the URL contained a password."""
    from sqlalchemy import URL, make_url  # noqa: PLC0415 - of the extra

    url = make_url(source)
    if any(map(is_secret_key, url.query)):
        raise ConfigError.at("--from", "the query of the URL contains a secret. Write the password before the `@`")
    if "@" in f"{url.host}{url.database}":
        raise ConfigError.at("--from", "cannot tell the password from the host. Write `@` as `%40` and `/` as `%2F`")
    written = URL.create(url.drivername, url.username, None, url.host, url.port, url.database, url.query)
    return url.database or "", written.render_as_string(), url.password is not None


async def _columns_of(profile: DatabaseProfile, dialect: Dialect, shown: str) -> Sequence[Mapping[str, Json]]:
    rows = RowCollector(max_rows=100_000, max_bytes=2**26)
    try:
        async with (
            asyncio.timeout(_SECONDS),
            DatabasePools() as pools,
            pools.pool(profile, read_only=True).session() as session,
        ):
            try:
                await session.begin(seconds=_SECONDS, statements=1)
                await session.run(BoundStatement(text=dialect.columns_query, values=(), names=()), rows)
                await session.roll_back()
            except Exception as error:
                raise session.failure_of(error) or error from error
    except TimeoutError as error:
        raise ConfigError.at(shown, "did not respond in time") from error
    except Exception as error:  # Boundary: a driver can raise any exception
        failure = failure_of(error, profile)
        if not isinstance(failure, ExecutionError):
            raise
        reason = f"is not a readable {dialect.title} database: {failure}" if dialect.title else str(failure)
        raise ConfigError.at(shown, reason) from error
    return rows.rows


def _schema(rows: Sequence[Mapping[str, Json]]) -> Iterator[str]:
    for table, found in groupby(rows, key=lambda row: str(row["table"])):
        columns = [f"{row['column']} {row['type']}{' (primary key)' if row['is_key'] else ''}" for row in found]
        # Replace `{`, because the text of a resource is a template.
        text = f"{table}: {', '.join(columns)}".replace("{", "(").lstrip()
        yield "      " + "".join(character if character.isprintable() else "?" for character in text)


def _tools(rows: Sequence[Mapping[str, Json]], dialect: Dialect, database: str) -> Iterator[str]:
    taken: set[str] = set()
    for table, found in groupby(rows, key=lambda row: str(row["table"])):
        columns = _filters([_column(row, dialect) for row in found])
        tool = f"find_{_identifier(table)}"
        if tool in taken or not columns or not _is_usable(table):
            continue
        taken.add(tool)
        yield _tool(tool, table, columns, dialect, database)


def _column(row: Mapping[str, Json], dialect: Dialect) -> _Column:
    name, declared = str(row["column"]), str(row["type"])
    if dialect.has_type_affinity:
        kind = next(kind for part, kind in _AFFINITIES if part in declared.upper())
    else:
        kind = _KINDS.get(declared.partition("(")[0].strip().lower(), "")
    sql = f"{_quoted(str(row['table']), dialect)}.{_quoted(name, dialect)}"
    return _Column(name, sql, _identifier(name), kind, bool(row["is_key"]))


def _filters(columns: Sequence[_Column]) -> list[_Column]:
    """Return the columns that become filters of the tool, with the primary key first."""
    inputs = [column.input for column in columns]
    bounds = [f"{side}_{name}" for name in inputs for side in ("min", "max")]
    usable = [
        column
        for column in columns
        # Skip a column if its input name is not unique or is used for another input.
        if column.kind
        and inputs.count(column.input) == 1
        and column.input not in {"limit", "offset", "search", CALLER, *bounds}
        and _is_usable(column.name)
    ]
    return sorted(usable, key=lambda column: not column.is_key)[:_MAX_FILTERS]


def _tool(tool: str, table: str, columns: list[_Column], dialect: Dialect, database: str) -> str:
    inputs, conditions = [], []

    def add(name: str, kind: str, description: str, condition: str) -> None:
        settings = {"integer": "integer", "number": "number", "boolean": "boolean"}.get(kind, "string")
        text = json.dumps(description, ensure_ascii=False)
        inputs.append(f"      {name}: {{type: {settings}, required: false, description: {text}}}")
        conditions.append(f"(:{name} IS NULL OR {condition})")

    for column in columns:
        key = " (primary key)" if column.is_key else ""
        add(column.input, column.kind, f"The value of {column.name}{key}", f"{column.sql} = :{column.input}")
        if column.kind in {"number", "date"} or (column.kind == "integer" and not column.is_key):
            example = ", such as 2026-01-31" if column.kind == "date" else ""
            for side, word, comparison in (("min", "Lowest", ">="), ("max", "Highest", "<=")):
                name = f"{side}_{column.input}"
                add(name, column.kind, f"{word} value of {column.name}{example}", f"{column.sql} {comparison} :{name}")
    if texts := [column for column in columns if column.kind == "text"]:
        found = " OR ".join(f"{dialect.find}(lower({column.sql}), lower(:search)) > 0" for column in texts)
        add("search", "text", f"Text in {' or '.join(column.name for column in texts)}, in upper or lower case", found)
    inputs += [
        "      limit: {type: integer, minimum: 1, maximum: 1000, default: 100, description: Maximum number of rows}",
        "      offset: {type: integer, minimum: 0, default: 0, description: Number of rows to skip}",
    ]
    keys = [column for column in columns if column.is_key] or columns
    return _TOOL.format(
        tool=tool,
        description=json.dumps(
            f"Rows of {table} that match all given filters. Increase `offset` by `limit` for the next page.",
            ensure_ascii=False,
        ),
        inputs="\n".join(inputs),
        database=database,
        table=_quoted(table, dialect),
        conditions="\n          AND ".join(conditions),
        order=", ".join(column.sql for column in keys),
    )


def _is_usable(name: str) -> bool:
    # The name becomes part of a query, which must not contain a template.
    return name.isprintable() and "{{" not in name and "{%" not in name


def _identifier(name: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return words if words[:1].isalpha() else f"x_{words}"


def _quoted(name: str, dialect: Dialect) -> str:
    mark = dialect.quote
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


def path_from(directory: Path | None, file: str) -> str:
    """Return the path of `file` relative to `directory`, or the absolute path if `directory` is None."""
    return str(Path(file).absolute()) if directory is None else os.path.relpath(file, directory)
