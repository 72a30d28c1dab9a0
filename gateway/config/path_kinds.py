"""What lies at a path that somebody wrote into a file: total, where pathlib's own questions may raise.

They raise where a directory is closed to us, a name is too long or a path holds a NUL. To whoever asks, nothing that
could be used lies there, and there is a place in the file to say so.
"""

import os
from pathlib import Path


def is_file(path: str | Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - see above


def is_directory(path: str | Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - see above


def exists(path: str | Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - see above


def is_closed(path: Path) -> bool:
    """Whether we may not know: another user, such as the daemon's, may see more."""
    try:
        path.stat()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return False
