"""Caches the public keys of an issuer (JSON Web Key Set, RFC 7517).

Keys are fetched and renewed in the background. A request only waits for a fetch if the key ID of its token is unknown.
Fetches have a rate limit, and a backoff after failures. Known keys stay valid during the backoff.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import structlog

from gateway.access.issuer import Fetch, FetchError, discover_keys_url
from gateway.access.jose import algorithms_of, public_key
from gateway.json_types import Json

log: Final = structlog.get_logger(__name__)

_MAX_KEYS: Final = 64

_MAX_DOUBLINGS: Final = 16
_RENEW_SECONDS: Final = 600.0
AVERAGE_INTERVAL_SECONDS: Final = 15.0
SPARE_FETCHES: Final = 2
"""How many fetches can exceed the average rate in a burst. An issuer can rotate its keys right after a fetch."""
MAX_WAIT_SECONDS: Final = 5.0
_MAX_PAUSE_SECONDS: Final = 120.0


class KeysUnavailableError(Exception):
    def __init__(self, seconds: float) -> None:
        super().__init__(f"again in {seconds:.0f} s")
        self.seconds = seconds


SigningKey = tuple[str | None, frozenset[str], Json]
"""The ID of a key, its algorithms, and the key itself for PyJWT."""


class JwksCache:
    def __init__(
        self,
        *,
        issuer: str,
        keys_url: str | None,
        fetch: Fetch,
        max_wait_seconds: float = MAX_WAIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `keys_url`, the URL of the keys is read from the metadata of the issuer."""
        self._issuer: Final = issuer
        self._keys_url: Final = keys_url
        self._fetch: Final = fetch
        self._max_wait_seconds: Final = max_wait_seconds
        self._clock: Final = clock
        self._keys: Sequence[SigningKey] | None = None
        self._known_since = 0.0
        self._not_before = 0.0
        self._paid_until = 0.0
        """State of the rate limit: each fetch adds `AVERAGE_INTERVAL_SECONDS`."""
        self._failures = 0
        self._fetching: asyncio.Task[None] | None = None
        self.error: str | None = None
        self.version = 0
        """Number of successful fetches. Cached tokens are verified again after each fetch."""

    def __len__(self) -> int:
        return len(self._keys or ())

    def refresh_soon(self) -> None:
        """Start a fetch in the background if the keys are old."""
        now = self._clock()
        is_old = self._keys is None or now - self._known_since >= _RENEW_SECONDS
        if is_old and self._may_fetch():
            self._start()

    async def find(self, kid: str | None, algorithm: str) -> Sequence[Json]:
        """Return the keys that could have signed a token.

        Raise KeysUnavailableError if no known key matches, and a fetch has failed or has not finished in time.
        """
        self.refresh_soon()
        fitting = self._fitting(kid, algorithm)
        if not fitting and (self._fetching is not None or self._may_fetch()):
            # `wait` does not cancel the fetch, because other requests can wait for it too.
            await asyncio.wait([self._fetching or self._start()], timeout=self._max_wait_seconds)
            fitting = self._fitting(kid, algorithm)
        # Cause a 503 response, because clients would discard a valid token after a 401.
        if not fitting and (self._failures or self._fetching is not None):
            raise KeysUnavailableError(max(1.0, self._not_before - self._clock()))
        return fitting

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    def _fitting(self, kid: str | None, algorithm: str) -> Sequence[Json]:
        keys = self._keys or ()
        return [key for own_kid, algorithms, key in keys if kid in {None, own_kid} and algorithm in algorithms]

    def _may_fetch(self) -> bool:
        return self._fetching is None and self._clock() >= self._not_before

    def _start(self) -> asyncio.Task[None]:
        self._fetching = asyncio.get_running_loop().create_task(self._renew(), name="signing keys")
        return self._fetching

    async def _renew(self) -> None:
        pause = 0.0
        try:
            url = self._keys_url or await discover_keys_url(self._issuer, self._fetch)
            self._keys = _read_key_set(await self._fetch(url), url=url)
        except FetchError as error:
            self._failures += 1
            self.error = str(error)
            pause = min(2.0 ** min(self._failures - 1, _MAX_DOUBLINGS), _MAX_PAUSE_SECONDS)
            log.warning("signing keys not fetched", issuer=self._issuer, reason=str(error), again_in_seconds=pause)
        else:
            self._failures, self.error = 0, None
            self.version += 1
            self._known_since = self._clock()
            pause = self._pause()
            log.debug("signing keys fetched", issuer=self._issuer, keys=len(self._keys))
        finally:
            # Use `finally`, so that a cancelled fetch does not prevent later fetches.
            self._fetching = None
            self._not_before = self._clock() + pause

    def _pause(self) -> float:
        now = self._clock()
        self._paid_until = max(self._paid_until, now) + AVERAGE_INTERVAL_SECONDS
        return max(0.0, self._paid_until - SPARE_FETCHES * AVERAGE_INTERVAL_SECONDS - now)


def _read_key_set(document: Json, *, url: str) -> Sequence[SigningKey]:
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise FetchError(f"The document at {url} is not a JSON Web Key Set")
    keys = tuple(_read_keys(entries[:_MAX_KEYS]))
    if not keys:
        raise FetchError(f"{url} has no signing key that is supported")
    return keys


def _read_keys(entries: Sequence[Json]) -> Iterator[SigningKey]:
    for entry in entries:
        if not isinstance(entry, dict) or not _is_for_signatures(entry):
            continue
        key = public_key(entry)
        if key is None:
            # RFC 7517 §5: ignore unknown keys.
            log.warning("signing key ignored: it is malformed, too short, or of an unsupported type")
        else:
            fitting = (name for name in algorithms_of(entry) if entry.get("alg") in {None, name})
            yield entry.get("kid"), frozenset(fitting), key


def _is_for_signatures(entry: Json) -> bool:
    operations = entry.get("key_ops")
    return (
        all(isinstance(entry.get(name), str | None) for name in ("kid", "alg", "crv", "use"))
        and isinstance(entry.get("kty"), str)
        and entry.get("use", "sig") == "sig"
        and (operations is None or (isinstance(operations, list) and "verify" in operations))
    )
