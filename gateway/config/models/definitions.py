"""The models of tools, resources and prompts."""

from functools import cache, cached_property
from typing import Annotated, Final, Literal, Self

from pydantic import Discriminator, Field, PlainValidator, Tag, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.apps import App
from gateway.config.models.backends import Argv, Http, Python, Shell, Sql, SqlCompletion
from gateway.config.models.base import (
    ONE_OR_MANY,
    Flag,
    Items,
    Model,
    PositiveCount,
    Template,
    defaults_of,
    exactly_one,
    misplaced,
    not_together,
    text_for,
)
from gateway.config.models.content import Blocks
from gateway.config.models.definition_keys import ContentAnnotations, Definition, Output
from gateway.config.models.field_use import Use
from gateway.config.models.json_schema import SchemaObject, interpolated_schema
from gateway.config.models.quantities import PositiveDuration, PositiveSize
from gateway.config.models.tasks import WrittenToolTask
from gateway.config.models.tool_tests import ToolTest
from gateway.json_types import Json

TYPE_WORDS: Final = ("string", "integer", "number", "boolean", "object", "array", "file")


BACKEND: Final = object()
"""Marks the fields of a tool or resource of which exactly one is given: how its work is done."""


def backend_of(config: Model) -> str:
    """The one backend that a definition has.

    Raises:
        PydanticCustomError: it has none, or more than one.
    """
    return exactly_one(config, of=backends_of(type(config)), what="a backend")


@cache
def backends_of(model: type[Model]) -> tuple[str, ...]:
    """The backends that a kind of definition may have, in the order of its fields."""
    return tuple(name for name, field in model.model_fields.items() if BACKEND in field.metadata)


class ToolAnnotations(Model):
    """Hints for the client: what calling the tool may do."""

    title: str | None = None
    """A name for people; `title` of the tool is preferred."""
    read_only: Flag | None = None
    """It changes nothing."""
    destructive: Flag | None = None
    """It may destroy something; meaningful only where it is not read-only."""
    idempotent: Flag | None = None
    """Calling it again with the same arguments changes nothing more."""
    open_world: Flag | None = None
    """It reaches beyond this system."""


def _word_or_schema(value: Json) -> str | dict[str, Json]:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, dict):
        schema: dict[str, Json] = interpolated_schema(value)
        return schema
    raise PydanticCustomError("input_property", "expected a type such as string or integer?, or a JSON Schema")


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
                        "required": {"type": ["boolean", "array"], "description": "false: may be left out."},
                        "within": {"type": "string", "description": "A directory under which the path must lie."},
                        "max_size": {
                            "type": ["string", "number"],
                            "description": "With `type: file`: the most that the file may have, such as 5MiB.",
                        },
                        "media_types": {
                            "type": "array",
                            "items": {"type": "string"},
                            "description": "With `type: file`: what it may be, such as image/* or application/pdf.",
                        },
                    },
                },
            ]
        }
    ),
]
"""A type word (`string?` is optional), or a JSON Schema with our `required` and `within` beside its own keys."""


class Tool(Definition):
    """Something that a model can call."""

    annotations: Annotated[ToolAnnotations | None, Use.DESCRIPTION] = None
    """What calling it may do."""
    input: Annotated[dict[str, InputProperty] | None, Use.DESCRIPTION] = None
    """Short form: name → type word or JSON Schema. Required unless it has a default or says otherwise."""
    input_schema: Annotated[SchemaObject | None, Use.DESCRIPTION] = None
    """Long form: a JSON Schema object, sent to clients verbatim."""
    shell: Annotated[Shell | None, BACKEND] = None
    """Backend: a child process."""
    http: Annotated[Http | None, BACKEND] = None
    """Backend: an HTTP request."""
    sql: Annotated[Sql | None, BACKEND] = None
    """Backend: a query of a database."""
    python: Annotated[Python | None, BACKEND] = None
    """Backend: a Python function, `module:callable`."""
    content: Annotated[Blocks | None, Use.BODY, BACKEND] = None
    """Backend: a fixed answer, with templates."""
    is_error: Flag = False
    """With `content`: the fixed answer is an error."""
    output: Output | None = None
    """The shape of the result."""
    confirm: Annotated[Template | None, Use.BODY] = None
    """A question put to the user before the tool runs."""
    confirm_fallback: Literal["deny", "allow"] = "deny"
    """What happens where the client cannot ask."""
    ask_timeout: PositiveDuration | None = None
    """How long the question may stay open. Default 10m."""
    coerce: Flag | None = None
    """Accept a string that is exactly JSON of the wanted type as a value of that type, and null for what may be left
    out."""
    task: WrittenToolTask | None = None
    """Whether a call becomes a task, which outlives its request: `never` (default), `optional` or `required`."""
    app: App | None = None
    """A page that hosts show for the result (MCP Apps)."""
    tests: Annotated[Items[ToolTest], Use.SECRET] = Field(
        (), repr=False
    )  # what is tested does not change what is served
    """Calls that `mcp-gateway test` makes; not sent to clients."""

    @cached_property
    def backend(self) -> str:
        return backend_of(self)

    @property
    def hints(self) -> ToolAnnotations | None:
        """`annotations`, with what follows from the backend: a query is read-only unless it says `writes`."""
        if self.sql is None or (self.annotations is not None and self.annotations.read_only is not None):
            return self.annotations
        said = self.annotations or defaults_of(ToolAnnotations)
        return said.model_copy(update={"read_only": not self.sql.writes})

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.sql is not None and self.sql.writes and self.annotations is not None and self.annotations.read_only:
            message = "says `read_only: true`, and its `sql` says `writes: true`"
            raise PydanticCustomError("read_only_writes", message, {"culprit": "annotations"})
        if self.backend != "content" and self.is_error:
            raise misplaced("is_error", goes_with="content")
        if self.confirm is None and "confirm_fallback" in self.model_fields_set:
            raise misplaced("confirm_fallback", goes_with="confirm")
        not_together(self, "input", "input_schema")
        if self.http is None and any(test.http is not None for test in self.tests):
            message = "has tests with `http`, which stands in for the server of an `http` backend; this is {backend}"
            raise PydanticCustomError("stand_in", message, {"backend": self.backend, "culprit": "tests"})
        return self


class CommandCompletion(Model):
    """The source of the values for an argument; exactly one of the keys."""

    command: Argv | None = None
    """A program; each line is a value. It may name `value`, what was typed so far, and other arguments. It is confined
    as the resource's own command is."""
    python: Python | None = None
    """A function that returns the values."""
    files: str | None = None
    """A glob; the paths under its root are the values."""
    sql: SqlCompletion | None = None
    """A query, whose first column has the values. It may name `:value`, what was typed so far, and other arguments."""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        exactly_one(self, of=("command", "python", "files", "sql"), what="a source")
        return self


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
"""Fixed values, or where they come from."""


class Resource(Definition):
    """One resource, one resource template, or with `files` one resource for each file."""

    uri: Annotated[Template | None, Use.NAME] = None
    """Its URI, or with variables in it (`incident://{id}`, RFC 6570) a template."""
    files: Annotated[Annotated[list[str], ONE_OR_MANY] | None, BACKEND] = None
    """A glob, or a list of them with `root`: one resource for each file, always as it is on disk."""
    root: str | None = None
    """The directory of `files`; otherwise the part of the glob before its first wildcard."""
    max_files: PositiveCount = 10_000
    """The most files that are listed."""
    text: Annotated[Template | None, Use.BODY, BACKEND] = None
    """Backend: text, a template over the URI's variables."""
    blob: Annotated[str | None, Use.SHOWN, BACKEND] = None
    """Backend: bytes, base64."""
    file: Annotated[str | None, BACKEND] = None
    """Backend: one file; path relative to this file."""
    http: Annotated[Http | None, BACKEND] = None
    """Backend: an HTTP request."""
    sql: Annotated[Sql | None, BACKEND] = None
    """Backend: a query of a database."""
    shell: Annotated[Shell | None, BACKEND] = None
    """Backend: a child process."""
    python: Annotated[Python | None, BACKEND] = None
    """Backend: a Python function, `module:callable`."""
    mime_type: Annotated[str | None, Use.SHOWN] = None
    """Media type; without it the file's name or the backend decides."""
    annotations: Annotated[ContentAnnotations | None, Use.DESCRIPTION] = None
    """Hints for the client."""
    max_size: PositiveSize | None = None
    """The most that is read. Default 10MiB."""
    complete: dict[str, Completion] = {}
    """Suggestions for the variables of `uri`."""

    @cached_property
    def backend(self) -> str:
        return backend_of(self)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.backend != "files":
            if self.uri is None:
                raise PydanticCustomError("nothing_given", "needs `uri`")
            if self.root is not None:
                raise misplaced("root", goes_with="files")
            if "max_files" in self.model_fields_set:
                raise misplaced("max_files", goes_with="files")
        elif self.files is not None and len(self.files) != 1 and self.root is None:
            raise PydanticCustomError("nothing_given", "a list of globs needs `root`")
        return self


class PromptArgument(Model):
    """Something that the user fills in; always text."""

    title: str | None = None
    """A name for people."""
    description: str | None = None
    """What to fill in."""
    required: Flag = False
    """Whether it must be given."""
    default: str | None = None
    """What it is when it is not given."""
    complete: Annotated[Completion | None, Use.PLAIN] = None
    """Suggestions while the user types."""


class PromptMessage(Model):
    """One message; exactly one of the keys."""

    user: Annotated[Blocks, Field(min_length=1)] | None = None
    """What the user says: text, a content block, or a list of these."""
    assistant: Annotated[Blocks, Field(min_length=1)] | None = None
    """What the model says: text, a content block, or a list of these."""

    @property
    def role(self) -> str:
        return exactly_one(self, of=("user", "assistant"), what="a role")

    @property
    def blocks(self) -> Blocks:
        return self.user or self.assistant or []

    @model_validator(mode="after")
    def _has_one_role(self) -> Self:
        _ = self.role
        return self


class PromptHead(Definition):
    """A prompt without its text: what the front matter of a Markdown file may say."""

    arguments: Annotated[dict[str, Annotated[PromptArgument, text_for("description")]], Use.DESCRIPTION] = {}
    """Name → what is asked for; text alone is the description."""


class Prompt(PromptHead):
    """A conversation's beginning that the user chooses."""

    messages: Annotated[Annotated[list[PromptMessage], Field(min_length=1)] | None, Use.BODY] = None
    """The messages, with templates over the arguments."""
    python: Python | None = None
    """A function that returns the messages instead."""

    @property
    def backend(self) -> str:
        return exactly_one(self, of=("messages", "python"), what="a source")

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        _ = self.backend
        return self
