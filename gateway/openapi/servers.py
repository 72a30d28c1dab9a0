"""Base URLs and security of operations: the servers of a document, and the credentials that a connection must have."""

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urljoin, urlsplit

from gateway.config.models.backends import Connection
from gateway.json_types import Json
from gateway.openapi.document import DocumentError
from gateway.openapi.operations import Operation
from gateway.openapi.references import Node, References

_AUTHORIZATION: Final = ("header", "authorization")
_VARIABLE: Final = re.compile(r"\{([^{}]+)\}")


class RelativeServerError(DocumentError):
    """The server of an operation is relative, and there is nothing that it could be relative to."""


def base_url(operation: Operation, root: Node) -> str:
    """The base URL of an operation that has no connection: its first server, relative to the document's URL.

    Raises:
        DocumentError: it cannot be known.
    """
    server = own_server(operation) or _first(root.at("servers")) or "/"
    # OpenAPI 3.0.3, "Server Object": a relative URL is relative to the place of the document.
    no_url = f"its server is `{server}`, which is no URL: name a `connection` with the `base_url`"
    try:
        url = urljoin(root.uri, server) if root.uri.startswith(("http://", "https://")) else server
        parts = urlsplit(url)
    except ValueError as error:
        raise DocumentError(no_url) from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise (DocumentError if parts.scheme else RelativeServerError)(no_url)
    # OpenAPI 3.0.3 "Paths Object": a path is appended to it, not resolved against it.
    return url.partition("#")[0].partition("?")[0].rstrip("/")


def own_server(operation: Operation) -> str | None:
    """The server that the operation, or its path, has for itself."""
    found = (_first(around.at("servers")) for around in (operation.node, *operation.items))
    return next(filter(None, found), None)


def _first(servers: Node) -> str | None:
    """The URL of the first server, with the defaults of its variables."""
    if not isinstance(servers.value, list) or not servers.value:
        return None
    server = servers.value[0] if isinstance(servers.value[0], dict) else {}
    variables = server.get("variables")
    known = variables if isinstance(variables, dict) else {}

    def default(match: re.Match[str]) -> str:
        said = known.get(match[1])
        if not isinstance(said, dict) or said.get("default") is None:
            message = f"its server `{url}` has no default for `{match[1]}`: name a `connection` with the `base_url`"
            raise DocumentError(message, pointer=(*servers.pointer, "0"))
        return str(said["default"])

    url = server.get("url")
    return _VARIABLE.sub(default, url) if isinstance(url, str) and url else None


def missing_schemes(
    operation: Operation, root: Node, references: References, connection: Connection | None
) -> list[str]:
    """The security schemes that an operation needs and the connection has not; empty if any alternative is met."""
    # OpenAPI 3.0.3 "Operation Object": an operation's own replaces the document's, an empty list too.
    required = operation.node.value.get("security", root.value.get("security"))
    if not isinstance(required, list) or not required:
        return []
    alternatives = [each for each in required if isinstance(each, dict)]
    lacking = [
        [name for name in each if not _is_met(scheme_of(name, root, references), connection)] for each in alternatives
    ]
    # `{}` among the alternatives lacks nothing: it makes security optional.
    return min(lacking, key=len, default=[])


def credentials(scheme: Mapping[str, Json], variable: str) -> str:
    """The YAML that adds the credentials of a scheme to a connection."""
    name, secret = scheme.get("name", "X-API-Key"), f"${{env:{variable}}}"
    match scheme.get("type"), scheme.get("in"):
        case "apiKey", "query":
            return f'query: {{{name}: "{secret}"}}'
        case "apiKey", "cookie":
            return f'headers: {{Cookie: "{name}={secret}"}}'
        case "apiKey", _:
            return f'headers: {{{name}: "{secret}"}}'
        case "mutualTLS", _:
            return "tls: {cert: client.pem, key: client.key}"
        case "http", _ if str(scheme.get("scheme")).lower() == "basic":
            return f'auth: {{basic: {{username: me, password: "{secret}"}}}}'
    return f'auth: {{bearer: "{secret}"}}'


def scheme_of(name: str, root: Node, references: References) -> Mapping[str, Json]:
    try:
        value = references.follow(root.at("components", "securitySchemes", name)).value
    except DocumentError:
        return {}
    return value if isinstance(value, dict) else {}


def credential_fields(root: Node, references: References, connection: Connection | None) -> frozenset[tuple[str, str]]:
    """The fields of a request that callers must not choose: the place of each, and its name in lower case.

    They are the API keys of the document's security schemes, and what the connection itself sends.
    """
    found = [scheme_of(name, root, references) for name, _ in root.at("components", "securitySchemes").members()]
    return sent_fields(connection) | {_field_of(each) for each in found if each.get("type") == "apiKey"}


def sent_fields(connection: Connection | None) -> frozenset[tuple[str, str]]:
    """The fields of a request that a connection sends itself; the same form as `credential_fields`."""
    if connection is None:
        return frozenset()
    fields = {("query", name.lower()) for name in connection.query}
    for name, value in connection.headers.items():
        fields.add(("header", name.lower()))
        if name.lower() == "cookie":
            fields |= {("cookie", each.partition("=")[0].strip().lower()) for each in value.split(";")}
    return frozenset(fields)


def _field_of(scheme: Mapping[str, Json]) -> tuple[str, str]:
    return str(scheme.get("in", "header")), str(scheme.get("name", "")).lower()


def _is_met(scheme: Mapping[str, Json], connection: Connection | None) -> bool:
    if connection is None:
        return False
    fields = sent_fields(connection)
    # `auth` sends this field.
    if connection.auth is not None:
        fields |= {_AUTHORIZATION}
    match scheme.get("type"):
        case "apiKey":
            return _field_of(scheme) in fields
        case "mutualTLS":
            return connection.tls is not None and connection.tls.cert is not None
    return _AUTHORIZATION in fields


def different_servers(operations: Iterator[Operation], base: str) -> list[str]:
    """The operations whose own server is another than the connection's, each with its server."""
    found = []
    for each in operations:
        try:
            server = own_server(each)
        except DocumentError:  # an undefined variable, which the connection makes unimportant
            continue
        if server is not None and server.startswith("http") and not server.rstrip("/").startswith(base.rstrip("/")):
            found.append(f"{each.key} ({server})")
    return found
