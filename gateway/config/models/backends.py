"""The backends `shell`, `http`, `sql` and `python` as they are written, and the `connections` of HTTP backends."""

import re
import shlex
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, PlainValidator, Tag, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.base import (
    DISTINCT,
    ONE_OR_MANY,
    SOME_DISTINCT,
    Count,
    Flag,
    Items,
    Model,
    PositiveCount,
    ScalarTemplate,
    Template,
    exactly_one,
    matching,
    misplaced,
    text_for,
    typed_interpolation,
)
from gateway.config.models.entry_references import EntryOf
from gateway.config.models.field_use import Use
from gateway.config.models.http_bodies import Body, FormValue, MultipartField, text_unless
from gateway.config.models.interpolated_text import InterpolatedText
from gateway.config.models.outbound_auth import OutboundAuth
from gateway.config.models.quantities import Duration, PositiveDuration, Size
from gateway.json_types import Json


class Conditional(Model):
    """`{if: verbose, then: [-v]}`: items that are there only where the expression is true."""

    if_: str = Field(alias="if")
    """A Jinja expression over the inputs."""
    then: list[ScalarTemplate]
    """Arguments, each a template."""


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
"""Text, a group that is left out whole when one of its members is, or a conditional."""


def _not_a_line(value: Json) -> Json:
    """Refuse a command line where an argv belongs, and show what it would be."""
    if not isinstance(value, str):
        return value
    is_for_a_shell = re.search(r"[|;&<>]", re.sub(r"{{.*?}}", "", value)) is not None
    # An example is made of nothing that a shell would fill in or unquote otherwise, nor of what may be a secret.
    is_plain = len(value) <= 60 and not re.search(r"\$|{{[^}]*['\"]", value) and not isinstance(value, InterpolatedText)
    try:  # a template stays one word
        words = shlex.split(re.sub(r"{{.*?}}", lambda found: found[0].replace(" ", "\0"), value))
    except ValueError:
        words = []
    shown = [word.replace("\0", " ") for word in words] if words and is_plain and not is_for_a_shell else ["df", "-h"]
    example = ", ".join(word if re.fullmatch(r"[\w./=+-]+", word) else f'"{word}"' for word in shown)
    hint = "; a line for a shell is a `script`" if is_for_a_shell else ""
    raise PydanticCustomError(
        "argv_line", "expected a list such as [{example}]{hint}", {"example": example, "hint": hint}
    )


Argv = Annotated[list[ArgvItem], Field(min_length=1), BeforeValidator(_not_a_line)]
"""A program and its arguments; no shell reads them."""


class ProcessLimits(Model):
    """Limits of a child and of each process that it starts. A call that meets a limit says so. Needs `prlimit`."""

    memory: Annotated[Size, Field(ge=2**20)] | None = None
    """Address space of each process. Below 1MiB no program starts."""
    cpu: PositiveDuration | None = None
    """Processor time of each process, in whole seconds, rounded up."""
    processes: PositiveCount | None = None
    """Processes and threads: in a sandbox its own, otherwise all of the daemon's user. Does not bind root."""
    file_size: Size | None = None
    """The largest file that it may write."""


class Sandbox(Model):
    """A sandbox (bubblewrap): a child sees system programs, its own program or script, a literal `cwd`, and these."""

    network: Flag = False
    """Let it use the network."""
    readable: list[str] = []
    """Paths that it may read, beside /usr, /bin, /sbin, /lib* and a little of /etc. Relative to this file."""
    writable: list[str] = []
    """Paths that it may write to, and read. Relative to this file. /tmp (TMPDIR, HOME) is the call's own."""
    # A page is the least: tmpfs rounds up to pages, and takes 0 for no limit.
    tmp_size: Annotated[Size, Field(ge=4096)] = 64 * 2**20
    """What its own /tmp and /dev/shm may hold, each. It is memory, of each call that runs."""


ExitCode = Annotated[int, Field(ge=0, le=255), BeforeValidator(typed_interpolation)]


class Shell(Model):
    """A child process: `command` (argv; no shell sees it) or `script` (run by `interpreter`; inputs as environment)."""

    command: Argv | None = None
    """Program and arguments: `[du, -h, "{{ path }}"]`. Each item stays one argument, whatever is in it."""
    script: Annotated[str | None, Use.SCRIPT] = None
    """Text for `interpreter`; not a template. Inputs are INPUT_<NAME>, INPUTS_JSON and the file INPUTS_FILE."""
    interpreter: Annotated[Items[str], Field(min_length=1)] = ("sh", "-e")
    """Runs the script; its path comes as the last argument. Without this key, a script whose first line names an
    interpreter (`#!/usr/bin/env python3`) is run by that one, as Linux does; `#!/bin/sh` without options is `sh -e`."""
    cwd: Template | None = None
    """Working directory, relative to this file."""
    env: Annotated[dict[str, ScalarTemplate], Use.SECRET] = {}
    """Variables of the child."""
    inherit_env: Annotated[Items[str], DISTINCT] = ()
    """Names, beyond PATH, HOME, LANG, LC_*, TZ and TMPDIR."""
    stdin: Annotated[Template | None, Use.SECRET] = None
    """What the child reads; otherwise nothing."""
    success_codes: Annotated[Items[ExitCode], SOME_DISTINCT] = (0,)
    """Exit codes that are not an error."""
    progress: Literal["stdout", "stderr"] | None = None
    """Send each line of this stream as a progress message. A carriage return ends a line, as in a progress bar."""
    timeout: PositiveDuration | None = None
    """How long it may take."""
    limits: ProcessLimits | None = None
    """Limits of the child."""
    sandbox: Sandbox | None = None
    """Confinement of the child."""

    @model_validator(mode="after")
    def _has_one_program(self) -> Self:
        exactly_one(self, of=("command", "script"), what="a program")
        if "interpreter" in self.model_fields_set and self.script is None:
            raise misplaced("interpreter", goes_with="script")
        return self


def _status(value: Json, *, words: tuple[str, ...] = ()) -> int | str:
    value = typed_interpolation(value)
    if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
        return value
    if isinstance(value, str) and (value in words or (len(value) == 3 and value[0] in "12345" and value[1:] == "xx")):
        return value
    others = "".join(f", or `{word}`" for word in words)
    message = "expected a status such as 404, or a class such as 5xx{others}"
    raise PydanticCustomError("status", message, {"others": others})


def _retry_condition(value: Json) -> int | str:
    return _status(value, words=("timeout",))


_STATUS_SCHEMA: Final = {"type": "integer", "minimum": 100, "maximum": 599}

StatusPattern = Annotated[
    int | str,
    PlainValidator(_status),
    WithJsonSchema({"anyOf": [_STATUS_SCHEMA, {"type": "string", "pattern": r"^([1-5]xx|\$\{.*)$"}]}),
]
"""A status such as 404, or a class such as 5xx."""

RetryCondition = Annotated[
    int | str,
    PlainValidator(_retry_condition),
    WithJsonSchema({"anyOf": [_STATUS_SCHEMA, {"type": "string", "pattern": r"^([1-5]xx|timeout|\$\{.*)$"}]}),
]


class Retry(Model):
    """Sends a request again: GET, HEAD, PUT, DELETE, or any of a tool that is marked idempotent."""

    attempts: PositiveCount = 3
    """How often a request is sent at the most, the first time included."""
    on: Annotated[Items[RetryCondition], SOME_DISTINCT] = (429, 502, 503, 504, "timeout")
    """Statuses, classes of them, and `timeout`, which includes connection errors."""


class ClientTls(Model):
    """TLS towards a server. Paths are relative to this file."""

    ca: str | None = None
    """Certificates to trust instead of the system's, PEM."""
    cert: str | None = None
    """Our certificate, PEM."""
    key: str | None = None
    """Its private key, PEM."""


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
                {"type": "string", "pattern": r"^\$\{"},
            ]
        }
    ),
]
"""True, or the hosts and CIDR ranges that may be private, loopback or link-local."""


class Connection(Model):
    """Settings that the HTTP backends of one service share."""

    base_url: str
    """The prefix of each `url`, with one slash between them."""
    headers: Annotated[dict[str, ScalarTemplate], Use.SECRET] = {}
    """Header fields of each request."""
    query: Annotated[dict[str, ScalarTemplate], Use.SECRET] = {}
    """Query fields of each request."""
    retry: Retry | None = None
    """When to send a request again."""
    timeout: PositiveDuration | None = None
    """How long one attempt may take, unless the backend's own `timeout` says so. The definition's `timeout` bounds the
    call: all attempts, and the waits between them."""
    proxy: str | None = None
    """URL of a proxy, which must itself refuse what is private; proxies from the environment are ignored."""
    tls: Annotated[ClientTls | None, Use.SECRET] = None
    """Certificates."""
    allow_private: AllowPrivate = False
    """Addresses that are otherwise refused: hosts and CIDR ranges; true is all, a cloud's metadata service too. Holds
    for the URLs of `auth` as well."""
    auth: Annotated[OutboundAuth | None, Use.SECRET] = None
    """How to sign in to the service."""


class FieldStyle(Model):
    """The style in which a list or an object is written, as in OpenAPI."""

    style: Literal["form", "simple", "spaceDelimited", "pipeDelimited", "deepObject"] | None = None
    """Default `form`, in header fields `simple`, which is the only one there. Cookies take `form`."""
    explode: Flag | None = None
    """Whether each item, or member, is a field of its own. Default true for `form`."""
    allow_reserved: Flag = False
    """Whether reserved characters (RFC 3986) of a query's value go out as they are, but for those that separate."""


class StyledValue(FieldStyle):
    """A value of any type with the style in which it is written, in OpenAPI's words."""

    value: ScalarTemplate
    """One expression, whose list or object the style writes: `"{{ ids }}"`; or text."""


RequestField = Annotated[
    Annotated[ScalarTemplate, Tag("text")] | Annotated[StyledValue, Tag("a styled value")],
    text_unless(StyledValue, "a styled value"),
]
"""A template of text, or a value of any type with its style."""


class Http(Model):
    """An HTTP request; `url` is an RFC 6570 template, everything else Jinja."""

    connection: Annotated[str | None, EntryOf("connections")] = None
    """Name of one of `connections`."""
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] | None = None
    """GET, or POST with a body, unless given."""
    url: Template
    """Absolute, or relative to the connection's `base_url`: `/repos/{owner}/issues{?page}`."""
    query: Annotated[dict[str, RequestField], Use.SECRET] = {}
    """Query fields, added to those of `url`. A list or an object takes a style:
    `ids: {value: "{{ ids }}", explode: true}`."""
    headers: Annotated[dict[str, RequestField], Use.SECRET] = {}
    """Header fields."""
    cookies: Annotated[dict[str, RequestField], Use.SECRET] = {}
    """Cookies, added to those that the connection's header fields have."""
    json_: Annotated[Json, Use.SECRET] = Field(None, alias="json")
    """A JSON body; an item that is one expression keeps its type."""
    form: Annotated[dict[str, FormValue] | None, Use.SECRET] = None
    """A form body. A list repeats its field, a mapping becomes `field[name]`; lists within brackets are numbered."""
    form_styles: dict[str, FieldStyle] = {}
    """Styles of fields of `form`, in place of repeated fields and brackets: `ids: {explode: false}`."""
    multipart: Annotated[dict[str, MultipartField] | None, Use.SECRET] = None
    """A multipart/form-data body: field → text, an expression, a list of these, or a part."""
    body: Annotated[Body | None, Use.SECRET] = None
    """Any other body: text, or a file."""
    optional_body: Flag = False
    """Send no body, and no Content-Type, where nothing was given that would stand in it."""
    open_body: Flag = False
    """Send arguments that are not declared as inputs as members of `json`. Needs `additionalProperties: true`."""
    success: Annotated[Items[StatusPattern], SOME_DISTINCT] = ("2xx",)
    """Statuses that are not an error."""
    timeout: PositiveDuration | None = None
    """How long one attempt may take. The definition's own `timeout` bounds the call: all attempts, and the waits
    between them."""
    retry: Retry | None = None
    """When to send the request again."""
    cache: Duration | None = None
    """An old name for `cache` beside `http`; for GET and HEAD."""
    forward_headers: Annotated[Items[str], DISTINCT] = ()
    """Header fields of the caller's request to pass on. Never Authorization or Cookie."""
    follow_redirects: Count = 3
    """How many redirects are followed; each is checked like the first address."""
    allow_private: AllowPrivate | None = None
    """Addresses that are otherwise refused: hosts and CIDR ranges; true is all, a cloud's metadata service too."""

    @property
    def body_kind(self) -> Literal["json_", "form", "multipart", "body"] | None:
        if "json_" in self.model_fields_set:  # null is a body, too
            return "json_"
        if self.form is not None:
            return "form"
        if self.multipart is not None:
            return "multipart"
        return "body" if self.body is not None else None

    @model_validator(mode="after")
    def _has_one_body(self) -> Self:
        others = [name for name in ("form", "multipart", "body") if getattr(self, name) is not None]
        given = ["json", *others] if "json_" in self.model_fields_set else others
        if len(given) > 1:
            context = {"given": " and ".join(f"`{name}`" for name in given), "culprit": given[1]}
            raise PydanticCustomError("two_bodies", "has {given}; only one can be the body", context)
        if self.optional_body and not given:
            raise misplaced("optional_body", goes_with="json")
        if self.open_body and not isinstance(self.json_, dict):
            raise misplaced("open_body", goes_with="json")
        if self.form_styles and self.form is None:
            raise misplaced("form_styles", goes_with="form")
        return self


class SqlCompletion(Model):
    """A query whose first column has the values for an argument; read-only."""

    database: Annotated[str, EntryOf("databases")]
    """Name of one of `databases`."""
    query: Annotated[Annotated[list[str], Field(min_length=1), ONE_OR_MANY] | None, Use.PLAIN] = None
    """A statement, or several, which are one transaction. Inputs are bound: `SELECT * FROM orders WHERE id = :id AND
    status IN (:statuses)`. The result is that of the last one that returns rows."""
    query_file: str | None = None
    """A file with the statements instead, separated by `;`. Relative to this file."""
    max_rows: PositiveCount = 1000
    """The most rows of a result."""

    @model_validator(mode="after")
    def _has_one_text(self) -> Self:
        exactly_one(self, of=("query", "query_file"), what="statements")
        return self


class Sql(SqlCompletion):
    """A query of a database. Inputs are bound as `:name`, and never become text of a statement."""

    writes: Flag = False
    """Let it change the database. Otherwise the transaction is read-only by the database's own means."""
    single: Flag = False
    """The result is the one row, an object; no row is an error, and so are several."""
    decimals: Literal["string", "number"] = "string"
    """How decimals appear: as text, exact to the last digit, or as numbers, which JSON readers round."""


class PythonCall(Model):
    """A function: `module:callable`, looked up in `plugins:`, entry points, then importable modules."""

    call: Annotated[str, matching(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", "module:callable, such as scoring:score")]
    """`module:callable`, such as scoring:score."""
    timeout: PositiveDuration | None = None
    """How long a call may take."""


Python = Annotated[PythonCall, text_for("call")]
"""A function, or `module:callable` alone."""
