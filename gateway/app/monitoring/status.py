"""The sources of `/-/status`: files, primitives, clients, limits and running work."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from gateway.app.client_counts import listed, with_sessions
from gateway.app.components import Components
from gateway.app.monitoring.tasks import task_counts
from gateway.catalog.catalog import Catalog, Unavailable
from gateway.catalog.search_tools import OWN_NAMES
from gateway.config.models.definitions import Prompt, Resource, Tool
from gateway.config.models.document import Document
from gateway.config.models.server import Quota
from gateway.config.models.tasks import TaskLimits
from gateway.executors.shared_services import Services
from gateway.json_types import Json
from gateway.protocol.dispatcher import Dispatcher
from gateway.reload.candidate import Candidate
from gateway.reload.pipeline import ReloadPipeline
from gateway.reload.reloader import Reloader
from gateway.tasks.runner import TaskRunner
from gateway.transports.http.quota import ResourceQuota
from gateway.transports.write_quota import WriteQuota

Sources = Mapping[str, Callable[[], Json]]
"""Sources by name, in the order in which they are shown."""


def sources(components: Components, *, config: Path) -> Sources:
    """A source for each fact. All values are masked: a path or a problem may hold a secret."""
    facts: Sources = {
        "config": lambda: str(config),
        **_files(components.pipeline, components.reloader),
        **_primitives(components.pipeline),
        "views": lambda: {name: _view(part) for name, part in components.dispatcher.views.parts()},
        "audit": lambda: components.auditing.status,
        "store": components.state.status,
        "clients": lambda: _clients(components),
        "limits": lambda: {
            **_limits(components.quotas),
            **_concurrency(
                components.pipeline.served.document.limits.concurrency,
                running=components.dispatcher.concurrency.running,
                is_shared=components.dispatcher.concurrency.is_shared,
            ),
            "tasks": _tasks(components.dispatcher.tasks, components.pipeline.store.current.limits.tasks),
            # Of the first file: the pool is made at the start, and keeps its size until the next.
            "threads": {"used": components.services.threads.busy, "limit": components.pipeline.first.limits.threads},
        },
        "upstreams": components.upstreams.status,
        "databases": components.services.databases.status,
        "openapi": components.documents.status,
        "auth": components.authenticator.status,
        "sessions": lambda: len(http.sessions) if (http := components.http) else 0,
        "streams": lambda: len(http.limits.streams) if (http := components.http) else 0,
        **_work(components.dispatcher, components.services),
        "refused": lambda: dict(components.refusals),
    }

    def masked(source: Callable[[], Json]) -> Callable[[], Json]:
        return lambda: components.pipeline.redactor.json(source())

    return {name: masked(source) for name, source in facts.items()}


def _files(pipeline: ReloadPipeline, reloader: Reloader[Candidate]) -> Sources:
    return {
        "generation": lambda: pipeline.store.current.generation,
        "files": lambda: {str(path): digest for path, digest in pipeline.served.files.items()},
        "last_reload": lambda: reloader.status.at.isoformat(timespec="seconds"),
        "problems": lambda: [str(problem) for problem in reloader.status.problems],
        "warnings": lambda: [str(problem) for problem in pipeline.store.current.warnings],
        "restart_required": lambda: pipeline.restart_required,
        "watch_error": lambda: reloader.watch_error,
    }


def _primitives(pipeline: ReloadPipeline) -> Sources:
    def backends(kind: str) -> Json:
        return _backends(pipeline.served.document, pipeline.store.current, kind)

    return {
        "tools": lambda: backends("tools"),
        "resources": lambda: backends("resources"),
        "prompts": lambda: backends("prompts"),
        "skills": lambda: {skill.name: _OF_SKILLS for skill in pipeline.store.current.skills.values()},
        "lock": lambda: _lock(pipeline.served),
        "left_out": lambda: _left_out(pipeline.served.document, pipeline.store.current),
        "disabled": lambda: _disabled(pipeline.served.catalog, pipeline.store.current),
    }


def _view(part: Catalog) -> dict[str, Json]:
    """The number of primitives that a view holds, by kind, and of the tools on its list where it is searched."""
    listed = {} if part.listed_tools is None else {"listed_tools": len(part.listed_tools)}
    # The view's own two tools are none of the file's.
    tools = len(part.tools) - (0 if part.listed_tools is None else len(OWN_NAMES))
    # By their names in the file: one definition with `files` is many resources, and a template too.
    resources = len({each.name for each in (*part.resources.values(), *part.resource_templates)})
    return {"tools": tools, "resources": resources, "prompts": len(part.prompts), **listed}


def _work(dispatcher: Dispatcher, services: Services) -> Sources:
    return {
        "calls_running": lambda: dispatcher.concurrency.running,
        "calls_waiting": lambda: dispatcher.concurrency.waiting,
        "children": lambda: services.processes.running,
        "children_ending": lambda: services.processes.ending,
        "children_told_by": lambda: services.processes.told_by,
        "orphans": lambda: services.processes.orphans,
        "orphans_reaped": lambda: services.processes.orphans_reaped,
        "strays_killed": lambda: services.processes.orphans_killed,
        "tasks": lambda: len(asyncio.all_tasks()),
        "task_statuses": lambda: task_counts(dispatcher.tasks),
        "tasks_problem": lambda: dispatcher.tasks.problem or None,
        "threads": lambda: services.plugin_threads_busy,
        "threads_stuck": lambda: services.plugin_threads_stuck,
        "worker_threads": lambda: services.worker_threads.busy,
        "worker_threads_stuck": lambda: services.worker_threads.stuck,
    }


def _clients(components: Components) -> Json:
    return {
        "sessions": listed(with_sessions(components.open_sessions()), counted="sessions"),
        "recent": listed(components.recent_clients.calls(), counted="calls"),
    }


def _backends(document: Document, catalog: Catalog, kind: str) -> dict[str, Json]:
    """The backends of `tools`, `resources` or `prompts` by name, in file order."""
    definitions: Mapping[str, Tool | Resource | Prompt] = getattr(document, kind)
    absent = {left_out.name for left_out in catalog.left_out if left_out.kind == kind}
    return {name: definition.backend for name, definition in definitions.items() if name not in absent}


def _lock(served: Candidate) -> dict[str, Json] | None:
    """The definitions that differ from the lock; None without one."""
    # A lock that is broken counts as one: the operator must see that it does not protect.
    lock = served.lock
    if lock.pins is None and not lock.problem:
        return None
    problem = {"trouble": lock.problem} if lock.problem else {}
    return {
        "file": str(lock.path),
        "mode": served.document.server.lock,
        **problem,
        "differs": list(served.lock_differences),
    }


def _left_out(document: Document, catalog: Catalog) -> list[Json]:
    """The definitions that this machine cannot serve, with the reason."""
    return [
        {
            "kind": each.kind,
            "name": each.name,
            "backend": _backend_in(document, each),
            "reason": each.reason,
        }
        for each in catalog.left_out
    ]


def _disabled(whole: Catalog, current: Catalog) -> list[str]:
    """The definitions that a plugin has disabled, as `tools.deploy`."""
    resources = {each.name for each in (*current.resources.values(), *current.resource_templates)}
    off = [each.name for each in (*whole.resources.values(), *whole.resource_templates) if each.name not in resources]
    return [
        *(f"tools.{name}" for name in whole.tools if name not in current.tools),
        *(f"resources.{name}" for name in dict.fromkeys(off)),
        *(f"prompts.{name}" for name in whole.prompts if name not in current.prompts),
    ]


def _limits(quotas: Mapping[str, ResourceQuota | WriteQuota]) -> dict[str, Json]:
    """The use of each quota, and its limits."""
    return {
        name: {
            "used": len(quota),
            "limit": quota.in_all,
            "per_caller": quota.per_caller,
            **_SHARED[isinstance(quota, ResourceQuota) and quota.is_shared],
        }
        for name, quota in quotas.items()
    }


def _tasks(runner: TaskRunner, limits: TaskLimits) -> dict[str, Json]:
    """The use of `limits.tasks`."""
    return {"used": runner.limiter.unfinished, "limit": limits.total, "per_caller": limits.per_caller}


def _concurrency(allowed: Quota | None, *, running: int, is_shared: bool) -> dict[str, Json]:
    """The use of `limits.concurrency`; empty if it limits no total."""
    if allowed is None or allowed.in_all is None:
        return {}
    use = {"used": running, "limit": allowed.in_all, "per_caller": allowed.per_caller}
    return {"concurrency": {**use, **_SHARED[is_shared]}}


_SHARED: Final[Mapping[bool, Mapping[str, Json]]] = {True: {"shared": True}, False: {}}
"""The mark of a limit that holds for all replicas together; while the store is away it holds for each."""
_OF_SKILLS: Final = "files"


def _backend_in(document: Document, absent: Unavailable) -> str:
    """The backend of a definition that is left out; a skill and the server's instructions are no such."""
    if absent.kind == "openapi":
        return "http"
    definitions = getattr(document, absent.kind)
    return str(definitions[absent.name].backend) if isinstance(definitions, dict) else _OF_SKILLS
