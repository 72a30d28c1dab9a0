from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from gateway.errors import ErrorCode, OverLimitError, RpcError, TooManyRequestsError
from gateway.json_types import JsonObject
from gateway.protocol.call.call import Call
from gateway.protocol.methods import lifecycle, prompts, resources, subscriptions, tasks, tools
from gateway.protocol.tasks.wire import declares_tasks, missing_extension
from gateway.telemetry.observer import ClientTerms
from gateway.wire.revisions import Era

Handler = Callable[[Call], Awaitable[JsonObject | bytes]]

BOTH: Final = frozenset(Era)
LEGACY_ONLY: Final = frozenset({Era.LEGACY})
MODERN_ONLY: Final = frozenset({Era.MODERN})


def _refused(error: OverLimitError, call: Call) -> JsonObject:
    raise TooManyRequestsError(call.catalog.sanitizer.text(str(error)), retry_after=error.retry_after) from error


class Method(msgspec.Struct, frozen=True):
    handler: Handler
    eras: frozenset[Era]
    is_call: bool = False
    """Whether the method runs a backend or a plugin. Limits count such calls."""
    is_list: bool = False
    """Whether `limits.rate_limit` counts this method separately from calls."""
    is_of_tasks: bool = False
    """Whether the method requires the tasks extension."""
    refused: Callable[[OverLimitError, Call], JsonObject] = _refused
    """Returns the result, or raises the error, if a limit refuses the call."""


def _list(name: str, eras: frozenset[Era] = BOTH) -> Method:
    """Return a list method. `name` is the result member that contains the entries."""

    async def page(call: Call) -> bytes:
        return call.server.pages.page(
            name, catalog=call.catalog, revision=call.revision, cursor=call.params.get("cursor")
        )

    return Method(page, eras, is_list=True)


# MCP 2026-07-28 changelog: `ping`, `logging/setLevel`, `resources/subscribe` and `resources/unsubscribe` were removed.
METHODS: Final[Mapping[str, Method]] = MappingProxyType(
    {
        "completion/complete": Method(prompts.complete, BOTH, is_call=True),
        "logging/setLevel": Method(lifecycle.set_level, LEGACY_ONLY),
        "ping": Method(lifecycle.ping, LEGACY_ONLY),
        "prompts/get": Method(prompts.get_prompt, BOTH, is_call=True),
        "prompts/list": _list("prompts"),
        "resources/directory/read": Method(resources.read_directory, MODERN_ONLY, is_list=True),
        "resources/list": _list("resources"),
        "resources/read": Method(resources.read_resource, BOTH, is_call=True),
        "resources/templates/list": _list("resourceTemplates"),
        "resources/subscribe": Method(subscriptions.subscribe, LEGACY_ONLY),
        "resources/unsubscribe": Method(subscriptions.unsubscribe, LEGACY_ONLY),
        "server/discover": Method(lifecycle.discover, MODERN_ONLY),
        # Returns list entries, as `resources/directory/read` does.
        "skills/get": Method(resources.get_skill, MODERN_ONLY, is_list=True),
        "skills/list": _list("skills", MODERN_ONLY),
        "subscriptions/listen": Method(subscriptions.listen, MODERN_ONLY),
        "tasks/cancel": Method(tasks.cancel, MODERN_ONLY, is_of_tasks=True),
        "tasks/get": Method(tasks.get, MODERN_ONLY, is_of_tasks=True),
        "tasks/update": Method(tasks.update, MODERN_ONLY, is_of_tasks=True),
        "tools/call": Method(tools.call_tool, BOTH, is_call=True, refused=tools.refused),
        "tools/list": _list("tools"),
    }
)


def check_method(method: str, era: Era, terms: ClientTerms) -> None:
    """Raise RpcError if the method does not exist in an era, or the client has not declared its extension."""
    found = METHODS.get(method)
    if found is None or era not in found.eras:
        if method == "initialize" and era is Era.LEGACY:
            raise RpcError(ErrorCode.INVALID_REQUEST, "This session is already initialized")
        raise RpcError(ErrorCode.METHOD_NOT_FOUND, f"Method not found: {method}")
    if found.is_of_tasks and not declares_tasks(terms.capabilities, terms.revision):
        raise missing_extension()
