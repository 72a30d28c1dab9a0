"""Content blocks as they are written in `content:`, in prompts, and nowhere else."""

from typing import Annotated, Self

from pydantic import model_validator

from gateway.config.models.base import ONE_OR_MANY, Count, Model, Template, exactly_one, text_for
from gateway.config.models.definition_keys import ContentAnnotations


class Media(Model):
    """An image or audio: a file's path, or the bytes in base64."""

    file: str | None = None
    """Path, relative to this file."""
    base64: str | None = None
    """The bytes themselves."""
    mime_type: str | None = None
    """Media type; without it the file's name decides."""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        exactly_one(self, of=("file", "base64"), what="a source")
        return self


class Embedded(Model):
    """A resource: read from this server when only `uri` is given, otherwise embedded as written."""

    uri: Template
    """In prompts RFC 6570 over the arguments: `runbooks:///{service}.md`."""
    mime_type: str | None = None
    """Media type of what is embedded."""
    text: Template | None = None
    """Text to embed."""
    file: str | None = None
    """A file to embed; path relative to this file."""
    base64: str | None = None
    """Bytes to embed."""

    @property
    def is_reference(self) -> bool:
        return self.text is None and self.file is None and self.base64 is None

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if not self.is_reference:
            exactly_one(self, of=("text", "file", "base64"), what="a source")
        return self


class Link(Model):
    """A resource that the client may read; it need not be listed."""

    uri: Template
    """Where it is."""
    name: str
    """What it is called."""
    title: str | None = None
    """A name for people."""
    description: str | None = None
    """What is in it."""
    mime_type: str | None = None
    """Media type."""
    size: Count | None = None
    """Bytes."""


class Block(Model):
    """One content block; exactly one of the first five keys."""

    text: Template | None = None
    """Text, a template."""
    image: Annotated[Media, text_for("file")] | None = None
    """An image: a file's path, or a mapping."""
    audio: Annotated[Media, text_for("file")] | None = None
    """Audio: a file's path, or a mapping."""
    resource: Annotated[Embedded, text_for("uri")] | None = None
    """A resource of this server by its URI, or one that is written here."""
    link: Link | None = None
    """A link to a resource."""
    annotations: ContentAnnotations | None = None
    """Hints for the client."""

    @property
    def kind(self) -> str:
        return exactly_one(self, of=("text", "image", "audio", "resource", "link"), what="content")

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        _ = self.kind
        return self


Blocks = Annotated[list[Annotated[Block, text_for("text")]], ONE_OR_MANY]
"""A string, a block, or a list of these."""
