"""Describes the SQL dialects, converts values for drivers, and splits statements into tokens.

Other modules never test for a specific dialect. Each dialect names the module that contains its session class.
"""

import datetime as dt
import importlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from types import ModuleType
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from gateway import exact_json
from gateway.errors import ExecutionError
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_argument import FileArgument, json_with_files
from gateway.language.files.file_inputs import FILE


class InputType(Enum):
    PLAIN = auto()
    """Text, booleans and values without a known type. The database infers the type."""
    NUMBER = auto()
    INTEGER = auto()
    DATE = auto()
    DATE_TIME = auto()
    UUID = auto()
    NULL_TEST = auto()
    """A parameter that is only tested for NULL, as in `:name IS NULL`."""
    FILE = auto()
    ARRAY = auto()
    """An array outside `IN (…)`. The database infers whether the parameter is an SQL array or JSON."""
    JSON = auto()


_BY_FORMAT: Final[Mapping[Json, InputType]] = {
    "date": InputType.DATE,
    "date-time": InputType.DATE_TIME,
    "uuid": InputType.UUID,
}
_BY_TYPE: Final[Mapping[Json, InputType]] = {
    FILE: InputType.FILE,
    "number": InputType.NUMBER,
    "integer": InputType.INTEGER,
    "object": InputType.JSON,
    "array": InputType.ARRAY,
}


def type_of(schema: Json) -> InputType:
    """Return the input type for a JSON Schema. The JSON type `null` is ignored."""
    if not isinstance(schema, Mapping):
        return InputType.PLAIN
    said = schema.get("type")
    names = [name for name in said if name != "null"] if isinstance(said, list) else [said]
    if len(names) != 1:
        return InputType.PLAIN
    if names[0] in {"string", None} and (found := _BY_FORMAT.get(schema.get("format"))) is not None:
        return found
    return _BY_TYPE.get(names[0], InputType.PLAIN)


def items_of(schema: Json) -> JsonObject:
    items = schema.get("items") if isinstance(schema, Mapping) else None
    return items if isinstance(items, Mapping) else {}


ValueFormat = Literal["native", "utc_text", "text"]
"""The format in which a driver expects values.

- `native`: Python objects
- `utc_text`: dates and UUIDs as text (`2026-01-02 03:04:05`, in UTC), other values as Python objects
- `text`: scalars as JSON text, which the database parses, and arrays as lists
"""


def bound_value(name: str, value: Json, kind: InputType, binding: ValueFormat) -> Json:
    """Convert the value of an input to the format that a driver expects.

    Raises:
        ExecutionError: the value cannot be bound.
    """
    if isinstance(value, FileArgument):
        return value.data
    if isinstance(value, dict | list | tuple):
        try:
            plain = json_with_files(value)
            written = exact_json.dumps(plain).decode()
        except TypeError as error:
            raise ExecutionError(f"`{name}` cannot be written as JSON: {error}") from error
        is_list = binding == "text" and not isinstance(value, dict) and kind is not InputType.JSON
        return plain if is_list else written
    if isinstance(value, str) and kind in _PARSERS:
        value = _parsed(name, value, kind, binding)
    elif isinstance(value, float) and kind is InputType.INTEGER and value.is_integer():
        value = int(value)  # 3.0 is an integer in JSON Schema
    if binding == "text" and isinstance(value, int | float):
        value = exact_json.dumps(value).decode()
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ExecutionError(f"`{name}` is not valid text: it contains a lone surrogate") from error
    return value


def _parsed(name: str, value: str, kind: InputType, binding: ValueFormat) -> Json:
    try:
        found = _PARSERS[kind](value)
        if binding == "utc_text" and isinstance(found, dt.datetime):
            found = found.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=" ")
    except (ValueError, OverflowError) as error:
        raise ExecutionError(f"`{name}` cannot be bound: {error}") from error
    return found if binding == "native" else str(found)


def _date_time(value: str) -> dt.datetime:
    found = dt.datetime.fromisoformat(value.upper())  # RFC 3339 §5.6: `t` and `z` can be lower case
    # RFC 3339 §5.6 requires an offset. Without one, assume UTC, independent of the database.
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


_PARSERS: Final[Mapping[InputType, Callable[[str], Json]]] = {
    InputType.DATE: dt.date.fromisoformat,
    InputType.DATE_TIME: _date_time,
    InputType.UUID: uuid.UUID,
}


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """The name at the start of an SQLAlchemy URL, such as `postgresql`."""
    module: str = "gateway.executors.sql.connections"
    """The module that defines `open_engine`, imported on first use because the driver packages are optional."""
    packages: tuple[str, ...]
    install: str
    extra: str = "sql"
    """The optional dependency group (extra) of mcp-gateway that contains the packages."""
    driver: str | None = None
    """The SQLAlchemy driver that is always used, such as `postgresql+asyncpg`."""
    error_modules: frozenset[str] = frozenset()
    """The top-level packages that define the driver's exceptions."""
    refused_url: tuple[str, str] | None = None
    """A pattern for URLs that are rejected, and the error message."""
    renamed_parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    """URL parameters that the driver names differently."""
    title: str = ""
    """The name in messages. Set only for dialects whose databases are files."""
    suffix: str = ""
    tokens: re.Pattern[str]
    has_nested_comments: bool = False
    placeholder: str
    """The text of a parameter, with `{}` for its number, counted from 1."""
    reuses: bool
    """Whether all occurrences of a parameter share one value."""
    casts: Mapping[InputType, str] = msgspec.field(default_factory=dict)
    """Casts of parameters, for types that the database would infer differently."""
    empty_in: str
    """The SQL that replaces `IN (:name)` if the list is empty."""
    empty_not_in: str
    escape: Callable[[str], str] = str
    """Escapes the SQL between parameters, as the driver requires."""
    binding: ValueFormat = "native"
    reads_only: bool = True
    """Whether the database can reject changes by queries without `writes: true`."""
    can_write: bool = True
    has_settings: bool = False
    """Whether `settings` of a query can be set for a transaction, so that statements and policies can read them."""
    quotes_values: bool = False
    """Whether the driver inserts values as quoted literals, so that the SQL text must be escaped."""
    columns_query: str = ""
    """A query for the `table`, `column`, `type` and `is_key` of all readable columns, for `init --from`."""
    has_type_affinity: bool = False
    """Whether type names are free text, and substrings of the name determine the kind of values, as in SQLite."""
    quote: str = '"'
    """The quotation mark around names."""
    find: str = "instr"
    """The SQL function that returns the position of one string in another string, or 0."""

    @property
    def is_file(self) -> bool:
        return bool(self.title)

    def is_installed(self) -> bool:
        """Return whether the packages can be imported. Importing the packages is slow."""
        try:
            for name in self.packages:
                importlib.import_module(name)
        except ImportError:
            return False
        return True

    def load(self) -> ModuleType:
        return importlib.import_module(self.module)


_LINE_COMMENT: Final = r"(?P<comment>--[^\n]*)"
_BLOCK: Final = r"(?P<block>/\*)"
# Standard SQL has no backslash escapes.
_QUOTES: Final = r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`"""
# `::` is one token, so that the second colon of a cast does not start a parameter.
_COMMON: Final = r"(?P<parameter>:(?P<name>[A-Za-z_][A-Za-z0-9_]*))|(?P<word>[^\W\d][\w$]*)|(?P<other>::|:=|\d[\w.]*|.)"


def _tokens(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join((r"(?P<space>\s+)", *patterns, _COMMON)), re.DOTALL)


_SQLALCHEMY: Final = ("sqlalchemy.ext.asyncio", "greenlet")
_INSTALL_SQLALCHEMY: Final = "pip install 'sqlalchemy[asyncio]'"
POSTGRESQL: Final = Dialect(
    name="postgresql",
    module="gateway.executors.sql.postgresql",
    packages=(*_SQLALCHEMY, "asyncpg"),
    install=f"{_INSTALL_SQLALCHEMY} asyncpg",
    driver="postgresql+asyncpg",
    error_modules=frozenset({"asyncpg"}),
    renamed_parameters={"sslmode": "ssl"},  # libpq's name
    # `E'…'` has backslash escapes (PostgreSQL manual, §4.1.2.2) and must match before words.
    tokens=_tokens(
        _LINE_COMMENT,
        _BLOCK,
        r"(?P<position>\$\d+)",
        r"(?P<dollar>\$(?:[^\W\d]\w*)?\$)",
        rf"(?P<quoted>[eE]'(?:[^'\\]|\\.|'')*'|{_QUOTES})",
    ),
    has_nested_comments=True,
    placeholder="${}",
    reuses=True,
    casts={
        InputType.DATE: "date",
        InputType.DATE_TIME: "timestamptz",
        InputType.UUID: "uuid",
        InputType.FILE: "bytea",
        InputType.JSON: "jsonb",
        InputType.NULL_TEST: "text",
    },
    # An array literal takes the type of the compared value. A subquery with NULL would have the type text.
    empty_in="= ANY ('{}')",
    empty_not_in="<> ALL ('{}')",
    binding="text",
    has_settings=True,
    find="strpos",
    columns_query="""
SELECT r.relname AS "table", a.attname AS "column", k.indrelid IS NOT NULL AS is_key,
  CASE WHEN t.typtype = 'e' THEN 'enum'
       ELSE pg_catalog.format_type(COALESCE(NULLIF(t.typbasetype, 0), t.oid), NULL) END AS type
FROM pg_catalog.pg_class r
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_index k ON k.indrelid = r.oid AND k.indisprimary AND a.attnum = ANY (k.indkey)
WHERE n.nspname = pg_catalog.current_schema() AND r.relkind IN ('r', 'v', 'm', 'p', 'f') AND NOT r.relispartition
  AND pg_catalog.has_table_privilege(r.oid, 'SELECT')
ORDER BY r.relname, a.attnum""",
)
SQLITE: Final = Dialect(
    name="sqlite",
    module="gateway.executors.sql.sqlite",
    packages=(*_SQLALCHEMY, "aiosqlite"),
    install=f"{_INSTALL_SQLALCHEMY} aiosqlite",
    error_modules=frozenset({"aiosqlite", "sqlite3"}),
    title="SQLite",
    suffix="db",
    tokens=_tokens(_LINE_COMMENT, _BLOCK, r"(?P<position>\?\d*|[@#$]\w+)", rf"(?P<quoted>\[[^\]]*\]|{_QUOTES})"),
    placeholder="?",
    reuses=False,
    # SQLite allows an empty list ("The IN and NOT IN Operators").
    empty_in="IN ()",
    empty_not_in="NOT IN ()",
    binding="utc_text",
    has_type_affinity=True,
    columns_query="""
SELECT t.name AS "table", c.name AS "column", c.type AS type, c.pk > 0 AS is_key
FROM pragma_table_list t JOIN pragma_table_info(t.name) c
WHERE t.schema = 'main' AND t.type IN ('table', 'view') AND substr(t.name, 1, 7) <> 'sqlite_'
ORDER BY t.name, c.cid""",
)
# MySQL 5.7 and others require a FROM before a WHERE, and a name for each derived table.
_NO_ROWS: Final = "(SELECT 1 FROM (SELECT 1 AS p) AS no_rows WHERE 1 = 0)"
_STANDARD: Final = Dialect(
    name="",
    packages=_SQLALCHEMY,
    install=_INSTALL_SQLALCHEMY,
    tokens=_tokens(_LINE_COMMENT, _BLOCK, rf"(?P<quoted>{_QUOTES})"),
    placeholder=":p{}",  # replaced by SQLAlchemy's `text()`
    reuses=True,
    # SQLAlchemy's `text()` reads `:name` as a parameter unless it is escaped.
    escape=lambda text: re.sub(r":(?=\w)", r"\\:", text),
    empty_in=f"IN {_NO_ROWS}",
    empty_not_in=f"NOT IN {_NO_ROWS}",
    reads_only=False,
)
MYSQL: Final = Dialect(
    name="mysql",
    module="gateway.executors.sql.mysql",
    packages=(*_SQLALCHEMY, "asyncmy"),
    install=f"{_INSTALL_SQLALCHEMY} asyncmy",
    extra="mysql",
    driver="mysql+asyncmy",
    error_modules=frozenset({"asyncmy"}),
    # asyncmy or SQLAlchemy would ignore other values, and the connection would not be encrypted.
    refused_url=(
        r"[?&](?:ssl=(?!(?:true|false|1|0)(?:&|$))|ssl\w*=?(?:&|$))",
        "`ssl` must be true or false, and `ssl_…` parameters must not be empty",
    ),
    # `--` starts a comment only before a space or control character (MySQL manual, "Comments").
    tokens=_tokens(
        r"(?P<comment>(?:--(?=[\s\x00-\x1f]|\Z)|\#)[^\n]*)",
        _BLOCK,
        r"""(?P<quoted>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`[^`]*`)""",
    ),
    placeholder="%s",  # replaced by quoted text, so `%` itself is escaped
    reuses=False,
    escape=lambda text: text.replace("%", "%%"),
    empty_in=f"IN {_NO_ROWS}",
    empty_not_in=f"NOT IN {_NO_ROWS}",
    binding="utc_text",
    quotes_values=True,
    quote="`",
    columns_query="""
SELECT TABLE_NAME AS `table`, COLUMN_NAME AS `column`, COLUMN_KEY = 'PRI' AS is_key,
  IF(COLUMN_TYPE = 'tinyint(1)', 'boolean', DATA_TYPE) AS type
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME, ORDINAL_POSITION""",
)
DUCKDB: Final = replace(
    POSTGRESQL,
    name="duckdb",
    module="gateway.executors.sql.duckdb",
    packages=("duckdb",),
    install="pip install duckdb",
    extra="duckdb",
    driver=None,
    error_modules=frozenset({"_duckdb"}),
    renamed_parameters={},
    title="DuckDB",
    suffix="duckdb",
    casts={InputType.JSON: "json"},
    empty_in="IN ()",
    empty_not_in="NOT IN ()",
    binding="native",
    can_write=False,
    has_settings=False,
    columns_query="""
SELECT c.table_name AS "table", c.column_name AS "column", c.data_type AS type,
  COALESCE(list_contains(k.constraint_column_names, c.column_name), false) AS is_key
FROM duckdb_columns() c
LEFT JOIN duckdb_constraints() k ON k.table_oid = c.table_oid AND k.constraint_type = 'PRIMARY KEY'
WHERE c.schema_name = 'main' AND c.database_name = current_database() AND NOT c.internal
ORDER BY c.table_name, c.column_index""",
)
DIALECTS: Final[Mapping[str, Dialect]] = {
    "sqlite": SQLITE,
    "duckdb": DUCKDB,
    "postgres": POSTGRESQL,
    "postgresql": POSTGRESQL,
    "mysql": MYSQL,
    "mariadb": replace(MYSQL, name="mariadb"),
}
"""Dialects by the name in a URL. `init --from` accepts the same names."""


def dialect_of_url(url: str) -> Dialect:
    """Return the dialect of an SQLAlchemy URL, such as `mysql+asyncmy://…`."""
    return dialect_of(url.partition(":")[0].partition("+")[0].lower())


def dialect_of(name: str) -> Dialect:
    """Return the dialect with a name. An unknown name returns standard SQL without read-only transactions."""
    return DIALECTS.get(name) or replace(_STANDARD, name=name)


class Token(msgspec.Struct, frozen=True):
    kind: str
    """The name of a group in `Dialect.tokens`, such as `word` (keywords and names) or `position` (`$1`, `?`)."""
    text: str
    """The text of the token, without the colon of a `parameter`."""
    start: int
    """Offset in characters."""
    end: int


class StatementError(Exception):
    """A statement is malformed, or the database rejected it. `offset` is the position in the text, if known."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


_COMMENT_MARK: Final = re.compile(r"/\*|\*/")
IGNORED: Final = frozenset({"space", "comment", "block"})
"""Kinds of tokens that have no effect on a statement: white space and comments."""
_UNCLOSED: Final[Mapping[str, str]] = {"'": "quoted text", '"': "a quoted name", "`": "a quoted name"}


def tokens_of(text: str, dialect: Dialect) -> Iterator[Token]:
    """Split SQL into tokens, which together cover the whole text.

    A colon in quoted text, a quoted name, a comment or a cast (`::`) does not start a parameter.

    Raises:
        StatementError: a quote or a comment is not closed.
    """
    at = 0
    while at < len(text):
        match = dialect.tokens.match(text, at)
        assert match is not None  # noqa: S101 - the last alternative matches any character
        group, end = match.lastgroup or "other", match.end()
        if group == "block":
            end = _comment_end(text, at, is_nested=dialect.has_nested_comments)
        elif group == "dollar":
            end = text.find(match[0], end) + len(match[0])
            if end < match.end():
                raise StatementError(f"dollar-quoted text is not closed with {match[0]}", at)
        elif group == "other" and match[0] in _UNCLOSED:
            raise StatementError(f"{_UNCLOSED[match[0]]} is not closed with {match[0]}", at)
        written = match["name"] if group == "parameter" else text[at:end]
        yield Token(group, written, at, end)
        at = end


def first_word(text: str, dialect: Dialect) -> Token:
    """Return the first token that is not white space or a comment, or an empty token."""
    return next((token for token in tokens_of(text, dialect) if token.kind not in IGNORED), Token("other", "", 0, 0))


def _comment_end(text: str, start: int, *, is_nested: bool) -> int:
    depth = 0
    for match in _COMMENT_MARK.finditer(text, start):
        if match[0] == "*/":
            depth -= 1
        elif is_nested or depth == 0:
            depth += 1
        if depth == 0:
            return match.end()
    raise StatementError("a comment is not closed with */", start)
