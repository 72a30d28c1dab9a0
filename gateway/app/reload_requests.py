from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from gateway.app.signals import on_sighup
from gateway.app.systemd_notify import ServiceManager
from gateway.audit.recorder import AuditRecorder
from gateway.background_tasks import BackgroundTasks
from gateway.catalog.store import CatalogStore
from gateway.json_types import JsonObject
from gateway.reload.reloader import Reloader, Trigger


class ReloadRequests:
    """Reloads the configuration when an operator asks for it, and reports each reload to the service manager."""

    def __init__(
        self,
        reloader: Reloader,
        *,
        store: CatalogStore,
        audit: AuditRecorder,
        service_manager: ServiceManager,
    ) -> None:
        self._reloader: Final = reloader
        self._store: Final = store
        self._audit: Final = audit
        self._service_manager: Final = service_manager

    async def reload(self, *, trigger: Trigger = Trigger.REQUEST) -> JsonObject:
        """Reload the configuration files. Return the generation that is now served, and any problems."""
        # systemd.service(5), Type=notify-reload: `systemctl reload` returns once `ready` is sent.
        self._service_manager.reloading()
        status = await self._reloader.reload(trigger=trigger)
        self._service_manager.ready(self.summary())
        return {
            "generation": self._store.current.generation,
            "problems": [str(problem) for problem in status.problems],
        }

    async def on_signal(self) -> JsonObject:
        """Reopen the audit log, as logrotate(8) expects, and reload the configuration files."""
        self._audit.reopen()
        return await self.reload(trigger=Trigger.SIGNAL)

    @asynccontextmanager
    async def running(self, *, watches_files: bool) -> AsyncIterator[None]:
        """While the context lasts, reload on SIGHUP and, if `watches_files` is true, when files change."""
        tasks = BackgroundTasks()
        tasks.begin(self._reloader.run_for_sources(), name="reload for sources")
        if watches_files:
            tasks.begin(self._reloader.run(), name="watch files")
        try:
            with on_sighup(lambda: tasks.begin(self.on_signal(), name="reload on SIGHUP")):
                yield
        finally:
            await tasks.cancel()

    def summary(self) -> str:
        problems = len(self._reloader.status.problems)
        if problems:
            return f"Serving the last good configuration: {problems} problems in the new configuration"
        catalog = self._store.current
        return f"Serving {len(catalog.tools)} tools, generation {catalog.generation}"
