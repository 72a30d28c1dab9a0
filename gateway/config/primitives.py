"""Tools, resources and prompts as they are written."""

from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.backends import Argv, Http, Python, Shell
from gateway.config.base import Flag, Model, PositiveCount, Size, Template, exactly_one, one_or_many, unsupported
from gateway.config.content import Blocks
from gateway.config.definitions import ContentAnnotations, Definition, Output
from gateway.json_types import Json

TOOL_BACKENDS: Final = ("shell", "http", "python", "content")
RESOURCE_BACKENDS: Final = ("files", "text", "blob", "file", "http", "shell", "python")


class ToolAnnotations(Model):
    title: str | None = None
    read_only: Flag | None = None
    destructive: Flag | None = None
    idempotent: Flag | None = None
    open_world: Flag | None = None


InputProperty = str | dict[str, Json]
"""A type word (`string?` is optional), or a JSON Schema with our `required` and `within` beside its own keys."""


class Tool(Definition):
    annotations: ToolAnnotations | None = None
    input: dict[str, InputProperty] | None = None
    """Short form: name → type word or JSON Schema. Required unless it has a default or says otherwise."""
    input_schema: dict[str, Json] | None = None
    """Long form: a JSON Schema object, sent to clients verbatim."""
    shell: Shell | None = None
    http: Http | None = None
    python: Python | None = None
    content: Blocks | None = None
    is_error: Flag = False
    """With `content`: the fixed answer is an error."""
    output: Output | None = None
    confirm: Annotated[Template | None, BeforeValidator(unsupported)] = None
    """A question put to the user before the tool runs."""
    confirm_fallback: Annotated[Literal["deny", "allow"], BeforeValidator(unsupported)] = "deny"
    coerce: Flag | None = None
    """Take a string that is exactly the JSON of the wanted type as that."""

    @property
    def backend(self) -> str:
        return exactly_one(self, of=TOOL_BACKENDS, what="a backend")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.backend != "content" and self.is_error:
            raise PydanticCustomError("is_error", "`is_error` goes with `content`")
        if {"input", "input_schema"} <= self.model_fields_set:
            raise PydanticCustomError("two_inputs", "has `input` and `input_schema`; only one can be given")
        return self


class CommandCompletion(Model):
    command: Argv | None = None
    python: Python | None = None
    files: str | None = None

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        exactly_one(self, of=("command", "python", "files"), what="a source")
        return self


def _list_or_source(value: Json) -> Json:
    return value if isinstance(value, list) else CommandCompletion.model_validate(value)


Completion = Annotated[list[str] | CommandCompletion, BeforeValidator(_list_or_source)]
"""Fixed values, or where they come from."""


class Resource(Definition):
    """One resource, one resource template, or with `files` one resource for each file."""

    uri: Template | None = None
    files: Annotated[list[str], BeforeValidator(one_or_many)] | None = None
    root: str | None = None
    """The directory of `files`; otherwise the part of the glob before its first wildcard."""
    max_files: PositiveCount = 10_000
    text: Template | None = None
    blob: str | None = None
    """Base64."""
    file: str | None = None
    http: Http | None = None
    shell: Shell | None = None
    python: Python | None = None
    mime_type: str | None = None
    annotations: ContentAnnotations | None = None
    max_size: Size | None = None
    complete: dict[str, Completion] = {}

    @property
    def backend(self) -> str:
        return exactly_one(self, of=RESOURCE_BACKENDS, what="a backend")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.backend != "files":
            if self.uri is None:
                raise PydanticCustomError("missing_uri", "needs `uri`")
            if self.root is not None:
                raise PydanticCustomError("root", "`root` goes with `files`")
        elif self.files is not None and len(self.files) != 1 and self.root is None:
            raise PydanticCustomError("missing_root", "a list of globs needs `root`")
        return self


def _described(value: Json) -> Json:
    return {"description": value} if isinstance(value, str) else value


class PromptArgument(Model):
    title: str | None = None
    description: str | None = None
    required: Flag = False
    default: str | None = None
    complete: Completion | None = None


class PromptMessage(Model):
    user: Blocks | None = None
    assistant: Blocks | None = None

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


class Prompt(Definition):
    arguments: dict[str, Annotated[PromptArgument, BeforeValidator(_described)]] = {}
    messages: Annotated[list[PromptMessage], Field(min_length=1)] | None = None
    python: Python | None = None

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        exactly_one(self, of=("messages", "python"), what="a source")
        return self
