"""The backends as they are written: `shell:`, `http:`, `python:`; and the `connections:` that HTTP backends share."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.base import (
    Count,
    Duration,
    Flag,
    Model,
    PositiveCount,
    ScalarTemplate,
    Size,
    Template,
    exactly_one,
    unsupported,
)
from gateway.json_types import Json


class Conditional(Model):
    """`{if: verbose, then: [-v]}`: items that are there only where the input is true."""

    if_: str = Field(alias="if")
    """A Jinja expression."""
    then: list[ScalarTemplate]


def _argv_item(value: Json) -> str | tuple[str, ...] | Conditional:
    """An item of a command: text, a group that is left out whole, or a conditional."""
    if isinstance(value, dict):
        return Conditional.model_validate(value)
    if isinstance(value, list):
        return tuple(_argv_text(item) for item in value)
    return _argv_text(value)


def _argv_text(value: Json) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return value
    raise PydanticCustomError("argv_item", "expected text, a list of texts, or {{if: …, then: […]}}; quote it")


ArgvItem = Annotated[
    str | tuple[str, ...] | Conditional,
    PlainValidator(_argv_item),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": ["string", "number"]},
                {"type": "array", "items": {"type": ["string", "number"]}},
                {
                    "type": "object",
                    "properties": {
                        "if": {"type": "string"},
                        "then": {"type": "array", "items": {"type": ["string", "number"]}},
                    },
                    "required": ["if", "then"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
Argv = Annotated[list[ArgvItem], Field(min_length=1)]


class ProcessLimits(Model):
    memory: Size | None = None
    cpu: Duration | None = None
    processes: PositiveCount | None = None
    file_size: Size | None = None


class Sandbox(Model):
    network: Flag = False
    writable: list[str] = []


class Shell(Model):
    """A child process: `command` (argv; no shell sees it) or `script` (run by `interpreter`; inputs as environment)."""

    command: Argv | None = None
    script: str | None = None
    interpreter: Annotated[list[str], Field(min_length=1)] = ["sh", "-e"]
    cwd: Template | None = None
    env: dict[str, ScalarTemplate] = {}
    inherit_env: list[str] = []
    """Names, beyond PATH, HOME, LANG, LC_*, TZ and TMPDIR."""
    stdin: Template | None = None
    success_codes: list[Annotated[int, Field(ge=0, le=255)]] = [0]
    progress: Literal["stdout", "stderr"] | None = None
    """Send each line of this stream as a progress message."""
    timeout: Duration | None = None
    limits: Annotated[ProcessLimits | None, BeforeValidator(unsupported)] = None
    sandbox: Annotated[Sandbox | None, BeforeValidator(unsupported)] = None

    @model_validator(mode="after")
    def _has_one_program(self) -> Self:
        exactly_one(self, of=("command", "script"), what="a program")
        if "interpreter" in self.model_fields_set and self.script is None:
            raise PydanticCustomError("interpreter", "`interpreter` goes with `script`")
        return self


StatusPattern = Annotated[int | str, Field(union_mode="left_to_right")]
"""A status such as 404, or a class such as 5xx."""


def _status_pattern(value: Json) -> Json:
    if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
        return value
    if isinstance(value, str) and len(value) == 3 and value[0] in "12345" and value[1:] == "xx":
        return value
    raise PydanticCustomError("status", "expected a status such as 404, or a class such as 5xx")


def _retry_condition(value: Json) -> Json:
    return value if value == "timeout" else _status_pattern(value)


class Retry(Model):
    attempts: PositiveCount = 3
    """How often a request is sent at the most, the first time included."""
    on: list[Annotated[StatusPattern, BeforeValidator(_retry_condition)]] = [429, 502, 503, 504, "timeout"]
    """Statuses, classes of them, and `timeout`, which stands for connection errors too."""


class ClientTls(Model):
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


AllowPrivate = bool | list[str]
"""True, or the hosts and CIDR ranges that may be private, loopback or link-local."""


class Connection(Model):
    """What HTTP backends of one service share."""

    base_url: str
    headers: dict[str, ScalarTemplate] = {}
    query: dict[str, ScalarTemplate] = {}
    retry: Retry | None = None
    timeout: Duration | None = None
    proxy: str | None = None
    tls: ClientTls | None = None
    allow_private: AllowPrivate = False


class Http(Model):
    """An HTTP request; `url` is an RFC 6570 template, everything else Jinja."""

    connection: str | None = None
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] | None = None
    """GET, or POST with a body, unless given."""
    url: Template
    query: dict[str, ScalarTemplate] = {}
    headers: dict[str, ScalarTemplate] = {}
    json_: Json = Field(None, alias="json")
    """Any JSON value; an item that is one expression keeps its type."""
    form: dict[str, ScalarTemplate] | None = None
    body: Template | None = None
    success: list[Annotated[StatusPattern, BeforeValidator(_status_pattern)]] = ["2xx"]
    timeout: Duration | None = None
    retry: Retry | None = None
    cache: Duration | None = None
    forward_headers: list[str] = []
    follow_redirects: Count = 3
    allow_private: AllowPrivate | None = None

    @property
    def body_kind(self) -> Literal["json_", "form", "body"] | None:
        given = [name for name in ("json_", "form", "body") if name in self.model_fields_set]
        if not given:
            return None
        return exactly_one(self, of=("json_", "form", "body"), what="body")  # type: ignore[return-value]

    @model_validator(mode="after")
    def _has_one_body(self) -> Self:
        _ = self.body_kind
        return self


def _call_only(value: Json) -> Json:
    return {"call": value} if isinstance(value, str) else value


class PythonCall(Model):
    """A function: `module:callable`, looked up in `plugins:`, entry points, then importable modules."""

    call: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]
    timeout: Duration | None = None


Python = Annotated[PythonCall, BeforeValidator(_call_only)]
