from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from gateway.app.signals import on_sighup
from gateway.app.systemd_notify import ServiceManager
from gateway.background_tasks import BackgroundTasks
from gateway.catalog.store import CatalogStore
from gateway.json_types import JsonObject
from gateway.reload.reloader import Reloader, Trigger


class ReloadRequests(msgspec.Struct, frozen=True, kw_only=True):
    """Reloads the configuration at an operator's request, and reports each reload to systemd."""

    reloader: Reloader
    store: CatalogStore
    service_manager: ServiceManager

    async def reload(self, *, trigger: Trigger = "request") -> JsonObject:
        """Reload the configuration files. Return the number of the served configuration, and any problems."""
        # systemd.service(5), Type=notify-reload: `systemctl reload` returns once `ready` is sent.
        self.service_manager.reloading()
        status = await self.reloader.reload(trigger=trigger)
        self.service_manager.ready()
        return {
            "generation": self.store.current.generation,
            "problems": [str(problem) for problem in status.problems],
        }

    @asynccontextmanager
    async def running(self, *, watches_files: bool) -> AsyncIterator[None]:
        """While the context lasts, reload on SIGHUP and, if `watches_files` is true, when files change."""
        tasks = BackgroundTasks()
        tasks.begin(self.reloader.run_for_sources(), name="reload for sources")
        if watches_files:
            tasks.begin(self.reloader.run(), name="watch files")
        try:
            with on_sighup(lambda: tasks.begin(self.reload(trigger="signal"), name="reload on SIGHUP")):
                yield
        finally:
            await tasks.cancel()
