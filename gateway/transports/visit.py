"""One HTTP request as the front door let it in."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import web

from gateway.access.denial import NO_ENTRY, Entry
from gateway.access.identity import NOBODY, Identity
from gateway.transports.trusted_proxies import Approach

Task = asyncio.Task[object]


def _this_task() -> Task:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("not in a task")
    return task


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """The request, how it came, and what its response carries."""

    request: web.Request
    approach: Approach
    headers: Mapping[str, str]
    """Fields that every response to it carries."""
    identity: Identity = NOBODY
    """Who sent it, where that was asked for."""
    task: Task = field(default_factory=_this_task)
    """The one that answers it: whoever cancels it ends the request. (`Request.task` is the connection's.)"""
    entry: Entry = NO_ENTRY
    """What its client needs to know to be let in further."""
