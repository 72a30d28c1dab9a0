"""Every method that is served, and in which era."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gateway.errors import OverLimitError, TooManyRequestsError
from gateway.json_types import JsonObject
from gateway.protocol.methods import completion, lifecycle, prompts, resources, subscriptions, tools
from gateway.protocol.request import RequestContext, Runtime
from gateway.protocol.versions import Era

Handler = Callable[[RequestContext, Runtime], Awaitable[JsonObject | bytes]]

BOTH: Final = frozenset(Era)
LEGACY_ONLY: Final = frozenset({Era.LEGACY})
MODERN_ONLY: Final = frozenset({Era.MODERN})


def _refused(error: OverLimitError, request: RequestContext) -> JsonObject:
    raise TooManyRequestsError(request.catalog.redactor.text(str(error)), retry_after=error.retry_after) from error


@dataclass(frozen=True, slots=True)
class Method:
    handler: Handler
    eras: frozenset[Era]
    is_call: bool = False
    """Whether it runs what the operator or an author wrote, and so may take a while. These are what limits count."""
    is_list: bool = False
    """Whether it lists what is on offer. `limits.rate_limit` holds for each list by itself, lest a client that begins
    by reading all of them has spent its calls."""
    refused: Callable[[OverLimitError, RequestContext], JsonObject] = _refused
    """What it is answered with where a limit refuses it."""


METHODS: Final[Mapping[str, Method]] = MappingProxyType(
    {
        "completion/complete": Method(completion.complete, BOTH, is_call=True),
        "logging/setLevel": Method(lifecycle.set_level, LEGACY_ONLY),
        "ping": Method(lifecycle.ping, LEGACY_ONLY),
        "prompts/get": Method(prompts.get_prompt, BOTH, is_call=True),
        "prompts/list": Method(prompts.list_prompts, BOTH, is_list=True),
        "resources/list": Method(resources.list_resources, BOTH, is_list=True),
        "resources/read": Method(resources.read_resource, BOTH, is_call=True),
        "resources/templates/list": Method(resources.list_resource_templates, BOTH, is_list=True),
        "resources/subscribe": Method(subscriptions.subscribe, LEGACY_ONLY),
        "resources/unsubscribe": Method(subscriptions.unsubscribe, LEGACY_ONLY),
        "server/discover": Method(lifecycle.discover, MODERN_ONLY),
        "subscriptions/listen": Method(subscriptions.listen, MODERN_ONLY),
        "tools/call": Method(tools.call_tool, BOTH, is_call=True, refused=tools.refused),
        "tools/list": Method(tools.list_tools, BOTH, is_list=True),
    }
)
"""`initialize` is not among them: it is the legacy era's door, not a method behind it."""
