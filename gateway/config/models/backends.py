"""Models of the backends `shell`, `http`, `sql` and `python`, and of `connections`."""

from functools import partial
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, PlainValidator, Tag, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.base import (
    DISTINCT,
    INTERPOLATION_SCHEMA,
    ONE_OR_MANY,
    SOME_DISTINCT,
    Count,
    EntryReference,
    Flag,
    Items,
    Model,
    NotEmpty,
    PositiveCount,
    ScalarTemplate,
    Template,
    Use,
    given_keys,
    matching,
    misplaced,
    one_of,
    requires,
    text_for,
    typed_interpolation,
)
from gateway.config.models.http_bodies import Body, FormValue, MultipartField, text_unless
from gateway.config.models.outbound_auth import OutboundAuth
from gateway.config.models.quantities import Duration, PositiveDuration, Size
from gateway.json_types import Json


class Conditional(Model):
    """`{if: verbose, then: [-v]}`: arguments that are included only if the expression is true."""

    if_: str = Field(alias="if")
    """A Jinja expression over the inputs."""
    then: list[ScalarTemplate]
    """Arguments. Each is a template."""


def _kind_of_item(value: Json) -> str:
    if isinstance(value, dict | Conditional):
        return "a conditional"
    return "a group" if isinstance(value, list | tuple) else "an argument"


ArgvItem = Annotated[
    Annotated[ScalarTemplate, Tag("an argument")]
    | Annotated[tuple[ScalarTemplate, ...], Field(strict=False), Tag("a group")]
    | Annotated[Conditional, Tag("a conditional")],
    Discriminator(_kind_of_item),
]
"""An argument, a list of arguments that are omitted together if one of them is omitted, or a conditional."""


def _not_a_line(value: Json) -> Json:
    if isinstance(value, str):
        message = "expected a list such as [df, -h]; use `script` for a shell command line"
        raise PydanticCustomError("argv_line", message)
    return value


Argv = Annotated[list[ArgvItem], Field(min_length=1), BeforeValidator(_not_a_line)]
"""A program and its arguments, without a shell."""


class ProcessLimits(Model):
    """Limits of the child process and its descendants."""

    memory: Annotated[Size, Field(ge=2**20)] | None = None
    """Address space of each process. Programs cannot start with less than 1MiB."""
    cpu: PositiveDuration | None = None
    """CPU time of each process, rounded up to whole seconds."""
    processes: PositiveCount | None = None
    """Processes and threads. Without a sandbox, all processes of the daemon's user count. Root is not limited."""
    file_size: Size | None = None
    """Size of the largest file that the process can write."""


class Sandbox(Model):
    """A bubblewrap sandbox with access to system programs, the program or script, a fixed `cwd` and these paths."""

    network: Flag = False
    """Allow network access."""
    readable: list[str] = []
    """Readable paths, in addition to /usr, /bin, /sbin, /lib* and parts of /etc. Relative to this file."""
    writable: list[str] = []
    """Paths with read and write access. Relative to this file. Each call has a private /tmp (TMPDIR, HOME)."""
    # tmpfs rounds up to pages, and treats 0 as unlimited.
    tmp_size: Annotated[Size, Field(ge=4096)] = 64 * 2**20
    """Size limit of the private /tmp, and of /dev/shm. Each running call can use that much memory for each of them."""


ExitCode = Annotated[int, Field(ge=0, le=255), BeforeValidator(typed_interpolation)]


class Shell(Model):
    """A child process: `command` (a list, without a shell) or `script` (inputs are environment variables)."""

    command: Argv | None = None
    """Program and arguments: `[du, -h, "{{ path }}"]`. Each item is exactly one argument, even with spaces."""
    script: Annotated[str | None, Use.SCRIPT] = None
    """Text for `interpreter`, not a template. Inputs are in `INPUT_<NAME>`, `INPUTS_JSON` and the file `INPUTS_FILE`.
    """
    interpreter: Annotated[Items[str], Field(min_length=1)] = ("sh", "-e")
    """Program that runs the script; the script's path is its last argument. By default, an interpreter in the script's
    first line (`#!/usr/bin/env python3`) is used, as on Linux. `#!/bin/sh` without options is `sh -e`."""
    cwd: Template | None = None
    """Working directory. Relative to this file."""
    env: Annotated[dict[str, ScalarTemplate], Use.SECRET] = {}
    """Environment variables of the child."""
    inherit_env: Annotated[Items[str], DISTINCT] = ()
    """Names of environment variables to inherit, in addition to PATH, HOME, LANG, LC_*, TZ and TMPDIR."""
    stdin: Annotated[Template | None, Use.SECRET] = None
    """Text for the standard input of the child. Default: empty."""
    success_codes: Annotated[Items[ExitCode], SOME_DISTINCT] = (0,)
    """Exit codes that count as success."""
    progress: Literal["stdout", "stderr"] | None = None
    """Send each line of this stream as a progress message. A carriage return ends a line, as in progress bars."""
    timeout: PositiveDuration | None = None
    """Time limit."""
    limits: ProcessLimits | None = None
    """Resource limits of the child."""
    sandbox: Sandbox | None = None
    """Sandbox of the child."""

    _check_one_program = one_of("command", "script", what="a program")
    _check_interpreter = requires("interpreter", "script")


def _status(value: Json, *, words: tuple[str, ...] = ()) -> int | str:
    value = typed_interpolation(value)
    if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
        return value
    if isinstance(value, str) and (value in words or (len(value) == 3 and value[0] in "12345" and value[1:] == "xx")):
        return value
    others = "".join(f", or `{word}`" for word in words)
    message = "expected a status such as 404, or a class such as 5xx{others}"
    raise PydanticCustomError("status", message, {"others": others})


_STATUS_SCHEMA: Final = {"type": "integer", "minimum": 100, "maximum": 599}

StatusPattern = Annotated[
    int | str,
    PlainValidator(_status),
    WithJsonSchema({"anyOf": [_STATUS_SCHEMA, {"type": "string", "pattern": r"^([1-5]xx|\$\{.*)$"}]}),
]
"""A status such as 404, or a class of statuses such as 5xx."""

RetryCondition = Annotated[
    int | str,
    PlainValidator(partial(_status, words=("timeout",))),
    WithJsonSchema({"anyOf": [_STATUS_SCHEMA, {"type": "string", "pattern": r"^([1-5]xx|timeout|\$\{.*)$"}]}),
]


class Retry(Model):
    """Retry policy for GET, HEAD, PUT and DELETE, and for all requests of tools that are marked as idempotent."""

    attempts: PositiveCount = 3
    """Maximum number of attempts, including the first."""
    on: Annotated[Items[RetryCondition], SOME_DISTINCT] = (429, 502, 503, 504, "timeout")
    """Statuses and status classes to retry, and `timeout`, which includes connection errors."""


class ClientTls(Model):
    """TLS settings for connections to a server. Paths are relative to this file."""

    ca: str | None = None
    """CA certificates (PEM) to trust instead of the system's."""
    cert: str | None = None
    """Client certificate, PEM."""
    key: str | None = None
    """Private key of the client certificate, PEM."""


def _all_or_listed(value: Json) -> bool | list[str]:
    value = typed_interpolation(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [str(item) for item in value]
    raise PydanticCustomError("allow_private", "expected true, false, or a list of hosts and CIDR ranges")


AllowPrivate = Annotated[
    bool | list[str],
    PlainValidator(_all_or_listed),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "boolean"},
                {"type": "array", "items": {"type": "string"}},
                INTERPOLATION_SCHEMA,
            ]
        }
    ),
]
"""True, or a list of hosts and CIDR ranges that are allowed to be private, loopback or link-local."""


class Connection(Model):
    """Settings shared by the tools and resources that call one HTTP service."""

    base_url: str
    """Prefix of each `url`, joined with exactly one slash."""
    headers: Annotated[dict[str, ScalarTemplate], Use.SECRET] = {}
    """Header fields sent with each request."""
    query: Annotated[dict[str, ScalarTemplate], Use.SECRET] = {}
    """Query parameters sent with each request."""
    retry: Retry | None = None
    """Retry policy."""
    timeout: PositiveDuration | None = None
    """Time limit of one attempt, unless the backend has its own `timeout`. The definition's `timeout` limits the whole
    call, including all attempts and the delays between them."""
    proxy: str | None = None
    """Proxy URL. The proxy must block private addresses itself. Proxy settings in the environment are ignored."""
    tls: Annotated[ClientTls | None, Use.SECRET] = None
    """TLS settings."""
    allow_private: AllowPrivate = False
    """Private addresses to allow: hosts and CIDR ranges, or true for all, including cloud metadata services. Also
    applies to the URLs of `auth`."""
    auth: Annotated[OutboundAuth | None, Use.SECRET] = None
    """Authentication to the service."""


class FieldStyle(Model):
    """Serialization of a list or an object, as in OpenAPI."""

    style: Literal["form", "simple", "spaceDelimited", "pipeDelimited", "deepObject"] | None = None
    """Default `form`. Header fields only support `simple`, and cookies only support `form`."""
    explode: Flag | None = None
    """Whether each item or member becomes a separate field. Default true for `form`."""
    allow_reserved: Flag = False
    """Whether reserved characters (RFC 3986) in a query value are sent unescaped, except for separators."""


class StyledValue(FieldStyle):
    """A value of any type, with an OpenAPI serialization style."""

    value: ScalarTemplate
    """Text, or a single expression such as `"{{ ids }}"`. The style applies to results that are lists or objects."""


RequestField = Annotated[
    Annotated[ScalarTemplate, Tag("text")] | Annotated[StyledValue, Tag("a styled value")],
    text_unless(StyledValue, "a styled value"),
]
"""A text template, or a value of any type with its style."""


class HttpPages(Model):
    """Follows pagination: fetches the remaining pages and joins their items, up to `max` pages and the size limit."""

    next: NotEmpty
    """`link` for the URL in the `Link` header with `rel="next"`, or a JMESPath expression that selects the URL of the
    next page from the response: `paging.next`. The URL can be relative. Null or an empty string ends the list."""
    max: PositiveCount = 10
    """Maximum number of pages. The result reports missing pages."""


BodyKind = Literal["json_", "form", "multipart", "body"]
_BODIES: Final[tuple[BodyKind, ...]] = ("json_", "form", "multipart", "body")


class Http(Model):
    """An HTTP request. `url` is an RFC 6570 template; all other templates are Jinja."""

    connection: Annotated[str | None, EntryReference("connections")] = None
    """Name of an entry in `connections`."""
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] | None = None
    """HTTP method. Default GET, or POST if there is a body."""
    url: Template
    """Absolute, or relative to the connection's `base_url`: `/repos/{owner}/issues{?page}`."""
    query: Annotated[dict[str, RequestField], Use.SECRET] = {}
    """Query parameters, added to those of `url`. Lists and objects are sent as JSON, unless a mapping sets
    their style: `ids: {value: "{{ ids }}", explode: true}`."""
    headers: Annotated[dict[str, RequestField], Use.SECRET] = {}
    """Header fields."""
    cookies: Annotated[dict[str, RequestField], Use.SECRET] = {}
    """Cookies, added to those in the connection's header fields."""
    json_: Annotated[Json, Use.SECRET] = Field(None, alias="json")
    """A JSON body. A value that is a single expression keeps the type of the result."""
    form: Annotated[dict[str, FormValue] | None, Use.SECRET] = None
    """A form body. A list of scalars repeats its field. A mapping becomes `field[name]`, another list `field[0]`."""
    form_styles: dict[str, FieldStyle] = {}
    """Serialization styles for fields of `form`, instead of repeated fields and brackets: `ids: {explode: false}`."""
    multipart: Annotated[dict[str, MultipartField] | None, Use.SECRET] = None
    """A multipart/form-data body. Each field is text, an expression, a list of these, or a part."""
    body: Annotated[Body | None, Use.SECRET] = None
    """A body of any other type: text or a file."""
    optional_body: Flag = False
    """Omit the body and `Content-Type` if the caller provides no input that the body uses."""
    open_body: Flag = False
    """Send arguments that are not declared as inputs as members of `json` or fields of `form`. Requires
    `additionalProperties`."""
    success: Annotated[Items[StatusPattern], SOME_DISTINCT] = ("2xx",)
    """Statuses that count as success."""
    timeout: PositiveDuration | None = None
    """Time limit of one attempt. The definition's `timeout` limits the whole call, including all attempts and the
    delays between them."""
    retry: Retry | None = None
    """Retry policy."""
    cache: Duration | None = None
    """Old position of `cache`, which now belongs next to `http`. Only for GET and HEAD."""
    forward_headers: Annotated[Items[str], DISTINCT] = ()
    """Header fields to forward from the caller's request. `Authorization` and `Cookie` are never forwarded."""
    follow_redirects: Count = 3
    """Maximum number of redirects to follow. Each target is checked like the first address."""
    allow_private: AllowPrivate | None = None
    """Private addresses to allow: hosts and CIDR ranges, or true for all, including cloud metadata services."""
    pages: HttpPages | None = None
    """Pagination of a GET request."""

    @property
    def changes_data(self) -> bool:
        """Whether the method usually changes data. POST does not count, because many APIs use POST for searches."""
        return self.method in {"PUT", "PATCH", "DELETE"}

    @property
    def body_kind(self) -> BodyKind | None:
        return next(iter(given_keys(self, _BODIES)), None)

    @model_validator(mode="after")
    def _check_one_body(self) -> Self:
        given = given_keys(self, _BODIES)
        if len(given) > 1:
            context = {"given": " and ".join(f"`{name.rstrip('_')}`" for name in given), "culprit": given[1]}
            raise PydanticCustomError("two_bodies", "has {given}, but only one of them can be the body", context)
        if self.optional_body and not given:
            raise misplaced("optional_body", requires="json")
        if self.open_body and not isinstance(self.json_, dict) and self.form is None:
            raise misplaced("open_body", requires="json")
        return self

    _check_form_styles = requires("form_styles", "form")


class SqlCompletion(Model):
    """A read-only query whose first column contains the suggested values for an argument."""

    database: Annotated[str, EntryReference("databases")]
    """Name of an entry in `databases`."""
    query: Annotated[Annotated[list[str], Field(min_length=1), ONE_OR_MANY] | None, Use.PLAIN] = None
    """Statements, run in one transaction. Inputs are bound: `SELECT * FROM orders WHERE id = :id AND status IN
    (:statuses)`. The last statement that returns rows determines the result."""
    query_file: str | None = None
    """A file with statements separated by `;`, instead of `query`. Relative to this file."""
    bind: dict[str, Json] = {}
    """Further values to bind as `:name`, such as `who: "{{ caller.subject }}"`."""
    settings: dict[str, str] = {}
    """Settings of the transaction, such as `app.user_id: "{{ caller.subject }}"`. Only for PostgreSQL."""
    max_rows: PositiveCount = 1000
    """Maximum number of rows in the result."""

    _check_one_text = one_of("query", "query_file", what="statements")


class Sql(SqlCompletion):
    """A database query. Inputs are bound as `:name` and never become part of the SQL text."""

    writes: Flag = False
    """Allow the query to change the database. Otherwise the database itself makes the transaction read-only."""
    single: Flag = False
    """Return the only row as an object. A query that returns no row or several rows fails."""
    decimals: Literal["string", "number"] = "string"
    """Format of decimals: exact strings, or numbers, which many JSON parsers round."""

    @property
    def changes_data(self) -> bool:
        return self.writes

    @property
    def is_read_only(self) -> bool:
        return not self.writes


class PythonCall(Model):
    """A Python function. The module is a file in `plugins:`, an entry point, or an importable module, in this order."""

    call: Annotated[str, matching(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", "module:callable, such as scoring:score")]
    """The function as `module:callable`, such as scoring:score."""
    timeout: PositiveDuration | None = None
    """Time limit."""


Python = Annotated[PythonCall, text_for("call")]
"""A function, or only its `module:callable`."""
