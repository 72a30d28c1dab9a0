"""The keys of an input that is a file: what stands beside `type: file`."""

from typing import Annotated

from gateway.config.models.base import Model, PositiveSize, matching

MediaRange = Annotated[
    str,
    matching(r"\*/\*|[A-Za-z0-9!#$&^_.+-]+/(\*|[A-Za-z0-9!#$&^_.+-]+)", "a media type such as image/png, or image/*"),
]
"""A media type, or all that begin alike (RFC 9110 §12.5.1), without parameters."""


class FileInput(Model):
    """An input that is a file: base64 or a `data:` URI to models, bytes to backends."""

    max_size: PositiveSize | None = None
    """The most that the file may have. Default: whatever fits into a message (`listen.max_body`)."""
    media_types: list[MediaRange] = []
    """What it may be, such as image/* or application/pdf. Default: anything."""
