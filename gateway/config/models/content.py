"""Content blocks of `content:` and of prompts."""

from typing import Annotated, Final, Self

from pydantic import model_validator

from gateway.config.models.base import ONE_OR_MANY, Count, Model, Template, exactly_one, given_keys, one_of, text_for
from gateway.config.models.definition_keys import ContentAnnotations


class Media(Model):
    """An image or audio clip: the path of a file, or base64 data."""

    file: str | None = None
    """Path of the file. Relative to this file."""
    base64: str | None = None
    """The data in base64."""
    mime_type: str | None = None
    """Media type. Default: from the file name."""

    _check_one_source = one_of("file", "base64", what="a source")


class Embedded(Model):
    """A resource. With only `uri`, the content is read from this server. Otherwise, the given content is embedded."""

    uri: Template
    """URI of the resource. In prompts, an RFC 6570 template over the arguments: `runbooks:///{service}.md`."""
    mime_type: str | None = None
    """Media type of the embedded content."""
    text: Template | None = None
    """Text to embed."""
    file: str | None = None
    """File to embed. The path is relative to this file."""
    base64: str | None = None
    """Data to embed, in base64."""

    @property
    def is_reference(self) -> bool:
        return self.text is None and self.file is None and self.base64 is None

    @model_validator(mode="after")
    def _check_one_source(self) -> Self:
        if not self.is_reference:
            exactly_one(self, of=("text", "file", "base64"), what="a source")
        return self


class Link(Model):
    """A resource that the client can read, even if the resource is not listed."""

    uri: Template
    """URI of the resource."""
    name: str
    """Name of the resource."""
    title: str | None = None
    """Display name."""
    description: str | None = None
    """Description of the resource."""
    mime_type: str | None = None
    """Media type."""
    size: Count | None = None
    """Size in bytes."""


_KINDS: Final = ("text", "image", "audio", "resource", "link")


class Block(Model):
    """A content block. Exactly one of `text`, `image`, `audio`, `resource` and `link` is required."""

    text: Template | None = None
    """A text template."""
    image: Annotated[Media, text_for("file")] | None = None
    """An image: the path of a file, or a mapping."""
    audio: Annotated[Media, text_for("file")] | None = None
    """An audio clip: the path of a file, or a mapping."""
    resource: Annotated[Embedded, text_for("uri")] | None = None
    """A resource: the URI of a resource on this server, or an embedded resource."""
    link: Link | None = None
    """A link to a resource."""
    annotations: ContentAnnotations | None = None
    """Hints for the client."""

    @property
    def kind(self) -> str:
        return given_keys(self, _KINDS)[0]

    _check_one_kind = one_of(*_KINDS, what="content")


Blocks = Annotated[list[Annotated[Block, text_for("text")]], ONE_OR_MANY]
"""A string, a block, or a list of these."""
