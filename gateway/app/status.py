"""Builds the response bodies of `/-/status` and `/-/api/`."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import gateway
from gateway.app.parts import Core
from gateway.app.task_report import task_counts
from gateway.catalog.catalog import Catalog
from gateway.catalog.search_tools import OWN_NAMES
from gateway.config.loader import Unavailable
from gateway.config.models.definitions import Prompt, Resource, Tool
from gateway.config.models.document import Document
from gateway.config.models.server import Listen, Quota, Server
from gateway.executors.shared_services import Services
from gateway.json_types import Json, JsonObject
from gateway.platform_facilities import missing_facilities
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.reload.candidate import Candidate
from gateway.reload.pipeline import ReloadPipeline
from gateway.reload.reloader import Reloader
from gateway.telemetry.logs import title_of
from gateway.transports.http_server import HttpServer
from gateway.transports.quota import ResourceQuota, WriteQuota
from gateway.wire.revisions import Era

MAX_CLIENTS: Final = 20


def read_status(
    core: Core, *, http: HttpServer | None, open_sessions: Callable[[], Iterable[tuple[Binding, Session]]]
) -> JsonObject:
    """Return the response body of `/-/status`. Secrets are masked."""
    pipeline, dispatcher, services, health = core.pipeline, core.dispatcher, core.services, core.health
    concurrency, limits = dispatcher.concurrency, pipeline.served.document.limits
    status = {
        "version": gateway.__version__,
        "state": health.state,
        "uptime_seconds": round(health.uptime_seconds, 1),
        "config": str(core.settings.config.absolute()),
        **_files(pipeline, core.reloader),
        **_primitives(pipeline),
        "views": {name: _view(part) for name, part in dispatcher.views.parts()},
        "audit": core.audit.status,
        "store": core.state.status(),
        "missing_facilities": missing_facilities(),
        "clients": {"sessions": clients_of(open_sessions())},
        "limits": {
            **_quotas(quotas(http)),
            **_concurrency(limits.concurrency, running=concurrency.running, is_shared=concurrency.is_shared),
            "tasks": {
                "used": dispatcher.tasks.limiter.unfinished,
                "limit": pipeline.store.current.limits.tasks.total,
                "per_caller": pipeline.store.current.limits.tasks.per_caller,
            },
            "threads": {"used": services.threads.busy, "limit": pipeline.first.limits.threads},
        },
        "upstreams": core.upstreams.status(),
        "databases": services.databases.status(),
        "openapi": core.documents.status(),
        "auth": core.authenticator.status(),
        "sessions": 0 if http is None else len(http.sessions),
        "streams": 0 if http is None else len(http.limits.streams),
        **_work(dispatcher, services),
        "refused": refusals(dispatcher, http),
    }
    masked: JsonObject = core.redactor.json(status)
    return masked


def quotas(http: HttpServer | None) -> Mapping[str, ResourceQuota | WriteQuota]:
    return {} if http is None else http.quotas


def refusals(dispatcher: Dispatcher, http: HttpServer | None) -> dict[str, int]:
    return {
        "rate": dispatcher.rates.refused,
        "concurrency": dispatcher.concurrency.refused,
        "tasks": dispatcher.tasks.limiter.refused,
        **{name: quota.refused for name, quota in quotas(http).items()},
    }


def daemon_info(base_url: str | None, *, core: Core, http: HttpServer | None, has_console: bool) -> JsonObject:
    """Return the response body of `/-/api/`. `base_url` is the scheme, host and prefix of the MCP endpoint, or None."""
    pipeline = core.pipeline
    document = pipeline.served.document
    name = document.server.name
    return {
        "api": _API_VERSION,
        "version": gateway.__version__,
        "name": name,
        "title": document.server.title,
        "label": document.server.title or (name if name != Server().name else core.settings.config.name),
        "console": has_console,
        "endpoint": endpoint_url(pipeline.first.listen, http, base_url),
        "features": {
            "tasks": any(tool.task for tool in pipeline.store.current.tools.values()),
            "store": core.state.replica is not None,
            "upstreams": bool(document.upstreams),
        },
    }


def endpoint_url(listen: Listen, http: HttpServer | None, base_url: str | None) -> str | None:
    """Return the MCP endpoint's URL, or None if it is unknown. `listen.public_url` takes precedence over `base_url`."""
    base_url = listen.public_url.rstrip("/") if listen.public_url else base_url
    if base_url is not None:
        return f"{base_url}{listen.path}"
    return None if http is None else http.url


def _files(pipeline: ReloadPipeline, reloader: Reloader) -> dict[str, Json]:
    return {
        "generation": pipeline.store.current.generation,
        "files": {str(path): digest for path, digest in pipeline.served.files.items()},
        "last_reload": reloader.last_good.isoformat(timespec="seconds"),
        "last_refused": None if reloader.status.is_good else reloader.status.at.isoformat(timespec="seconds"),
        "problems": [str(problem) for problem in reloader.status.problems],
        "warnings": [str(problem) for problem in pipeline.store.current.warnings],
        "restart_required": pipeline.restart_required,
        "watch_error": reloader.watch_error,
    }


def _primitives(pipeline: ReloadPipeline) -> dict[str, Json]:
    served, current = pipeline.served, pipeline.store.current
    return {
        **{kind: _backends(served.document, current, kind) for kind in ("tools", "resources", "prompts")},
        "skills": {skill.name: _OF_SKILLS for skill in current.skills.values()},
        "lock": _lock(served),
        "left_out": _left_out(served.document, current),
        "disabled": _disabled(served.catalog, current),
    }


def _view(part: Catalog) -> dict[str, Json]:
    listed = {} if part.listed_tools is None else {"listed_tools": len(part.listed_tools)}
    # Do not count the tools that search for tools and call them.
    tools = len(part.tools) - (0 if part.listed_tools is None else len(OWN_NAMES))
    # One `files` definition yields many resources and a template.
    resources = len({each.name for each in (*part.resources.values(), *part.resource_templates)})
    return {"tools": tools, "resources": resources, "prompts": len(part.prompts), **listed}


def _work(dispatcher: Dispatcher, services: Services) -> dict[str, Json]:
    return {
        "calls_running": dispatcher.concurrency.running,
        "calls_waiting": dispatcher.concurrency.waiting,
        "children": services.processes.running,
        "children_ending": services.processes.ending,
        "children_told_by": services.processes.tracked_by,
        "orphans": services.processes.orphans,
        "orphans_reaped": services.processes.orphans_reaped,
        "strays_killed": services.processes.orphans_killed,
        "tasks": len(asyncio.all_tasks()),
        "task_statuses": task_counts(dispatcher.tasks),
        "tasks_problem": dispatcher.tasks.problem or None,
        "threads": services.plugin_threads_busy,
        "threads_stuck": services.plugin_threads_stuck,
        "worker_threads": services.worker_threads.busy,
        "worker_threads_stuck": services.worker_threads.stuck,
    }


def _backends(document: Document, catalog: Catalog, kind: str) -> dict[str, Json]:
    definitions: Mapping[str, Tool | Resource | Prompt] = getattr(document, kind)
    absent = {left_out.name for left_out in catalog.left_out if left_out.kind == kind}
    return {name: definition.backend for name, definition in definitions.items() if name not in absent}


def _lock(served: Candidate) -> dict[str, Json] | None:
    # An invalid lockfile protects nothing, so operators must see the problem.
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
    resources = {each.name for each in (*current.resources.values(), *current.resource_templates)}
    off = [each.name for each in (*whole.resources.values(), *whole.resource_templates) if each.name not in resources]
    return [
        *(f"tools.{name}" for name in whole.tools if name not in current.tools),
        *(f"resources.{name}" for name in dict.fromkeys(off)),
        *(f"prompts.{name}" for name in whole.prompts if name not in current.prompts),
    ]


def _quotas(found: Mapping[str, ResourceQuota | WriteQuota]) -> dict[str, Json]:
    return {
        name: {
            "used": len(quota),
            "limit": quota.in_all,
            "per_caller": quota.per_caller,
            **_SHARED[isinstance(quota, ResourceQuota) and quota.is_shared],
        }
        for name, quota in found.items()
    }


def _concurrency(allowed: Quota, *, running: int, is_shared: bool) -> dict[str, Json]:
    if allowed.in_all is None:
        return {}
    use = {"used": running, "limit": allowed.in_all, "per_caller": allowed.per_caller}
    return {"concurrency": {**use, **_SHARED[is_shared]}}


_SHARED: Final[Mapping[bool, Mapping[str, Json]]] = {True: {"shared": True}, False: {}}
_OF_SKILLS: Final = "files"
_API_VERSION: Final = 1


def _backend_in(document: Document, absent: Unavailable) -> str:
    if absent.kind == "openapi":
        return "http"
    definitions = getattr(document, absent.kind)
    return str(definitions[absent.name].backend) if isinstance(definitions, dict) else _OF_SKILLS


def clients_of(sessions: Iterable[tuple[Binding, Session]]) -> list[Json]:
    """Count sessions by kind of client. Return the `MAX_CLIENTS` most frequent kinds, and the sum of all others."""
    kinds = Counter((title_of(session.client_info), session.revision, binding) for binding, session in sessions)
    ranked = kinds.most_common()
    entries: list[Json] = [
        {
            "client": client,
            "era": Era.LEGACY.value,
            "revision": revision,
            "transport": str(transport),
            "sessions": count,
        }
        for (client, revision, transport), count in ranked[:MAX_CLIENTS]
    ]
    if others := ranked[MAX_CLIENTS:]:
        entries.append({"client": None, "kinds": len(others), "sessions": sum(count for _, count in others)})
    return entries
