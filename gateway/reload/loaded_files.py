"""The files of a loaded configuration: the plan to watch them, and one digest of all."""

import hashlib
from pathlib import Path

from gateway.catalog.file_dependencies import FileDependencies
from gateway.catalog.lockfile.lock import LOCK_NAME
from gateway.config.loader import LoadedConfig
from gateway.reload.watch_plan import WatchPlan


def watch_loaded(config: LoadedConfig) -> WatchPlan:
    """Plan to watch what was read."""
    return WatchPlan(
        files=frozenset(config.files),
        directories=config.directories,
        patterns=frozenset(config.globs),
        trees=config.trees,
        present=frozenset(path for path, digest in config.files.items() if digest),
    )


def watch_dependencies(root: Path, dependencies: FileDependencies) -> WatchPlan:
    """Plan to watch what was compiled in beside that, and the lock."""
    return WatchPlan(
        files=frozenset({*dependencies.files, root / LOCK_NAME}),
        trees=frozenset(dependencies.trees),
        globs=frozenset(dependencies.globs),
        present=frozenset({*dependencies.trees, *(Path(globs.root) for globs in dependencies.globs)}),
    )


def digest_of(config: LoadedConfig) -> str:
    """Hash all files, whatever their names, and what other sources offer; equal where the same definitions were read.

    A secret is not in it: its own digest has a key that each process draws for itself, and would differ.
    """
    written = (digest for path, digest in config.files.items() if path not in config.secret_files)
    return hashlib.sha256("".join([*written, *config.fingerprints]).encode()).hexdigest()
