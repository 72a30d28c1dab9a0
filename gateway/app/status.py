"""What `/-/status` tells about the primitives: what backs each that is on offer, and what was left out and why."""

from collections.abc import Mapping

from gateway.catalog.lock import Lock
from gateway.catalog.primitives import Catalog
from gateway.config.document import Document
from gateway.config.primitives import Prompt, Resource, Tool
from gateway.json_types import Json
from gateway.transports.ration import Ration


def backends(document: Document, catalog: Catalog, kind: str) -> dict[str, Json]:
    """The backends of `tools`, `resources` or `prompts` by name, in file order."""
    definitions: Mapping[str, Tool | Resource | Prompt] = getattr(document, kind)
    absent = {left_out.name for left_out in catalog.left_out if left_out.kind == kind}
    return {name: _backend_of(definition) for name, definition in definitions.items() if name not in absent}


def lock(lock: Lock, catalog: Catalog, *, mode: str) -> dict[str, Json] | None:
    """How what is on offer compares with the lock; None without one."""
    if lock.pins is None and not lock.trouble:
        return None
    trouble = {"trouble": lock.trouble} if lock.trouble else {}
    return {"file": str(lock.path), "mode": mode, **trouble, "differs": [str(each) for each in catalog.unlike]}


def left_out(document: Document, catalog: Catalog) -> list[Json]:
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


def disabled(whole: Catalog, current: Catalog) -> list[str]:
    """What a plugin has switched off, as `tools.deploy`."""
    resources = {each.name for each in (*current.resources.values(), *current.resource_templates)}
    off = [each.name for each in (*whole.resources.values(), *whole.resource_templates) if each.name not in resources]
    return [
        *(f"tools.{name}" for name in whole.tools if name not in current.tools),
        *(f"resources.{name}" for name in dict.fromkeys(off)),
        *(f"prompts.{name}" for name in whole.prompts if name not in current.prompts),
    ]


def limits(rations: Mapping[str, Ration], *, threads: int, most_threads: int) -> dict[str, Json]:
    """How much is in use of what `limits` allows."""
    return {
        **{
            name: {"used": len(ration), "limit": ration.in_all, "per_caller": ration.per_caller}
            for name, ration in rations.items()
        },
        "threads": {"used": threads, "limit": most_threads},
    }


def _backend_of(definition: Tool | Resource | Prompt) -> str:
    if isinstance(definition, Prompt):
        return "messages" if definition.python is None else "python"
    return definition.backend
