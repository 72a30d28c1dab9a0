"""Converts Swagger 2.0 to OpenAPI 3.0. Unsupported constructs become invalid OpenAPI, so that reading them fails."""

from collections.abc import Iterator, Mapping
from typing import Final

from gateway.json_types import Json, JsonObject

_METHODS: Final = ("get", "head", "post", "put", "patch", "delete", "options")
_SCHEMA_KEYS: Final = frozenset({
    "type", "format", "items", "default", "enum", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum",
    "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf",
})  # fmt: skip
_COLLECTIONS: Final[Mapping[str, Mapping[str, Json]]] = {
    "csv": {"explode": False},
    "ssv": {"style": "spaceDelimited", "explode": False},
    "pipes": {"style": "pipeDelimited", "explode": False},
    "multi": {"explode": True},
}
_IN_BODY: Final = ("body", "formData")
_FLOWS: Final = {"accessCode": "authorizationCode", "application": "clientCredentials"}
_MOVED: Final = {"definitions": "schemas", "responses": "responses", "parameters": "parameters"}


def is_swagger(root: JsonObject) -> bool:
    return str(root.get("swagger", "")).startswith("2")


def converted(root: JsonObject) -> dict[str, Json]:
    shared = _object(root.get("parameters"))
    # OpenAPI 3 has no shared body parameters. Each one is copied into the request bodies that use it.
    bodies = {name: each for name, each in shared.items() if _place(each) in _IN_BODY}
    made: dict[str, Json] = {
        "openapi": "3.0.3",
        "info": root.get("info", {}),
        "servers": list(_servers(root)),
        "paths": {
            # Extensions start with `x-`.
            path: _path_item(_object(item), root, bodies) if path.startswith("/") else item
            for path, item in _object(root.get("paths")).items()
        },
        "components": {
            "schemas": root.get("definitions", {}),
            "responses": {
                name: _response(_object(each), _types(root, "produces"))
                for name, each in _object(root.get("responses")).items()
            },
            "parameters": {name: _parameter(each) for name, each in shared.items() if name not in bodies},
            "securitySchemes": {
                name: _scheme(_object(each)) for name, each in _object(root.get("securityDefinitions")).items()
            },
        },
    }
    made |= {key: root[key] for key in ("security", "tags", "x-mcp") if key in root}
    moved: dict[str, Json] = _with_references(made)
    return moved


def _servers(root: JsonObject) -> Iterator[JsonObject]:
    host, path = root.get("host"), str(root.get("basePath", "/"))
    if not isinstance(host, str):
        # Swagger 2.0, "Swagger Object": the default host is the one that serves the document.
        yield {"url": path}
        return
    # Prefer https.
    schemes = root.get("schemes")
    wanted = [each for each in schemes if each in ("https", "http")] if isinstance(schemes, list) else []
    yield {"url": f"{'https' if 'https' in wanted or not wanted else 'http'}://{host}{path.rstrip('/')}"}


def _path_item(item: JsonObject, root: JsonObject, bodies: Mapping[str, Json]) -> dict[str, Json]:
    common = _list(item.get("parameters"))
    made: dict[str, Json] = {key: value for key, value in item.items() if key not in {*_METHODS, "parameters"}}
    for method in _METHODS:
        if isinstance(operation := item.get(method), dict):
            made[method] = _operation(operation, common, root, bodies)
    return made


def _operation(
    operation: JsonObject, common: list[Json], root: JsonObject, bodies: Mapping[str, Json]
) -> dict[str, Json]:
    given = [_resolved(each, bodies) for each in (*common, *_list(operation.get("parameters")))]
    # Swagger 2.0, "Operation Object": an operation overrides the path's parameter with the same name and `in`.
    by_key = {repr((each.get("$ref"), each.get("name"), each.get("in"))): each for each in given}  # of any type
    parameters = list(by_key.values())
    consumes = _types(operation, "consumes") or _types(root, "consumes")
    made: dict[str, Json] = {
        key: value for key, value in operation.items() if key not in {"consumes", "produces", "parameters", "schemes"}
    }
    made["parameters"] = [_parameter(each) for each in parameters if _place(each) not in _IN_BODY]
    if not isinstance(operation.get("parameters", []), list):
        made["parameters"] = "not a list"  # invalid, so that the operation is skipped instead of losing its body
    if body := _body(parameters, consumes):
        made["requestBody"] = body
    produces = _types(operation, "produces") or _types(root, "produces")
    made["responses"] = {
        status: _response(_object(each), produces) for status, each in _object(operation.get("responses")).items()
    }
    return made


def _resolved(parameter: Json, bodies: Mapping[str, Json]) -> dict[str, Json]:
    given = _object(parameter)
    return _object(bodies.get(str(given.get("$ref", "")).rpartition("/")[2], given))


def _place(parameter: Json) -> Json:
    return _object(parameter).get("in")


def _parameter(parameter: Json) -> dict[str, Json]:
    given = _object(parameter)
    if "$ref" in given:
        return given
    made: dict[str, Json] = {
        key: value for key, value in given.items() if key not in {*_SCHEMA_KEYS, "collectionFormat"}
    }
    made["schema"] = {key: given[key] for key in _SCHEMA_KEYS if key in given}
    if given.get("type") == "array":
        made |= _collection(given)
        if given.get("in") != "query":
            made["explode"] = False
    return made


def _collection(given: JsonObject) -> Mapping[str, Json]:
    name = str(given.get("collectionFormat", "csv"))
    # OpenAPI 3 has no style for tabs (`tsv`). An invalid style is passed on.
    return _COLLECTIONS.get(name, {"style": name})


def _body(parameters: list[dict[str, Json]], consumes: list[str]) -> JsonObject | None:
    # Swagger 2.0, "Parameter Object": an operation has either a body or form parameters.
    whole = next((each for each in parameters if each.get("in") == "body"), None)
    if whole is not None:
        types = consumes or ["application/json"]
        return {
            **{key: whole[key] for key in ("description", "required") if key in whole},
            "content": {each: {"schema": whole.get("schema", {})} for each in types},
        }
    fields = [each for each in parameters if each.get("in") == "formData"]
    if not fields:
        return None
    if not all(isinstance(each.get("name"), str) for each in fields):
        return {"content": "a form parameter has no `name`"}
    has_files = any(each.get("type") == "file" for each in fields)
    required = [each["name"] for each in fields if each.get("required") is True]
    schema: dict[str, Json] = {"type": "object", "properties": {each["name"]: _field(each) for each in fields}}
    encoding = {
        each["name"]: dict(_collection(each)) for each in fields if each.get("type") == "array" and not has_files
    }
    # Files are sent as multipart, even if `consumes` differs.
    is_multipart = has_files or "multipart/form-data" in consumes
    media: dict[str, Json] = {"schema": {**schema, "required": required} if required else schema}
    if encoding and not is_multipart:
        media["encoding"] = encoding
    kind = "multipart/form-data" if is_multipart else "application/x-www-form-urlencoded"
    return {"required": bool(required), "content": {kind: media}}


def _field(parameter: JsonObject) -> dict[str, Json]:
    made = {key: parameter[key] for key in (*_SCHEMA_KEYS, "description") if key in parameter}
    return {**made, "type": "string", "format": "binary"} if made.get("type") == "file" else made


def _response(response: dict[str, Json], produces: list[str]) -> dict[str, Json]:
    if "schema" not in response:
        return response
    made = {key: value for key, value in response.items() if key not in {"schema", "examples", "headers"}}
    return {**made, "content": {each: {"schema": response["schema"]} for each in produces or ["application/json"]}}


def _scheme(scheme: dict[str, Json]) -> dict[str, Json]:
    match scheme.get("type"):
        case "basic":
            return {"type": "http", "scheme": "basic"}
        case "oauth2":
            flow = str(scheme.get("flow", "implicit"))
            urls = {key: scheme[key] for key in ("authorizationUrl", "tokenUrl", "scopes") if key in scheme}
            return {"type": "oauth2", "flows": {_FLOWS.get(flow, flow): urls}}
    return scheme


def _with_references(value: Json) -> Json:
    if isinstance(value, list):
        return [_with_references(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: _with_references(member) for key, member in value.items()}
    if isinstance(name := made.get("discriminator"), str):
        made["discriminator"] = {"propertyName": name}
    if made.get("x-nullable") is True:
        made.setdefault("nullable", True)
    if isinstance(reference := made.get("$ref"), str) and reference.startswith("#/"):
        section, slash, rest = reference[2:].partition("/")
        if section in _MOVED and slash:
            made["$ref"] = f"#/components/{_MOVED[section]}/{rest}"
    return made


def _types(value: JsonObject, key: str) -> list[str]:
    return [each for each in _list(value.get(key)) if isinstance(each, str)]


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}
