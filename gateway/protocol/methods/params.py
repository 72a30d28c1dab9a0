from gateway.errors import ErrorCode, RpcError
from gateway.json_types import JsonObject, present


def string(params: JsonObject, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise _invalid(name, "a string")
    return value


def mapping(params: JsonObject, name: str) -> JsonObject:
    """Return an object, or an empty one if it is missing or null."""
    value = present(params).get(name, {})
    if not isinstance(value, dict):
        raise _invalid(name, "an object")
    return value


def strings(params: JsonObject, name: str) -> dict[str, str]:
    """Return an object with string values. Null members are ignored."""
    value = dict(present(mapping(params, name)))
    for key, entry in value.items():
        if not isinstance(entry, str):
            raise _invalid(f"{name}.{key}", "a string")
    return value


def _invalid(name: str, expected: str) -> RpcError:
    return RpcError(ErrorCode.INVALID_PARAMS, f"`{name}` must be {expected}")
