"""What `/-/status` tells: the files, what is on offer and what is not, who is here, and what runs."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.app.offer import Build, Offer
from gateway.app.reports import clients
from gateway.app.reports.clients import RecentClients
from gateway.app.reports.parts import Parts
from gateway.catalog.lock import Lock
from gateway.catalog.primitives import Catalog
from gateway.config.document import Document
from gateway.config.primitives import Prompt, Resource, Tool
from gateway.config.server import Shares
from gateway.executors.services import Services
from gateway.json_types import Json
from gateway.protocol.dispatcher import Dispatcher
from gateway.reloader.reloader import Reloader
from gateway.transports.ration import Ration

Sources = Mapping[str, Callable[[], Json]]
"""By name, in the order in which they are shown."""


def sources(parts: Parts, *, config: Path, recent_clients: RecentClients) -> Sources:
    """One source for each fact; what they tell is masked, for a path or a problem may hold a secret."""
    facts: Sources = {
        "config": lambda: str(config),
        **_files(parts.offer, parts.reloader),
        **_primitives(parts.offer),
        "audit": lambda: parts.auditing.status,
        "clients": lambda: _clients(recent_clients, parts),
        "limits": lambda: {
            **_limits(parts.rations),
            **_concurrency(parts.offer.served.document.limits.concurrency, running=parts.dispatcher.slots.running),
            "threads": {"used": parts.services.threads.busy, "limit": parts.offer.first.limits.threads},
        },
        "auth": parts.authenticator.status,
        "sessions": lambda: len(open_.sessions) if (open_ := parts.listeners()) else 0,
        "streams": lambda: len(open_.streams) if (open_ := parts.listeners()) else 0,
        **_work(parts.dispatcher, parts.services),
        "refused": lambda: dict(parts.refusals),
    }

    def masked(source: Callable[[], Json]) -> Callable[[], Json]:
        return lambda: parts.offer.redactor.json(source())

    return {name: masked(source) for name, source in facts.items()}


def _files(offer: Offer, reloader: Reloader[Build]) -> Sources:
    return {
        "generation": lambda: offer.store.current.generation,
        "files": lambda: {str(path): digest for path, digest in offer.served.files.items()},
        "last_reload": lambda: reloader.status.at.isoformat(timespec="seconds"),
        "problems": lambda: [str(problem) for problem in reloader.status.problems],
        "warnings": lambda: [str(problem) for problem in offer.store.current.warnings],
        "restart_required": lambda: offer.restart_required,
        "watch_error": lambda: reloader.watch_error,
    }


def _primitives(offer: Offer) -> Sources:
    def backends(kind: str) -> Json:
        return _backends(offer.served.document, offer.store.current, kind)

    return {
        "tools": lambda: backends("tools"),
        "resources": lambda: backends("resources"),
        "prompts": lambda: backends("prompts"),
        "lock": lambda: _lock(offer.served.lock, offer.served.catalog, mode=offer.served.document.server.lock),
        "left_out": lambda: _left_out(offer.served.document, offer.store.current),
        "disabled": lambda: _disabled(offer.served.catalog, offer.store.current),
    }


def _work(dispatcher: Dispatcher, services: Services) -> Sources:
    return {
        "calls_running": lambda: dispatcher.slots.running,
        "calls_waiting": lambda: dispatcher.slots.waiting,
        "children": lambda: services.processes.running,
        "children_ending": lambda: services.processes.ending,
        "tasks": lambda: len(asyncio.all_tasks()),
        "threads": lambda: services.threads.busy,
        "threads_stuck": lambda: services.threads.stuck,
    }


def _clients(recent: RecentClients, parts: Parts) -> Json:
    return {
        "sessions": clients.listed(clients.with_sessions(parts.open_sessions()), counted="sessions"),
        "recent": clients.listed(recent.calls(), counted="calls"),
    }


def _backends(document: Document, catalog: Catalog, kind: str) -> dict[str, Json]:
    """The backends of `tools`, `resources` or `prompts` by name, in file order."""
    definitions: Mapping[str, Tool | Resource | Prompt] = getattr(document, kind)
    absent = {left_out.name for left_out in catalog.left_out if left_out.kind == kind}
    return {name: _backend_of(definition) for name, definition in definitions.items() if name not in absent}


def _lock(lock: Lock, catalog: Catalog, *, mode: str) -> dict[str, Json] | None:
    """How what is on offer compares with the lock; None without one."""
    if lock.pins is None and not lock.trouble:
        return None
    trouble = {"trouble": lock.trouble} if lock.trouble else {}
    return {"file": str(lock.path), "mode": mode, **trouble, "differs": [str(each) for each in catalog.unlike]}


def _left_out(document: Document, catalog: Catalog) -> list[Json]:
    """What the file defines and this machine cannot do, with the reason."""
    return [
        {
            "kind": each.kind,
            "name": each.name,
            "backend": _backend_of(getattr(document, each.kind)[each.name]),
            "reason": each.reason,
        }
        for each in catalog.left_out
    ]


def _disabled(whole: Catalog, current: Catalog) -> list[str]:
    """What a plugin has switched off, as `tools.deploy`."""
    resources = {each.name for each in (*current.resources.values(), *current.resource_templates)}
    off = [each.name for each in (*whole.resources.values(), *whole.resource_templates) if each.name not in resources]
    return [
        *(f"tools.{name}" for name in whole.tools if name not in current.tools),
        *(f"resources.{name}" for name in dict.fromkeys(off)),
        *(f"prompts.{name}" for name in whole.prompts if name not in current.prompts),
    ]


def _limits(rations: Mapping[str, Ration]) -> dict[str, Json]:
    """How much is in use of what `limits` allows."""
    return {
        name: {"used": len(ration), "limit": ration.in_all, "per_caller": ration.per_caller}
        for name, ration in rations.items()
    }


def _concurrency(allowed: Shares | None, *, running: int) -> dict[str, Json]:
    """The same of calls; nothing where only each primitive, or each caller, has a limit."""
    if allowed is None or allowed.in_all is None:
        return {}
    return {"concurrency": {"used": running, "limit": allowed.in_all, "per_caller": allowed.per_caller}}


def _backend_of(definition: Tool | Resource | Prompt) -> str:
    if isinstance(definition, Prompt):
        return "messages" if definition.python is None else "python"
    return definition.backend
