"""Content blocks as they are written in `content:`, in prompts, and nowhere else."""

from typing import Annotated, Self

from pydantic import BeforeValidator, model_validator

from gateway.config.base import Count, Model, Template, exactly_one, one_or_many
from gateway.config.definitions import ContentAnnotations
from gateway.json_types import Json


def _file_or_inline(value: Json) -> Json:
    return {"file": value} if isinstance(value, str) else value


def _uri_or_inline(value: Json) -> Json:
    return {"uri": value} if isinstance(value, str) else value


def text_as_block(value: Json) -> Json:
    """A bare string is a text block."""
    return {"text": value} if isinstance(value, str) else value


class Media(Model):
    """An image or audio: a file's path, or the bytes in base64."""

    file: str | None = None
    base64: str | None = None
    mime_type: str | None = None

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        exactly_one(self, of=("file", "base64"), what="a source")
        return self


class Embedded(Model):
    """A resource: read from this server when only `uri` is given, otherwise embedded as written."""

    uri: Template
    mime_type: str | None = None
    text: Template | None = None
    file: str | None = None
    base64: str | None = None

    @property
    def is_reference(self) -> bool:
        return not {"text", "file", "base64"} & self.model_fields_set

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if not self.is_reference:
            exactly_one(self, of=("text", "file", "base64"), what="a source")
        return self


class Link(Model):
    uri: Template
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: Count | None = None


class Block(Model):
    """One content block; exactly one of the first five keys."""

    text: Template | None = None
    image: Annotated[Media, BeforeValidator(_file_or_inline)] | None = None
    audio: Annotated[Media, BeforeValidator(_file_or_inline)] | None = None
    resource: Annotated[Embedded, BeforeValidator(_uri_or_inline)] | None = None
    link: Link | None = None
    annotations: ContentAnnotations | None = None

    @property
    def kind(self) -> str:
        return exactly_one(self, of=("text", "image", "audio", "resource", "link"), what="content")

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        _ = self.kind
        return self


Blocks = Annotated[list[Annotated[Block, BeforeValidator(text_as_block)]], BeforeValidator(one_or_many)]
"""A string, a block, or a list of these."""
