"""Where the audit log is to be. Looks, and makes nothing: whoever checks a file may not be who serves it."""

import os
from pathlib import Path

from gateway.catalog.lock import LOCK_NAME
from gateway.config.audit import Audit
from gateway.config.loader import LoadedConfig
from gateway.config.path_kinds import exists, is_closed, is_directory, is_file
from gateway.config.problems import Problems


def audit_path(section: Audit, root: Path) -> Path:
    """The file, relative to the directory of the main file."""
    return root / os.path.expanduser(section.file)  # noqa: PTH111 - Path.expanduser raises for a user that is not there


def check_audit_file(loaded: LoadedConfig, problems: Problems) -> None:
    """Report an audit log that has no place to be; whether the daemon may write there shows when it opens it."""
    if loaded.document.audit is None:
        return
    path = audit_path(loaded.document.audit, loaded.root)
    place = problems.at("audit", "file")
    if is_closed(path):
        return
    if not is_directory(path.parent):
        place.error(f"{path} cannot be written: there is no directory {path.parent}")
    elif exists(path) and not is_file(path):
        place.error(f"{path} cannot be written: it is {'a directory' if is_directory(path) else 'not a regular file'}")


def check_audit_is_apart(loaded: LoadedConfig, problems: Problems) -> None:
    """Refuse a log that would be written into what the daemon reads, which its first record would break."""
    if loaded.document.audit is None:
        return
    path = audit_path(loaded.document.audit, loaded.root).resolve()
    if path in {file.resolve() for file in (*loaded.files, loaded.root / LOCK_NAME)}:
        problems.at("audit", "file").error("belongs to the configuration; the log needs a file of its own")
