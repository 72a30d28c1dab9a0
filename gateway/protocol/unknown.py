"""The errors for what nobody here is called: with a word on what became of it, if a reload took it away lately.

The word is for those who could have seen what it was, and names nothing that they may not see now.
"""

from gateway.errors import ErrorCode, ResourceNotFoundError, RpcError
from gateway.plugin import ListKind
from gateway.protocol.request import RequestContext, Runtime


def unknown_tool(name: str, request: RequestContext, runtime: Runtime) -> RpcError:
    return RpcError(ErrorCode.INVALID_PARAMS, f"Unknown tool: {name}{_hint('tools', name, request, runtime)}")


def unknown_prompt(name: str, request: RequestContext, runtime: Runtime) -> RpcError:
    return RpcError(ErrorCode.INVALID_PARAMS, f"Unknown prompt: {name}{_hint('prompts', name, request, runtime)}")


def unknown_resource(uri: str, request: RequestContext, runtime: Runtime) -> ResourceNotFoundError:
    return ResourceNotFoundError(uri, hint=_hint("resources", uri, request, runtime))


def _hint(kind: ListKind, name: str, request: RequestContext, runtime: Runtime) -> str:
    departure = runtime.store.departed.find(kind, name)
    if departure is None or not request.exchange.caller.identity.holds(departure.scopes):
        return ""
    successor = departure.now_called
    if successor is None or not _is_listed(kind, successor, request):
        return f" (it was removed by a reload; list the {kind} again)"
    return f" (since a reload it is {successor}; list the {kind} again)"


def _is_listed(kind: ListKind, name: str, request: RequestContext) -> bool:
    match kind:
        case "tools":
            return name in request.catalog.tools
        case "prompts":
            return name in request.catalog.prompts
        case "resources":
            templates = (template.uri_template for template in request.catalog.resource_templates)
            return name in request.catalog.resources or name in templates
