"""The keys that sign what clients carry for us: cursors, request states, session ids. Newest first.

The newest signs; all are accepted, so that keys rotate: a new one is put before the old one, and the old one is taken
away when what it signed has expired. A file of keys is read again when it changes, as secret managers swap it.
"""

import base64
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec
import structlog
from itsdangerous import Signer

from gateway.config.settings import MIN_KEY_LENGTH, keys_in

log: Final = structlog.get_logger()

T = TypeVar("T")

KEYS: Final = "signing-keys"
"""The file of the state directory."""
_BYTES: Final = 32
_LOOK_SECONDS: Final = 1.0
"""How often a file is looked at, at the most."""


class SigningKeys:
    """The keys as they are now. Calling it returns them; the tuple is the same one until they change."""

    def __init__(self, keys: Sequence[bytes], *, file: Path | None = None, is_written: bool = True) -> None:
        """Hold keys, of which there is one at least, and look for newer ones in their file, once it is written."""
        self._keys = tuple(keys)
        self.file: Final = file
        self._is_written = is_written
        # Of none yet, so that the first look reads the file: it may have changed since it was read.
        self._stamp: tuple[int, ...] | None = None
        self._looked_at = time.monotonic()

    def __call__(self) -> tuple[bytes, ...]:
        if self.file is not None and time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = time.monotonic()
            self._look(self.file)
        return self._keys

    def _look(self, file: Path) -> None:
        """Read the file if it has changed; what cannot be read, or has no keys, changes nothing."""
        stamp = _stamp(file)
        if stamp is None and not self._is_written:
            self._write_late(file)
        if stamp is None or stamp == self._stamp:
            return
        # Taken before the file is read: if it is changed in between, the next look finds another stamp.
        self._stamp = stamp
        try:
            keys = keys_in(file.read_bytes())
        except OSError as error:
            log.warning("signing keys not read again", file=str(file), reason=error.strerror)
            return
        if keys and keys != self._keys:
            self._keys = keys
            log.info("signing keys read again", file=str(file), keys=len(keys))
            warn_of_short(keys, file=str(file))

    def _write_late(self, file: Path) -> None:
        """Write what could not be written at first. Once only: who deletes the file later wants another key."""
        with suppress(OSError):
            _write(file, self._keys[0] + b"\n")
            self._is_written = True
            log.info("signing keys written", file=str(file))


class FromKeys(Generic[T]):
    """Something that is made of the keys, and made again when they change."""

    def __init__(self, keys: SigningKeys, make: Callable[[tuple[bytes, ...]], T]) -> None:
        self._keys: Final = keys
        self._make: Final = make
        self._used = keys()
        self._made = make(self._used)

    def __call__(self) -> T:
        keys = self._keys()
        if keys is not self._used:
            self._used, self._made = keys, self._make(keys)
        return self._made


def warn_of_short(keys: Sequence[bytes], **place: str) -> None:
    """Warn of a key that can be guessed; `place` says where it came from."""
    if any(len(key) < MIN_KEY_LENGTH for key in keys):
        log.warning("the signing key can be guessed", **place, shortest=MIN_KEY_LENGTH)


def warn_of_unshared(**place: str) -> None:
    """Warn of a key that replicas elsewhere cannot have; `place` says where one is given that all have."""
    # No reason to refuse: one machine needs no more, and what another key signed is unknown here, never trusted.
    log.warning("replicas on other machines need the same signing key", **place)


def random_keys() -> SigningKeys:
    """A key that nobody else has, and that ends with the process."""
    return SigningKeys([_new_key()])


def own_keys(directory: Path | None) -> SigningKeys:
    """Return the keys of a state directory; without one, or as long as it cannot keep them, one of this process."""
    if directory is None:
        return random_keys()
    try:
        return kept_keys(directory / KEYS)
    except OSError as error:
        log.warning("signing keys not written; they are kept in memory", reason=str(error))
        return SigningKeys([_new_key()], file=directory / KEYS, is_written=False)


def kept_keys(file: Path) -> SigningKeys:
    """Return the keys of a file, which is made with a new one where it is not there or has none.

    Raises:
        OSError: it cannot be read or written.
    """
    try:
        keys = keys_in(file.read_bytes())
    except FileNotFoundError:
        keys = ()
    if not keys:
        keys = (_new_key(),)
        _write(file, keys[0] + b"\n")
    return SigningKeys(keys, file=file)


def _new_key() -> bytes:
    return secrets.token_urlsafe(_BYTES).encode()


def _write(file: Path, content: bytes) -> None:
    """Write all of it or nothing: half a key would be another one after the next start."""
    # Renamed into place: readers see the old file or the whole new one (rename(2)).
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    # open(2): O_EXCL follows no symbolic link, and the mode holds before the first byte is written.
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as writing:  # noqa: PTH123 - of a descriptor
        writing.write(content)
        writing.flush()
        # Before the rename: else a crash may leave the new name with nothing in it.
        os.fsync(descriptor)
    new.replace(file)


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


class SignedTokens(Generic[T]):
    """Tokens in visible ASCII that carry a struct. Those of one purpose are good for no other."""

    def __init__(self, keys: SigningKeys, kind: type[T], *, purpose: str) -> None:
        def signer(key: bytes) -> Signer:
            return Signer(key, salt=purpose, key_derivation="hmac", digest_method=hashlib.sha256)

        self._signers: Final = FromKeys(keys, lambda newest_first: [*map(signer, newest_first)])
        self._decoder: Final = msgspec.json.Decoder(kind)

    def sign(self, content: T) -> str:
        """Make a token, with the newest key."""
        return self._signers()[0].sign(base64.urlsafe_b64encode(msgspec.json.encode(content)).rstrip(b"=")).decode()

    def read(self, token: str) -> T | None:
        """Return the content of a token; None if it is none of ours."""
        if not token.isascii():
            return None
        given = token.encode()
        content = given.rpartition(b".")[0]
        # Signed anew and compared whole: `unsign` reads base64 leniently, and would take several spellings of a token.
        if not any(hmac.compare_digest(signer.sign(content), given) for signer in self._signers()):
            return None
        try:
            return self._decoder.decode(base64.urlsafe_b64decode(content + b"=" * (-len(content) % 4)))
        except msgspec.DecodeError:  # of another version of the gateway
            return None
