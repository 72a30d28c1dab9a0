"""Converts the selected operations of a document to definitions, and records why other operations were skipped.

The server and `mcp-gateway import openapi` use this module, which performs no I/O itself.
"""

from collections import Counter
from typing import Final, Literal

import msgspec
import orjson

from gateway.config.models.backends import Connection
from gateway.config.models.base import defaults_of
from gateway.config.models.definitions import OperationOverride
from gateway.config.models.openapi import OpenApi, OperationFilter
from gateway.json_types import Json
from gateway.openapi.document import DocumentError, Node, References, version_of
from gateway.openapi.operations import Operation, clean, is_chosen, names_of, operations_of, unmatched
from gateway.openapi.schemas import Schemas
from gateway.openapi.servers import (
    UnusableServerError,
    credential_fields,
    credentials,
    different_servers,
    missing_schemes,
    scheme_of,
)
from gateway.openapi.tools import ApiEntry, resource_of, tool_of

MANY_TOOLS: Final = 40
_READING: Final = OperationFilter(methods=["get", "head"])
_AS_IT_IS: Final = defaults_of(OperationOverride)


class MadeDefinition(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["tools", "resources"]
    name: str
    operation: str
    data: dict[str, Json]
    override: str | None


def definitions_of(
    uri: str, references: References, *, name: str, config: OpenApi, connection: Connection | None = None
) -> "DocumentDefinitions":
    """Convert the selected operations of the document at `uri`. `name` is the key of the entry.

    Raises:
        DocumentError: the document is not OpenAPI 3.
    """
    root = references.root(uri)
    version = version_of(root)
    node, is_3_0 = Node(dict(root), uri), version.startswith("3.0")
    made = DocumentDefinitions(
        ApiEntry(
            root=node,
            references=references,
            schemas=Schemas(references, uri=uri, is_3_0=is_3_0),
            response_schemas=Schemas(references, uri=uri, is_3_0=is_3_0, is_response=True),
            name=name,
            config=config,
            connection=connection,
            credentials=credential_fields(node, references, connection),
        )
    )
    if not version.startswith(("3.0", "3.1")):
        made.warnings.append((("document",), f"is an OpenAPI {version} document, which is read as 3.1"))
    return made


class DocumentDefinitions:
    """Converts one document. The attributes list definitions, skipped operations and problems in document order."""

    def __init__(self, api: ApiEntry) -> None:
        self.made: Final[list[MadeDefinition]] = []
        self.left_out: Final[list[tuple[str, str]]] = []
        """Operations that are skipped, with the reasons."""
        self.errors: Final[list[tuple[tuple[str, ...], str]]] = []
        """Configuration errors, each with a path below the `openapi:` entry."""
        self.warnings: Final[list[tuple[tuple[str, ...], str]]] = []
        self._config: Final = api.config
        self._api: Final = api
        self._operations: Final[list[Operation]] = []
        self._missing: Final[dict[str, list[str]]] = {}
        """Maps each security scheme without credentials to the operations that need the scheme."""
        self._without_host: Final[dict[str, list[str]]] = {}
        """Maps messages about unusable servers to the affected operations."""
        self._convert()

    def _convert(self) -> None:
        for each in operations_of(self._api.root, self._api.references):
            if isinstance(each, Operation):
                self._operations.append(each)
            else:
                self.left_out.append((each[0], str(each[1])))
        overrides = {each.key: self._override(each) for each in self._operations}
        # Names are chosen for all operations, so that changing `include` does not rename tools.
        prefix = f"{clean(self._api.name)}_" if self._config.prefix is None else self._config.prefix
        wanted = {each.key: self._wanted(each, overrides[each.key][1]) for each in self._operations}
        names = names_of(wanted, prefix=prefix)
        chosen = []
        for operation in self._operations:
            if (reason := self._skip_reason(operation)) is None:
                chosen.append(operation)
                self._make(operation, names[operation.key], *overrides[operation.key])
            else:
                self.left_out.append((operation.key, reason))
        self.errors.extend(
            (("document",), f"{_first_of(keys)}: {reason}") for reason, keys in self._without_host.items()
        )
        self._report_security()
        self._warn(chosen)

    def _override(self, operation: Operation) -> tuple[str | None, OperationOverride]:
        for key, override in self._config.override.items():
            method, _, path = key.partition(" ")
            if key == operation.id or (path == operation.path and method.lower() == operation.method):
                return key, override
        return None, _AS_IT_IS

    def _wanted(self, operation: Operation, override: OperationOverride) -> str:
        if override.name:
            return override.name
        # Ignore `x-mcp.name` of the root, which is the name of the document.
        said = operation.extension("name")
        if isinstance(said, str) and said.strip():
            return said
        return operation.id or f"{operation.method}_{clean(operation.path)}"

    def _skip_reason(self, operation: Operation) -> str | None:
        config = self._config
        if operation.extension("enabled", self._api.root) is False:
            return "`x-mcp: {enabled: false}` disables it"
        # RFC 9110 §9.3.8: the response repeats the request, so credentials must not be sent.
        if operation.method == "trace":
            return "TRACE is not supported"
        is_resource = self._is_resource(operation)
        if not is_resource and not is_chosen(operation, _READING if config.include.is_empty else config.include):
            is_default = config.include.is_empty
            return "without `include`, only GET and HEAD are tools" if is_default else "`include` does not match it"
        if not config.exclude.is_empty and is_chosen(operation, config.exclude):
            return "`exclude` matches it"
        return None

    def _is_resource(self, operation: Operation) -> bool:
        return any(map(operation.fits, self._config.resources.operations))

    def _make(self, operation: Operation, name: str, key: str | None, override: OperationOverride) -> None:
        is_resource = self._is_resource(operation)
        try:
            if is_resource:
                # RFC 3986 §6.2.2.1: clients normalize schemes to lower case.
                data = resource_of(operation, self._api, override, scheme=self._api.name.lower())
            else:
                data = tool_of(operation, self._api, override)
        except DocumentError as error:
            self.left_out.append((operation.key, str(error)))
            # A configuration error, reported once for all affected operations.
            if isinstance(error, UnusableServerError):
                self._without_host.setdefault(str(error), []).append(operation.key)
            # Report the error at the override too, because the override can be the cause.
            if key is not None and (override.hide or override.set):
                self.errors.append((("override", key), str(error)))
            return
        # The conversion can raise RecursionError, and orjson stops at 254 levels.
        except (RecursionError, orjson.JSONEncodeError):
            self.left_out.append((operation.key, "it is nested too deeply"))
            return
        if not self._config.ignore_security:
            root, references = self._api.root, self._api.references
            for scheme in missing_schemes(operation, root, references, self._api.connection):
                self._missing.setdefault(scheme, []).append(operation.key)
        kind: Literal["tools", "resources"] = "resources" if is_resource else "tools"
        made = MadeDefinition(kind=kind, name=name, operation=operation.key, data=data, override=key)
        self.made.append(made)

    def _report_security(self) -> None:
        place = ("connection",) if self._config.connection is not None else ()
        for scheme, keys in sorted(self._missing.items()):
            variable = f"{clean(self._api.name).upper()}_TOKEN".replace("-", "_")
            found = scheme_of(scheme, self._api.root, self._api.references)
            name = self._config.connection or clean(self._api.name)
            state = "but the connection has none" if place else "but `connection` is not set"
            message = (
                f"{_first_of(keys)} need credentials for the security scheme `{scheme}`, {state}. "
                f"Add to `connections.{name}`: "
                f"{credentials(found, variable)} (or set `ignore_security: true` here)"
            )
            self.errors.append((place, message))

    def _warn(self, chosen: list[Operation]) -> None:
        warnings = self.warnings
        for message, operations in self._api.notes.items():
            warnings.append((("document",), f"{_first_of(operations)}: {message}"))
        if not self.made:
            reasons = Counter(reason for _, reason in self.left_out)
            shown = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common(3))
            warnings.append(((), f"no tools or resources: {shown or 'the document has no operations'}"))
        for key in ("include", "exclude", "resources"):
            for pattern in unmatched(getattr(self._config, key).operations, self._operations):
                warnings.append(((key, "operations"), f"`{pattern}` matches no operation of the document"))
        used = {key for key, _ in map(self._override, self._operations)}
        for key in self._config.override:
            if key not in used:
                warnings.append((("override", key), f"the document has no operation `{key}`"))
        tools = sum(each.kind == "tools" for each in self.made)
        if tools > MANY_TOOLS:
            message = (
                f"{tools} tools are too many for models to choose from reliably. Use `include` to select some, or a "
                "view with `search: true`"
            )
            warnings.append(((), message))
        if self._api.connection is not None:
            differing = different_servers(chosen, self._api.connection.base_url)
            if differing:
                shown = ", ".join(differing[:3]) + (f" and {len(differing) - 3} more" if len(differing) > 3 else "")
                warnings.append((("connection",), f"replaces the servers of these operations: {shown}"))


def _first_of(keys: list[str]) -> str:
    return f"{keys[0]} and {len(keys) - 1} more" if len(keys) > 1 else keys[0]
