"""Not-found errors, with a hint when a reload removed or renamed the target.

Only callers that could see the target get the hint, and it names nothing that they may not see now.
"""

from gateway.errors import ErrorCode, ResourceNotFoundError, RpcError
from gateway.plugin import ListKind
from gateway.protocol.call.call import Call


def unknown_tool(name: str, call: Call) -> RpcError:
    return RpcError(ErrorCode.INVALID_PARAMS, f"Unknown tool: {name}{_hint('tools', name, call)}")


def unknown_prompt(name: str, call: Call) -> RpcError:
    return RpcError(ErrorCode.INVALID_PARAMS, f"Unknown prompt: {name}{_hint('prompts', name, call)}")


def unknown_resource(uri: str, call: Call) -> ResourceNotFoundError:
    return ResourceNotFoundError(uri, hint=_hint("resources", uri, call))


def _hint(kind: ListKind, name: str, call: Call) -> str:
    tombstone = call.server.store.tombstones.find(kind, name)
    if tombstone is None or not call.caller.identity.holds(tombstone.scopes):
        return ""
    view = None if call.catalog.view is None else call.catalog.views[call.catalog.view]
    if view is not None and not view.holds(kind, tags=tombstone.tags, names=[name]):
        return ""
    successor = tombstone.now_called
    if successor is None or not _is_listed(kind, successor, call):
        return f" (it was removed by a reload; list the {kind} again)"
    return f" (since a reload it is {successor}; list the {kind} again)"


def _is_listed(kind: ListKind, name: str, call: Call) -> bool:
    match kind:
        case "tools":
            return name in call.catalog.tools
        case "prompts":
            return name in call.catalog.prompts
        case "resources":
            templates = (template.uri_template for template in call.catalog.resource_templates)
            return name in call.catalog.resources or name in templates
