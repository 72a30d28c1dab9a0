"""The section `audit`, which stands in the main file alone."""

from typing import Literal

from gateway.config.models.base import Model, NotEmpty


class Audit(Model):
    """A log of who called what, and how it ended: JSON lines, appended to a file."""

    file: NotEmpty
    """Path, relative to this file. It is opened anew when it was moved away, and on SIGHUP."""
    arguments: Literal["digest", "full"] = "digest"
    """What is kept of arguments: a keyed digest, by which like calls are told, or all of them, secrets masked."""
