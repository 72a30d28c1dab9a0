"""Confines paths from callers to one directory: `within:`.

Threats: `..` segments, absolute paths elsewhere, symbolic links out of the directory, NUL. Relative paths are rejected,
because their meaning depends on the program.

Links are resolved before the backend opens the path, so anyone who can write to the directory can still add a link in
between. A `sandbox` with `readable` prevents that.
"""

import os
from pathlib import Path

import msgspec

from gateway.json_types import Json
from gateway.language.schemas.errors import shown


class Confinement(msgspec.Struct, frozen=True):
    root: Path
    place: str
    """The directory, with links resolved at load."""

    def refusal(self, value: Json) -> str | None:
        """Return why a path or a list of paths is not allowed, or None if it is allowed."""
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
            # Compared by segments: `/srv/data` does not contain `/srv/data-old`.
            return Path(os.path.realpath(path)).is_relative_to(self.place)
        except (OSError, ValueError):  # ValueError: a lone surrogate, for example
            return False
