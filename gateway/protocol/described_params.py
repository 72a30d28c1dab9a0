"""Parameters of requests as logs and the audit log have them: described files in place of their bytes. Pure."""

from collections.abc import Mapping

from gateway.catalog.catalog import Catalog
from gateway.catalog.search_tools import CALL_TOOL
from gateway.json_types import JsonObject


def described_params(method: str, params: JsonObject, catalog: Catalog) -> JsonObject:
    """Return the parameters, in which each file that is given to a tool is an object with its type, name and size."""
    name, arguments = params.get("name"), params.get("arguments")
    if method != "tools/call" or not isinstance(name, str) or not isinstance(arguments, Mapping):
        return params
    if name == CALL_TOOL:
        return {**params, "arguments": described_params(method, arguments, catalog)}
    tool = catalog.tool(name)
    return params if tool is None else {**params, "arguments": tool.arguments.described(arguments)}
