"""The state directory, its database, and the connection to the shared store."""

import asyncio
import fcntl
import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, Self

import structlog

from gateway.config.settings import NO_STATE, variable_of
from gateway.errors import ConfigError
from gateway.json_types import Json
from gateway.state.database import StateDatabase
from gateway.state.encrypted_store import ENCRYPTED, EncryptedStore
from gateway.state.keys import KEY_FILE, SigningKeys, kept_keys, own_keys
from gateway.state.replica import Replica
from gateway.state.session_store import SessionStore
from gateway.state.sqlite_stores import (
    DOCUMENTS,
    OUTPUTS,
    SESSIONS,
    SqliteDocumentStore,
    SqliteOutputs,
    SqliteSessionStore,
)
from gateway.state.used_request_states import USED_STATES, UsedStates

log: Final = structlog.get_logger(__name__)


def compare_keys(replica: Replica, keys: SigningKeys) -> None:
    """Warn if the replica that last connected to the store has none of this replica's signing keys."""

    async def compare() -> None:
        own = [hashlib.sha256(b"signing key " + key).hexdigest()[:16] for key in keys()]
        before = await replica.store.command("GETSET", f"{replica.store.prefix}signing-keys", " ".join(own))
        if before is not None and set(before.decode().split()).isdisjoint(own):
            log.warning(
                "store is shared with a gateway that has different signing keys",
                advice="use the same keys for all replicas, and a different `prefix` in the URL for each gateway",
            )

    replica.store.on_return(compare)


DATABASE: Final = "state.sqlite"
SECRETS: Final = "secrets.sqlite"
_LOCK: Final = "lock"
_MODE: Final = 0o700


def directory_of(given: str | None, *, config: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the state directory, or None to keep state in memory. The first of these that is set applies.

    1. `--state-dir` or `MCP_GATEWAY_STATE_DIR`
    2. the first directory in $STATE_DIRECTORY (systemd.exec(5), `StateDirectory=`)
    3. a directory for each configuration file below $XDG_STATE_HOME (relative paths are ignored)
    """
    if given is not None:
        return None if given == NO_STATE else Path(given).absolute()
    if by_systemd := environ.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(by_systemd)
    home = Path(environ.get("XDG_STATE_HOME", ""))
    if not home.is_absolute():
        try:
            home = Path("~/.local/state").expanduser()
        except RuntimeError:  # The user has no home directory.
            return None
    path = config.absolute()
    # The digest distinguishes files of the same name.
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    return home / "mcp-gateway" / f"{path.stem}-{digest}"


class StateDirectory:
    """Creates and locks the state directory in a `with` block."""

    def __init__(self, wanted: Path | None) -> None:
        self.wanted: Final = wanted
        self.path: Path | None = None
        """The directory once it is locked, otherwise None."""
        self.problem = ""
        """The reason why the wanted directory cannot be used. Empty without a problem."""
        self.is_in_use = False
        """Whether another daemon has locked the directory."""
        self._lock: int | None = None

    def __enter__(self) -> Self:
        if self.wanted is not None:
            try:
                self._take(self.wanted)
            except BlockingIOError:
                self.problem, self.is_in_use = f"{self.wanted} is in use by another daemon", True
            except OSError as error:
                self.problem = f"{error.filename or self.wanted}: {error.strerror}"
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def _take(self, wanted: Path) -> None:
        wanted.mkdir(mode=_MODE, parents=True, exist_ok=True)
        # mkdir() keeps the mode of an existing directory. Only the owner must be able to read the keys.
        if wanted.stat().st_mode & 0o077:
            wanted.chmod(_MODE)
        lock = os.open(wanted / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # Do not use flock(), because forked child processes (multiprocessing) would keep the lock.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(lock)
            raise
        self._lock, self.path = lock, wanted


@asynccontextmanager
async def opened_secrets(directory: Path, keys: SigningKeys | None) -> AsyncIterator[EncryptedStore]:
    """Open the encrypted store of a state directory, even while a daemon uses this directory.

    Raise ConfigError if the store cannot be opened or written.
    """
    place = variable_of("state_dir")
    try:
        await asyncio.to_thread(directory.mkdir, mode=_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError.at(place, f"{directory} cannot be used: {error.strerror}") from error
    async with StateDatabase(directory / SECRETS, (ENCRYPTED,)) as database:
        if not database.is_durable:
            raise ConfigError.at(place, f"cannot be used: {database.connection.problem}")
        yield EncryptedStore(database, keys=keys or kept_keys(directory / KEY_FILE), clock=time.time)
        if not database.is_durable:
            raise ConfigError.at(place, f"cannot be used, so nothing was stored: {database.connection.problem}")


class DaemonState:
    """The state directory and its stores. Without a directory, the stores are in memory."""

    def __init__(  # noqa: PLR0913 - the inputs of the state
        self,
        wanted: Path | None,
        *,
        keys: SigningKeys | None = None,
        tables: Sequence[str] = (),
        store: str | None = None,
        shared_directory: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Use the state directory `wanted`, or memory if `wanted` is None.

        `keys` replace the signing keys in the directory. `store` is the URL of the store that replicas share. Encrypted
        secrets are in `shared_directory`, which all workers of a daemon use. `clock` returns Unix
        times.
        """
        self._given_keys: Final = keys
        self._directory: Final = StateDirectory(wanted)
        self._tables: Final = (DOCUMENTS, SESSIONS, USED_STATES, OUTPUTS, *tables)
        self._stack: Final = AsyncExitStack()
        self.clock: Final = clock
        self._store: Final = store
        self._shared_directory: Final = shared_directory
        self.replica: Replica | None = None
        self.keys: SigningKeys
        self.database: StateDatabase
        self.documents: SqliteDocumentStore
        self.sessions: SessionStore
        self.used_states: UsedStates
        self.outputs: SqliteOutputs
        self.encrypted: EncryptedStore

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            directory = stack.enter_context(self._directory)
            if directory.problem:
                log.warning("state is not written; it is kept in memory", problem=directory.problem)
            self.keys = self._given_keys or own_keys(directory.path)
            path = None if directory.path is None else directory.path / DATABASE
            self.database = await stack.enter_async_context(
                StateDatabase(path, self._tables, why_memory=directory.problem)
            )
            self.documents = SqliteDocumentStore(self.database, clock=self.clock)
            self.sessions = SqliteSessionStore(self.database, clock=self.clock)
            self.outputs = SqliteOutputs(self.database)
            if self._store is not None:
                self.replica = await stack.enter_async_context(Replica(self._store, clock=self.clock))
                compare_keys(self.replica, self.keys)
                self.sessions = self.replica.sessions
            shared = None if self.replica is None else self.replica.store
            self.used_states = UsedStates(self.database, clock=self.clock, shared=shared)
            await self.used_states.load()
            # Use a separate file for secrets, because several workers and daemons open this file at the same time.
            is_usable = directory.path is not None or directory.is_in_use
            folder = (self._shared_directory or directory.wanted) if is_usable else None
            place, reason = (None, directory.problem) if folder is None else (folder / SECRETS, "")
            secrets = await stack.enter_async_context(StateDatabase(place, (ENCRYPTED,), why_memory=reason))
            keys = self._given_keys or own_keys(folder) if directory.is_in_use else self.keys
            self.encrypted = EncryptedStore(secrets, keys=keys, clock=self.clock, shared=shared)
            # Do this last, so that `stack` undoes all steps if one step fails.
            self._stack.push_async_callback(stack.pop_all().aclose)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def is_owner(self) -> bool:
        """Whether the directory belongs to this daemon. False if another daemon has locked it."""
        return not self._directory.is_in_use

    @property
    def warnings(self) -> list[str]:
        return [self.replica.store.problem] if self.replica is not None and self.replica.store.problem else []

    def status(self) -> dict[str, Json]:
        directory = self._directory.path
        shared = {} if self.replica is None else {"shared": self.replica.status()}
        return {"directory": None if directory is None else str(directory), **self.database.status(), **shared}
