"""Keeps a path that a caller gives under one directory: `within:`.

Threats answered: `..` segments, absolute paths elsewhere, symbolic links that lead out, NUL. The path must be absolute,
since what a relative one means depends on who opens it, and it reaches the backend as it was given. Links are resolved
when the call is made, and the backend opens the path later: who may write in the directory can put a link there in
between. Where the directory itself lies is settled when the file is read: a link that is put in its place later leads
out. A `sandbox` that shows a command this directory alone (`readable`) holds it there whatever changes.
"""

import os
from pathlib import Path

import msgspec

from gateway.json_types import Json
from gateway.language.schemas.errors import shown


class Confinement(msgspec.Struct, frozen=True):
    """One directory that values must lie under."""

    root: Path
    place: str
    """Where it lay, without links, when the file was read."""

    def refusal(self, value: Json) -> str | None:
        """Say why `value` is not allowed: a path, or a list of paths. None if it is; null is."""
        match value:
            case str():
                return (
                    None if self._admits(value) else f"must be an absolute path under {self.root}, was {shown(value)}"
                )
            case list():
                return next((refusal for item in value if (refusal := self.refusal(item))), None)
            case None:
                return None
            case _:
                return f"must be a path, was {shown(value)}"

    def _admits(self, path: str) -> bool:
        if "\0" in path or not path.startswith("/"):
            return False
        try:
            # Compared by segments: `/srv/data-old` begins with `/srv/data`, and does not lie under it.
            return Path(os.path.realpath(path)).is_relative_to(self.place)
        except (OSError, ValueError):  # ValueError: text that is no file name, such as a lone surrogate
            return False
