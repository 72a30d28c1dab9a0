"""The public keys with which an issuer signs, kept up to date while requests go on.

Keys are got in the background, before they are needed and again when they grow old; a request waits for them only when
it brings a key id that nobody knows yet. What requests can cause is bounded: one fetch at a time, few at once and then
one in a while, and ever fewer while the issuer does not answer. Meanwhile the keys that are known keep working.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from gateway.access.issuer import Fetch, FetchError, discover_keys_url
from gateway.access.jose import ALGORITHMS, public_key
from gateway.json_types import Json

if TYPE_CHECKING:
    from jwt.algorithms import AllowedPublicKeys

log: Final = structlog.get_logger(__name__)

MOST_KEYS: Final = 64
"""Of one issuer; those beyond are not looked at."""

_MOST_DOUBLINGS: Final = 16
"""Of a pause: an issuer may be down for days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPace:
    """When keys are got."""

    renew_after: timedelta = timedelta(minutes=10)
    """Age of what is known, after which a request has it got again in the background."""
    floor: timedelta = timedelta(seconds=15)
    """What one fetch takes in the long run, whatever requests bring."""
    spare: int = 2
    """Fetches that may follow one at once: an issuer changes its keys, too, right after they were got."""
    patience: timedelta = timedelta(seconds=5)
    """How long a request waits for a fetch, which may ask at several places."""
    longest_pause: timedelta = timedelta(minutes=2)
    """While the issuer does not answer: pauses double up to this."""


class KeysUnavailableError(Exception):
    """Whether a token is good cannot be told: the issuer's keys cannot be had."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"again in {seconds:.0f} s")
        self.seconds = seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """One public key."""

    kid: str | None
    kind: str
    curve: str | None
    algorithm: str | None
    """The only one that it is for, where the issuer says so."""
    key: "AllowedPublicKeys"

    def fits(self, kid: str | None, algorithm: str) -> bool:
        kind, curve = ALGORITHMS[algorithm]
        return (
            (kid is None or self.kid == kid)
            and self.kind == kind
            and curve in {None, self.curve}
            and self.algorithm in {None, algorithm}
        )


class SigningKeys:
    """The keys of one issuer."""

    def __init__(
        self,
        *,
        issuer: str,
        keys_url: str | None,
        fetch: Fetch,
        pace: KeyPace = KeyPace(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Fetch nothing yet; without a URL it is looked up in the issuer's metadata, each time."""
        self._issuer: Final = issuer
        self._keys_url: Final = keys_url
        self._fetch: Final = fetch
        self._pace: Final = pace
        self._clock: Final = clock
        self._keys: Sequence[SigningKey] | None = None
        self._known_since = 0.0
        self._not_before = 0.0
        """When the next fetch may begin."""
        self._paid_until = 0.0
        """When the fetches so far have taken their `floor` each."""
        self._failures = 0
        """Since keys were last got."""
        self._fetching: asyncio.Task[None] | None = None
        self.error: str | None = None
        """Why the keys were not got when they were last asked for."""
        self.version = 0
        """Of what is known: what was proven with another one may no longer be."""

    def __len__(self) -> int:
        return len(self._keys or ())

    def begin(self) -> None:
        """Have the keys got, should it be time, and wait for nothing."""
        now = self._clock()
        is_old = self._keys is None or now - self._known_since >= self._pace.renew_after.total_seconds()
        if is_old and self._may_fetch():
            self._start()

    async def find(self, kid: str | None, algorithm: str) -> Sequence[SigningKey]:
        """The keys that a token may be signed with; more than one only where it does not say which.

        Raises:
            KeysUnavailableError: none is known that fits, and the issuer cannot be asked.
        """
        self.begin()
        fitting = self._fitting(kid, algorithm)
        if not fitting and (self._fetching is not None or self._may_fetch()):
            await asyncio.wait([self._fetching or self._start()], timeout=self._pace.patience.total_seconds())
            fitting = self._fitting(kid, algorithm)
        if not fitting and (self._failures or self._fetching is not None):
            raise KeysUnavailableError(max(1.0, self._not_before - self._clock()))
        return fitting

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    def _fitting(self, kid: str | None, algorithm: str) -> Sequence[SigningKey]:
        return [key for key in self._keys or () if key.fits(kid, algorithm)]

    def _may_fetch(self) -> bool:
        return self._fetching is None and self._clock() >= self._not_before

    def _start(self) -> asyncio.Task[None]:
        self._fetching = asyncio.get_running_loop().create_task(self._renew(), name="signing keys")
        return self._fetching

    async def _renew(self) -> None:
        pause = 0.0
        try:
            url = self._keys_url or await discover_keys_url(self._issuer, self._fetch)
            self._keys = read_key_set(await self._fetch(url), url=url)
        except FetchError as error:
            self._failures += 1
            self.error = str(error)
            pause = min(2.0 ** min(self._failures - 1, _MOST_DOUBLINGS), self._pace.longest_pause.total_seconds())
            log.warning("signing keys not fetched", issuer=self._issuer, reason=str(error), again_in_seconds=pause)
        else:
            self._failures, self.error = 0, None
            self.version += 1
            self._known_since = self._clock()
            pause = self._pause()
            log.debug("signing keys fetched", issuer=self._issuer, keys=len(self._keys))
        finally:
            self._fetching = None
            self._not_before = self._clock() + pause

    def _pause(self) -> float:
        """Seconds until keys may be got again, after they were."""
        now, floor = self._clock(), self._pace.floor.total_seconds()
        self._paid_until = max(self._paid_until, now) + floor
        return max(0.0, self._paid_until - self._pace.spare * floor - now)


def read_key_set(document: Json, *, url: str) -> Sequence[SigningKey]:
    """The keys of a JSON Web Key Set (RFC 7517 §5) that tokens may be signed with; the others are left out.

    Raises:
        FetchError: it is none, or has no such key.
    """
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise FetchError(f"{url}: is no JSON Web Key Set")
    keys = tuple(_read_keys(entries[:MOST_KEYS]))
    if not keys:
        raise FetchError(f"{url}: holds no key that tokens may be signed with")
    return keys


def _read_keys(entries: Sequence[Json]) -> Iterator[SigningKey]:
    for entry in entries:
        if not isinstance(entry, dict) or not _is_for_signatures(entry):
            continue
        key = public_key(entry)
        if key is None:
            log.warning("signing key left out: it is malformed, too short, or of a kind that is not taken")
        else:
            kid, algorithm, curve = (entry.get(name) for name in ("kid", "alg", "crv"))
            yield SigningKey(kid=kid, kind=entry["kty"], curve=curve, algorithm=algorithm, key=key)


def _is_for_signatures(entry: Json) -> bool:
    """Whether a key is public, and meant to verify with."""
    operations = entry.get("key_ops")
    return (
        all(isinstance(entry.get(name), str | None) for name in ("kid", "alg", "crv", "use"))
        and isinstance(entry.get("kty"), str)
        and entry.get("use", "sig") == "sig"
        and (operations is None or (isinstance(operations, list) and "verify" in operations))
    )
