"""Models of tools, resources and prompts, and of changes to the definitions of upstreams and OpenAPI documents."""

from functools import cache, cached_property
from typing import Annotated, Final, Literal, Self

from pydantic import Discriminator, Field, PlainValidator, Tag, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.backends import Argv, Http, Python, Retry, Shell, Sql, SqlCompletion
from gateway.config.models.base import (
    DISTINCT,
    ONE_OR_MANY,
    Flag,
    Items,
    Model,
    NotEmpty,
    PositiveCount,
    Template,
    Use,
    defaults_of,
    exactly_one,
    matching,
    misplaced,
    not_together,
    one_of,
    requires,
    text_for,
)
from gateway.config.models.content import Blocks
from gateway.config.models.definition_keys import (
    ContentAnnotations,
    Definition,
    Output,
    SchemaObject,
    ToolAnnotations,
    WrittenToolTask,
    interpolated_schema,
)
from gateway.config.models.quantities import PositiveDuration, PositiveSize
from gateway.config.models.tool_tests import ToolTest
from gateway.json_types import Json

Origin = Annotated[
    str,
    matching(
        r"(https?|wss?)://(\*\.)?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:[0-9]{1,5})?",
        "an origin such as https://api.example.com or https://*.example.com",
    ),
]


class ContentSecurityPolicy(Model):
    """Origins that the page can contact, in addition to its own origin. Default: none."""

    connect: Annotated[list[Origin], Use.SHOWN] = []
    """Origins that scripts can send requests to."""
    resources: Annotated[list[Origin], Use.SHOWN] = []
    """Origins from which scripts, styles, images, fonts and media can be loaded."""


class AppPage(Model):
    """A page that hosts show next to the tool's result. Hosts without support for pages show the result as text."""

    file: NotEmpty
    """The page: a single HTML file, which is read on each request. The path is relative to this file."""
    csp: ContentSecurityPolicy | None = None
    """The origins that the page can contact."""
    permissions: Annotated[list[Literal["camera", "microphone", "geolocation", "clipboardWrite"]], DISTINCT] = []
    """Browser permissions that the page requests. The host decides."""
    visibility: Annotated[list[Literal["model", "app"]], Field(min_length=1), DISTINCT] = ["model", "app"]
    """Who can call the tool: the model, the page, or both. Hosts enforce this."""
    border: Flag | None = None
    """Whether the host should draw a border around the page. By default the host decides."""


TYPE_WORDS: Final = ("string", "integer", "number", "boolean", "object", "array", "file")


BACKEND: Final = object()
"""Marks the backend fields, of which a definition has exactly one."""


@cache
def backends_of(model: type[Model]) -> tuple[str, ...]:
    """Return the names of a model's backends in field order."""
    return tuple(name for name, field in model.model_fields.items() if BACKEND in field.metadata)


def trait_of(config: "Tool | Resource | Prompt", name: str) -> Json:
    """Return an attribute of the backend's model, or None if the model does not have the attribute.

    These names have the same meaning in every model: `connection`, `timeout`, `cache`, `forward_headers`,
    `is_read_only` (the default of `annotations.read_only`) and `changes_data`.
    """
    return getattr(getattr(config, config.backend), name, None)


def _word_or_schema(value: Json) -> str | dict[str, Json]:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, dict):
        schema: dict[str, Json] = interpolated_schema(value)
        return schema
    raise PydanticCustomError("input_property", "expected a type, such as `string` or `integer?`, or a JSON Schema")


InputProperty = Annotated[
    str | dict[str, Json],
    PlainValidator(_word_or_schema),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": [f"{word}{mark}" for word in TYPE_WORDS for mark in ("", "?")]},
                {
                    "type": "object",
                    "properties": {
                        "required": {"type": ["boolean", "array"], "description": "false: optional."},
                        "within": {"type": "string", "description": "Directory that must contain the path."},
                        "max_size": {
                            "type": ["string", "number"],
                            "description": "With `type: file`: maximum size of the file, such as 5MiB.",
                        },
                        "media_types": {
                            "type": "array",
                            "items": {"type": "string"},
                            "description": "With `type: file`: media types, such as image/* or application/pdf.",
                        },
                    },
                },
            ]
        }
    ),
]
"""A type name (`string?` is optional), or a JSON Schema with the additional keys `required` and `within`."""


class Tool(Definition):
    """A tool that models can call."""

    annotations: Annotated[ToolAnnotations | None, Use.DESCRIPTION] = None
    """Hints about the effects of a call."""
    input: Annotated[dict[str, InputProperty] | None, Use.DESCRIPTION] = None
    """Short form: a type or JSON Schema per input. Inputs with `?`, `default` or `required: false` are optional."""
    input_schema: Annotated[SchemaObject | None, Use.DESCRIPTION] = None
    """Long form: a JSON Schema object, sent to clients unchanged."""
    shell: Annotated[Shell | None, BACKEND] = None
    """Backend: a child process."""
    http: Annotated[Http | None, BACKEND] = None
    """Backend: an HTTP request."""
    sql: Annotated[Sql | None, BACKEND] = None
    """Backend: a database query."""
    python: Annotated[Python | None, BACKEND] = None
    """Backend: a Python function, `module:callable`."""
    content: Annotated[Blocks | None, Use.BODY, BACKEND] = None
    """Backend: a fixed result with templates."""
    is_error: Flag = False
    """With `content`: the fixed result is an error."""
    output: Output | None = None
    """Output format."""
    confirm: Annotated[Template | None, Use.BODY] = None
    """A question that the user must confirm before the tool runs."""
    confirm_fallback: Literal["deny", "allow"] = "deny"
    """What to do if the client cannot ask the user."""
    ask_timeout: PositiveDuration | None = None
    """Time limit for the user to answer. Default 10m."""
    coerce: Flag | None = None
    """Convert a string that is exactly JSON of the required type to that type. Treat null as an omitted value."""
    task: WrittenToolTask | None = None
    """Whether a call becomes a task that outlives its request: `never` (default), `optional` or `required`."""
    app: AppPage | None = None
    """A page that hosts show with the result (MCP Apps)."""
    tests: Annotated[Items[ToolTest], Use.SECRET] = ()
    """Test calls for `mcp-gateway test`, which are not sent to clients."""

    @cached_property
    def backend(self) -> str:
        return exactly_one(self, of=backends_of(type(self)), what="a backend")

    @property
    def hints(self) -> ToolAnnotations | None:
        """The `annotations`, with the backend's defaults for missing hints."""
        is_read_only = trait_of(self, "is_read_only")
        if is_read_only is None or (self.annotations is not None and self.annotations.read_only is not None):
            return self.annotations
        said = self.annotations or defaults_of(ToolAnnotations)
        return said.model_copy(update={"read_only": is_read_only})

    _check_confirm = requires("confirm_fallback", "confirm")

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.sql is not None and self.sql.writes and self.annotations is not None and self.annotations.read_only:
            message = "has `read_only: true`, but its `sql` has `writes: true`"
            raise PydanticCustomError("read_only_writes", message, {"culprit": "annotations"})
        if self.backend != "content" and self.is_error:
            raise misplaced("is_error", requires="content")
        not_together(self, "input", "input_schema")
        if self.http is None and any(test.http is not None for test in self.tests):
            message = "has tests with `http`, which require an `http` backend, but the backend is `{backend}`"
            raise PydanticCustomError("stand_in", message, {"backend": self.backend, "culprit": "tests"})
        return self


class CommandCompletion(Model):
    """The source of suggestions for an argument. Exactly one key is required."""

    command: Argv | None = None
    """A program that prints one value per line. Its arguments can use `value`, the text typed so far, and the other
    arguments. The limits and the sandbox of the resource's command also apply here."""
    python: Python | None = None
    """A function that returns the values."""
    files: str | None = None
    """A glob. The values are the paths of matching files, relative to the last directory
    before the first wildcard."""
    sql: SqlCompletion | None = None
    """A query whose first column contains the values. `:value` is the text typed so far, as in `command`."""

    _check_one_source = one_of("command", "python", "files", "sql", what="a source")


def _kind_of_completion(value: Json) -> str | None:
    if isinstance(value, list):
        return "values"
    return "a source" if isinstance(value, dict | CommandCompletion) else None


Completion = Annotated[
    Annotated[list[str], Tag("values"), Use.SHOWN] | Annotated[CommandCompletion, Tag("a source")],
    Discriminator(
        _kind_of_completion,
        custom_error_type="completion",
        custom_error_message="expected a list of values, or one of `command`, `python`, `files`, `sql`",
    ),
]
"""Fixed values, or their source."""


class Resource(Definition):
    """A resource, a resource template, or, with `files`, one resource per file."""

    uri: Annotated[Template | None, Use.NAME] = None
    """URI of the resource. With variables (`incident://{id}`, RFC 6570), the resource is a template."""
    files: Annotated[Annotated[list[str], ONE_OR_MANY] | None, BACKEND] = None
    """A glob, or a list of globs with `root`: one resource per file. The list always matches the files on disk."""
    root: str | None = None
    """Root directory of `files`. Default: the part of the glob before its first wildcard."""
    max_files: PositiveCount = 10_000
    """Maximum number of listed files."""
    text: Annotated[Template | None, Use.BODY, BACKEND] = None
    """Backend: a text template over the variables of the URI."""
    blob: Annotated[str | None, Use.SHOWN, BACKEND] = None
    """Backend: data in base64."""
    file: Annotated[str | None, BACKEND] = None
    """Backend: one file. The path is relative to this file."""
    http: Annotated[Http | None, BACKEND] = None
    """Backend: an HTTP request."""
    sql: Annotated[Sql | None, BACKEND] = None
    """Backend: a database query."""
    shell: Annotated[Shell | None, BACKEND] = None
    """Backend: a child process."""
    python: Annotated[Python | None, BACKEND] = None
    """Backend: a Python function, `module:callable`."""
    mime_type: Annotated[str | None, Use.SHOWN] = None
    """Media type. Default: from the file name or the backend."""
    annotations: Annotated[ContentAnnotations | None, Use.DESCRIPTION] = None
    """Hints for the client."""
    max_size: PositiveSize | None = None
    """Maximum number of bytes to read. Default 10MiB."""
    complete: dict[str, Completion] = {}
    """Suggestions for the variables of `uri`."""

    @cached_property
    def backend(self) -> str:
        return exactly_one(self, of=backends_of(type(self)), what="a backend")

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.backend != "files":
            if self.uri is None:
                raise PydanticCustomError("nothing_given", "needs `uri`")
        elif self.files is not None and len(self.files) != 1 and self.root is None:
            raise PydanticCustomError("nothing_given", "a list of globs needs `root`")
        return self

    _check_root = requires("root", "files")
    _check_max_files = requires("max_files", "files")


class PromptArgument(Model):
    """An argument of the prompt, filled in by the user. The value is always text."""

    title: str | None = None
    """Display name."""
    description: str | None = None
    """Explanation for the user."""
    required: Flag = False
    """Whether the argument is required."""
    default: str | None = None
    """Value if the argument is omitted."""
    complete: Annotated[Completion | None, Use.PLAIN] = None
    """Suggestions shown while the user types."""


class PromptMessage(Model):
    """A message. Exactly one key is required."""

    user: Annotated[Blocks, Field(min_length=1)] | None = None
    """Message of the user: text, a content block, or a list of these."""
    assistant: Annotated[Blocks, Field(min_length=1)] | None = None
    """Message of the model: text, a content block, or a list of these."""

    @property
    def role(self) -> str:
        return "assistant" if self.user is None else "user"

    @property
    def blocks(self) -> Blocks:
        return self.user or self.assistant or []

    _check_one_role = one_of("user", "assistant", what="a role")


class PromptHead(Definition):
    """A prompt without its text: the keys allowed in the front matter of a Markdown file."""

    arguments: Annotated[dict[str, Annotated[PromptArgument, text_for("description")]], Use.DESCRIPTION] = {}
    """Arguments by name. Plain text is the description."""


class Prompt(PromptHead):
    """The start of a conversation, chosen by the user."""

    messages: Annotated[Annotated[list[PromptMessage], Field(min_length=1)] | None, Use.BODY] = None
    """The messages, which are templates over the arguments."""
    python: Python | None = None
    """A function that returns the messages instead."""

    @property
    def backend(self) -> str:
        return "python" if self.messages is None else "messages"

    _check_one_source = one_of("messages", "python", what="a source")


class _ToolChanges(Definition):
    name: Annotated[str | None, Use.NAME] = None
    """New name, after the prefix."""
    annotations: Annotated[ToolAnnotations | None, Use.DESCRIPTION] = None
    """Hints about the effects of a call. Default: the hints of the upstream, or hints based on the HTTP method."""
    output: Output | None = None
    """Output format, instead of the one that the source describes."""
    confirm: Annotated[Template | None, Use.BODY] = None
    """A question that the user must confirm before the tool runs."""
    confirm_fallback: Literal["deny", "allow"] = "deny"
    """What to do if the client cannot ask the user."""
    ask_timeout: PositiveDuration | None = None
    """Time limit for the user to answer a question. Default 10m."""
    tests: Annotated[Items[ToolTest], Use.SECRET] = ()
    """Test calls for `mcp-gateway test`, which are not sent to clients."""

    _check_confirm = requires("confirm_fallback", "confirm")


class ToolOverride(_ToolChanges):
    """Changes to one tool of an upstream."""

    validate_: Flag | None = Field(None, alias="validate")
    """Whether the gateway validates arguments against the tool's `inputSchema` before it calls the upstream."""

    @model_validator(mode="after")
    def _check_tests(self) -> Self:
        if any(test.http is not None for test in self.tests):
            message = "has tests with `http`, which require an `http` backend"
            raise PydanticCustomError("stand_in", message, {"culprit": "tests"})
        return self


class ResourceOverride(Definition):
    """Changes to one resource or resource template of an upstream."""

    annotations: Annotated[ContentAnnotations | None, Use.DESCRIPTION] = None
    """Hints for the client."""
    mime_type: Annotated[str | None, Use.SHOWN] = None
    """Media type."""


class PromptOverride(Definition):
    """Changes to one prompt of an upstream."""

    name: Annotated[str | None, Use.NAME] = None
    """New name, after the prefix."""


class OperationOverride(_ToolChanges):
    """Changes to the tool that an OpenAPI operation becomes."""

    hide: Annotated[list[str], DISTINCT, ONE_OR_MANY] = []
    """Inputs to remove from the tool and never send."""
    set: Annotated[dict[str, Json], Use.SECRET] = {}
    """Inputs to remove from the tool, each with a fixed value that is always sent."""
    retry: Retry | None = None
    """Retry policy."""

    @model_validator(mode="after")
    def _check_hide_and_set(self) -> Self:
        if both := sorted(set(self.hide) & self.set.keys()):
            context = {"both": both[0], "culprit": "set"}
            raise PydanticCustomError(
                "hidden_and_set", "`{both}` is in `hide` and `set`. Remove it from `hide`", context
            )
        return self
