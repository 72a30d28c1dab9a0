"""Calls through `call_tool` of a search view: the request becomes one of the tool that it names. Pure.

Why here, before anything looks at the request: access, limits, metrics, audit and the state of input requests then see
the real name and the real arguments, as if the client had sent them.
"""

import orjson
from msgspec.structs import replace

from gateway import exact_json
from gateway.catalog.catalog import Catalog
from gateway.catalog.search_tools import CALL_TOOL
from gateway.json_types import Json
from gateway.wire.jsonrpc import Request


def unwrapped(request: Request, catalog: Catalog) -> Request:
    """Return the request that is meant; the same one if it is no call through `call_tool`, or a malformed one."""
    if catalog.listed_tools is None or request.method != "tools/call" or request.params.get("name") != CALL_TOOL:
        return request
    given = request.params.get("arguments")
    if not isinstance(given, dict) or not given.keys() <= {"name", "arguments"}:
        return request
    name, arguments = given.get("name"), _object(given.get("arguments", {}))
    if not isinstance(name, str) or name == CALL_TOOL or not isinstance(arguments, dict):
        return request
    return replace(request, params={**request.params, "name": name, "arguments": arguments})


def _object(value: Json) -> Json:
    """Take a string that is JSON as that: models send one where an object belongs, and arguments are coerced alike."""
    if not isinstance(value, str):
        return value
    try:
        return exact_json.loads(value)
    except orjson.JSONDecodeError:
        return value
