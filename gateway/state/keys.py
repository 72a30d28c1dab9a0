"""Signing keys for tokens that clients hold: cursors, request states and session ids.

The first key signs new tokens, and tokens of all keys are accepted. To rotate keys, insert a new key as the first key,
and remove the old key when its tokens have expired. Changed key files are read again.
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec
import structlog
from itsdangerous import Signer

from gateway.atomic_write import atomic_write
from gateway.config.settings import MIN_KEY_LENGTH, keys_in
from gateway.repeated_warnings import RepeatedWarning

log: Final = structlog.get_logger(__name__)

T = TypeVar("T")

KEY_FILE: Final = "signing-keys"
_BYTES: Final = 32
_CHECK_SECONDS: Final = 1.0


class SigningKeys:
    """The current signing keys. A call returns the same tuple until the keys change."""

    def __init__(self, keys: Sequence[bytes], *, file: Path | None = None, is_written: bool = True) -> None:
        self._keys = tuple(keys)
        self.file: Final = file
        self._is_written = is_written
        self._unreadable: Final = RepeatedWarning()
        self._looked_at = time.monotonic()

    def __call__(self) -> tuple[bytes, ...]:
        if self.file is not None and time.monotonic() - self._looked_at >= _CHECK_SECONDS:
            self._looked_at = time.monotonic()
            self._look(self.file)
        return self._keys

    def _look(self, file: Path) -> None:
        try:
            keys = keys_in(file.read_bytes())
        except FileNotFoundError:
            if not self._is_written:
                # Users can delete the file later, so write it only once.
                with suppress(OSError):
                    _write(file, self._keys[0])
                    self._is_written = True
                    log.info("signing keys written", file=str(file))
            return
        except OSError as error:
            if self._unreadable.is_due():
                log.warning("signing keys not reloaded", file=str(file), reason=error.strerror)
            return
        self._unreadable.reset()
        if keys and keys != self._keys:
            self._keys = keys
            log.info("signing keys reloaded", file=str(file), keys=len(keys))
            warn_of_short(keys, file=str(file))


def from_keys(keys: SigningKeys, make: Callable[[tuple[bytes, ...]], T]) -> Callable[[], T]:
    """Return a function that returns `make(keys())`, but calls `make` again only after the keys have changed."""
    derived = lru_cache(maxsize=1)(make)
    return lambda: derived(keys())


def warn_of_short(keys: Sequence[bytes], **setting: str) -> None:
    if any(len(key) < MIN_KEY_LENGTH for key in keys):
        log.warning("the signing key is too short", **setting, shortest=MIN_KEY_LENGTH)


def warn_of_unshared(**setting: str) -> None:
    """Warn that other replicas need the same signing key. The keyword argument names the setting for the key."""
    # Only a warning: a single machine needs no shared key, and unknown signatures are never trusted.
    log.warning("replicas on other machines need the same signing key", **setting)


def random_keys() -> SigningKeys:
    return SigningKeys([_new_key()])


def own_keys(directory: Path | None) -> SigningKeys:
    """Return the keys of a state directory. Without a writable directory, return a random key."""
    if directory is None:
        return random_keys()
    try:
        return kept_keys(directory / KEY_FILE)
    except OSError as error:
        log.warning("signing keys not written; they are kept in memory", reason=str(error))
        return SigningKeys([_new_key()], file=directory / KEY_FILE, is_written=False)


def kept_keys(file: Path) -> SigningKeys:
    """Return the keys in a file. If the file is missing or empty, write a new key.

    Raise OSError if the file cannot be read or written.
    """
    try:
        keys = keys_in(file.read_bytes())
    except FileNotFoundError:
        keys = ()
    if not keys:
        keys = (_new_key(),)
        _write(file, keys[0])
    return SigningKeys(keys, file=file)


def _new_key() -> bytes:
    return secrets.token_urlsafe(_BYTES).encode()


def _write(file: Path, key: bytes) -> None:
    # Write the file atomically, because a partial key would be a different key.
    with atomic_write(file, mode=0o600) as writing:
        writing.write(key + b"\n")


class SignedTokens(Generic[T]):
    """Creates and reads signed tokens of visible ASCII. Tokens are not encrypted, so clients can read the contents.

    A token is only valid for one purpose.
    """

    def __init__(self, keys: SigningKeys, kind: type[T], *, purpose: str) -> None:
        def signer(key: bytes) -> Signer:
            return Signer(key, salt=purpose, key_derivation="hmac", digest_method=hashlib.sha256)

        self._signers: Final = from_keys(keys, lambda newest_first: [*map(signer, newest_first)])
        self._decoder: Final = msgspec.json.Decoder(kind)

    def sign(self, content: T) -> str:
        return self._signers()[0].sign(base64.urlsafe_b64encode(msgspec.json.encode(content)).rstrip(b"=")).decode()

    def marks(self, value: bytes) -> list[str]:
        """Return a digest of a value with each key, newest first. Clients cannot infer the value."""
        digests = (hmac.digest(signer.derive_key(), value, "sha256")[:16] for signer in self._signers())
        return [base64.urlsafe_b64encode(digest).decode() for digest in digests]

    def read(self, token: str) -> T | None:
        """Return the content of a token, or None if it is invalid."""
        if not token.isascii():
            return None
        given = token.encode()
        content = given.rpartition(b".")[0]
        # Sign again and compare, because `unsign` decodes base64 leniently and accepts variants of a token.
        if not any(hmac.compare_digest(signer.sign(content), given) for signer in self._signers()):
            return None
        try:
            return self._decoder.decode(base64.urlsafe_b64decode(content + b"=" * (-len(content) % 4)))
        except msgspec.DecodeError:  # From another version of the gateway.
            return None
