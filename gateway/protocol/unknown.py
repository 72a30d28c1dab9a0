"""The errors for what nobody here is called: with a word on what became of it, if a reload took it away lately."""

from gateway.catalog.departed import Departure
from gateway.errors import ErrorCode, ResourceNotFoundError, RpcError
from gateway.plugin import ListKind
from gateway.protocol.request import Runtime


def unknown_tool(name: str, runtime: Runtime) -> RpcError:
    return RpcError(ErrorCode.INVALID_PARAMS, f"Unknown tool: {name}{_hint('tools', name, runtime)}")


def unknown_prompt(name: str, runtime: Runtime) -> RpcError:
    return RpcError(ErrorCode.INVALID_PARAMS, f"Unknown prompt: {name}{_hint('prompts', name, runtime)}")


def unknown_resource(uri: str, runtime: Runtime) -> ResourceNotFoundError:
    return ResourceNotFoundError(uri, hint=_hint("resources", uri, runtime))


def _hint(kind: ListKind, name: str, runtime: Runtime) -> str:
    match runtime.store.departed.find(kind, name):
        case None:
            return ""
        case Departure(now_called=None):
            return f" (it was removed by a reload; list the {kind} again)"
        case Departure(now_called=successor):
            return f" (since a reload it is {successor}; list the {kind} again)"
