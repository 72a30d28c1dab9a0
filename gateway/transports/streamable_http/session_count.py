"""Counts the sessions of this process among those of all replicas (`limits.sessions`)."""

from collections.abc import Callable, Iterable
from typing import Final

from gateway.background_tasks import BackgroundTasks
from gateway.state.redis_session_count import RedisSessionCount, SessionAdmission
from gateway.transports.errors import HttpError
from gateway.transports.http.quota import ResourceQuota
from gateway.transports.streamable_http.live_session import LiveSession


class SharedSessionCount:
    """The sessions of all replicas, as this one adds to them."""

    def __init__(self, count: RedisSessionCount, quota: ResourceQuota, *, expires: Callable[[], float]) -> None:
        """Count nothing yet; `expires` says when a session ends that is used now."""
        self._count: Final = count
        quota.store = count
        self._quota: Final = quota
        self._expires: Final = expires
        self._writes: Final = BackgroundTasks()

    async def close(self) -> None:
        """Let be written what is being written."""
        await self._writes.wait()

    async def refusal_of(self, nonce: str, caller: str) -> HttpError | None:
        """Count a new session; or return why there is no room for it."""
        quota = self._quota
        admission = await self._count.add(
            nonce, caller, expires=self._expires(), in_all=quota.in_all, per_caller=quota.per_caller
        )
        if admission is SessionAdmission.ADMITTED:
            return None
        return quota.refusal(caller, is_callers=admission is SessionAdmission.SHARE_TAKEN)

    def keep_soon(self, sessions: Iterable[LiveSession]) -> None:
        """Count on sessions that were used."""
        self._writes.begin(self._keep([(each.nonce, each.caller) for each in sessions]), name="session count: keep")

    async def remove(self, nonce: str) -> None:
        await self._count.remove(nonce)

    def remove_soon(self, nonce: str) -> None:
        self._writes.begin(self.remove(nonce), name="session count: remove")

    async def _keep(self, sessions: Iterable[tuple[str, str]]) -> None:
        for nonce, caller in sessions:
            await self._count.keep(nonce, caller, expires=self._expires())
