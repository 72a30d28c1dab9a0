"""The signing keys that all workers have, from their supervisor: the state directory is for one process at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from gateway.config.settings import Settings, variable_of
from gateway.state.keys import SigningKeys, own_keys, warn_of_unshared
from gateway.state.state import StateDirectory, directory_of

log: Final = structlog.get_logger()


@contextmanager
def shared_keys(settings: Settings) -> Iterator[SigningKeys | None]:
    """Have the keys of the state directory, locked for the context; None where the settings have keys, for each worker.

    Raises:
        ConfigError: those of the settings cannot be read.
    """
    if settings.signing_keys():
        yield None
        return
    # The workers' own directories lie below this one, and are locked by each of them.
    with StateDirectory(directory_of(settings.state_dir, config=settings.config, environ=os.environ)) as directory:
        if directory.problem:
            log.warning("signing keys not written; they are kept in memory", reason=directory.problem)
        warn_of_unshared(variable=variable_of("secret_key"))
        yield own_keys(directory.path)
