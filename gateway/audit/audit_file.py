"""Checks the path of the audit log. Creates nothing: `validate` may run as another user than the daemon."""

import os
from collections.abc import Iterable
from pathlib import Path

from gateway.config.diagnostics.problems import Problems
from gateway.config.fs_checks import exists, is_directory, is_file, is_unreadable
from gateway.config.loader import LoadedConfig
from gateway.config.models.audit import Audit


def audit_path(section: Audit, root: Path) -> Path:
    """Return the path of the file; a relative one begins at the directory of the main file."""
    return root / os.path.expanduser(section.file)  # noqa: PTH111 - Path.expanduser raises for a user that is not there


def check_audit_file(loaded: LoadedConfig, problems: Problems) -> None:
    """Report a path at which there can be no file. Whether the daemon may write it is known once it opens it."""
    if loaded.document.audit is None:
        return
    path = audit_path(loaded.document.audit, loaded.root)
    place = problems.at("audit", "file")
    if is_unreadable(path):
        return
    if not is_directory(path.parent):
        place.error(f"{path} cannot be written: there is no directory {path.parent}")
    elif exists(path) and not is_file(path):
        place.error(f"{path} cannot be written: it is {'a directory' if is_directory(path) else 'not a regular file'}")


def check_audit_is_apart(loaded: LoadedConfig, problems: Problems, *, reserved: Iterable[str]) -> None:
    """Refuse a log file that the daemon also reads, because the first record would break it.

    Args:
        loaded: the configuration.
        problems: takes the refusal.
        reserved: names of files beside the configuration that the daemon reads.
    """
    if loaded.document.audit is None:
        return
    path = audit_path(loaded.document.audit, loaded.root).resolve()
    if path in {file.resolve() for file in (*loaded.files, *(loaded.root / name for name in reserved))}:
        problems.at("audit", "file").error("belongs to the configuration; the log needs a file of its own")
