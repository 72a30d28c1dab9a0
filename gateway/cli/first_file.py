"""Texts of new configuration files."""

import json
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from gateway.config.reading.mcp_servers_file import read_mcp_servers_file
from gateway.config.reading.source_file import SourceFile, UnreadableError, decode, read_bytes
from gateway.distribution import install_command
from gateway.errors import ConfigError, Severity

FIRST_FILE: Final = """\
# The configuration of an MCP server. `mcp-gateway validate` checks it. A running server reloads it when you save it.

server:
  name: my-tools
  instructions: Information that a model needs before it uses these tools.

tools:
  hello:
    description: Greet someone by name.
    annotations: {read_only: true}
    input:
      name: {type: string, description: Name of the person to greet, default: world}
    shell:
      # A list of arguments without a shell: each value stays a single argument.
      command: [echo, "Hello, {{ name }}!"]

  disk_free:
    description: Free space of the file systems.
    annotations: {read_only: true}
    input:
      human: {type: boolean, description: "Show sizes in KiB, MiB and GiB", default: true}
    shell:
      command: [df, -P, {if: human, then: [-h]}]

  # An HTTP API is called like this (https://example.com is only an example):
  # get_item:
  #   description: One item of the shop.
  #   input: {id: integer}
  #   http: {url: "https://example.com/items/{id}"}

resources:
  about:
    uri: "about://this-server"
    mime_type: text/markdown
    text: |
      # About this server
      Clients read this as a resource.

prompts:
  check_disks:
    description: Check the free space of all disks.
    arguments:
      concern: {description: The problem to look for, default: disks that are almost full}
    messages:
      - user: "Use `disk_free` and tell me about {{ concern }}."
"""

_SERVERS: Final = """\
# The servers of an MCP client, behind one URL. `mcp-gateway list` shows their tools.

mcp_json: [{file}]

# Select, rename or change their tools here:
# upstreams:
#   another:
#     url: https://mcp.example.com/mcp
#     tools: {{include: [search_*], override: {{search_all: {{confirm: "Search {{{{ query }}}}?"}}}}}}

server:
  name: my-servers
"""

_MAX_TABLES: Final = 20
_MAX_FILTERS: Final = 6
_TABLES: Final = """\
SELECT name FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'
ORDER BY name"""
_TYPES: Final = (("INT", "integer"), ("CHAR", "string"), ("CLOB", "string"), ("TEXT", "string"), ("BLOB", ""))
"""Parts of a declared type and the type of the input, in SQLite's order (datatype3, section 3.1)."""
_NUMBERS: Final = ("REAL", "FLOA", "DOUB", "NUM", "DEC")

_DATABASE: Final = """\
# A read-only database. Each query becomes a tool. Arguments are bound, and never become part of the SQL text.
# Needs these packages: {install}. `validate --connect` lets the database check each query.

databases:
  {name}: {{url: {url}}}

tools:
{tools}
server:
  name: {name}
"""
_TOOL: Final = """\
  {tool}:
    description: {description}
    input:
{inputs}
    sql:
      database: {database}
      query: |
        SELECT * FROM {table}
{conditions}
      max_rows: 100
"""


class _Column(NamedTuple):
    name: str
    input: str
    type: str


def path_from(directory: Path | None, file: str) -> str:
    """Return a path relative to the directory of the new file, or an absolute one."""
    return str(Path(file).absolute()) if directory is None else os.path.relpath(file, directory)


def of_servers(file: str, directory: Path | None) -> str:
    """Return a configuration with the servers of an MCP client.

    Raises:
        ConfigError: the file is not a JSON file with MCP servers.
    """
    try:
        source = SourceFile(Path(file), decode(read_bytes(Path(file))))
    except UnreadableError as error:
        raise ConfigError.at(f"{file}:{error.line}:{error.column}", str(error)) from error
    _, diagnostics = read_mcp_servers_file(source)
    for each in diagnostics:
        if each.severity is Severity.ERROR and each.place is not None:
            raise ConfigError.at(f"{file}:{each.place.line}:{each.place.column}", each.message)
    # JSON strings are valid YAML, and quote special characters.
    return _SERVERS.format(file=json.dumps(path_from(directory, file)))


def of_database(file: str, directory: Path | None) -> str:
    """Return a configuration with one tool for each table of an SQLite database.

    Raises:
        ConfigError: the file is not an SQLite database, or has no tables.
    """
    name = _identifier(Path(file).name.partition(".")[0])
    url = f"sqlite:{path_from(directory, file)}"
    try:
        # mode=ro does not create a missing file (https://www.sqlite.org/uri.html).
        with closing(sqlite3.connect(f"{Path(file).absolute().as_uri()}?mode=ro", uri=True)) as connection:
            tools = list(_tools(connection, name))
    except sqlite3.Error as error:
        raise ConfigError.at(file, f"is not a readable SQLite database: {error}") from error
    if not tools:
        raise ConfigError.at(file, "has no tables")
    return _DATABASE.format(install=install_command("sql"), name=name, url=json.dumps(url), tools="\n".join(tools))


def _tools(connection: sqlite3.Connection, database: str) -> Iterator[str]:
    taken: set[str] = set()
    for (table,) in connection.execute(_TABLES).fetchall()[:_MAX_TABLES]:
        columns = [
            _Column(column, _identifier(column), kind)
            for column, declared in connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,))
            if (kind := _type_of(declared))
        ]
        # Leave out columns that would have the same input name.
        inputs = [column.input for column in columns]
        columns = [column for column in columns if inputs.count(column.input) == 1][:_MAX_FILTERS]
        tool = f"find_{_identifier(table)}"
        if tool in taken or not columns:
            continue
        taken.add(tool)
        yield _tool(tool, table, columns, database)


def _tool(tool: str, table: str, columns: list[_Column], database: str) -> str:
    conditions = [f"(:{column.input} IS NULL OR {_quoted(column.name)} = :{column.input})" for column in columns]
    return _TOOL.format(
        tool=tool,
        description=json.dumps(f"Rows of {table} with these values; all rows without any.", ensure_ascii=False),
        inputs="\n".join(_input(column) for column in columns),
        database=database,
        table=_quoted(table),
        conditions="\n".join(
            f"        {'WHERE' if number == 0 else '  AND'} {condition}" for number, condition in enumerate(conditions)
        ),
    )


def _input(column: _Column) -> str:
    description = json.dumps(f"The value of {column.name}", ensure_ascii=False)
    return f"      {column.input}: {{type: {column.type}, required: false, description: {description}}}"


def _type_of(declared: str) -> str:
    """Return the type of the input for a column, or an empty string for binary columns."""
    declared = declared.upper()
    for part, kind in _TYPES:
        if part in declared:
            return kind
    return "number" if any(part in declared for part in _NUMBERS) else "string"


def _identifier(name: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return words if words[:1].isalpha() else f"x_{words}"


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
