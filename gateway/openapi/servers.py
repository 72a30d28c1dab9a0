"""Determines the base URLs of operations, and the credentials that a connection needs."""

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urljoin, urlsplit

from gateway.config.models.backends import Connection
from gateway.json_types import Json
from gateway.openapi.document import DocumentError, Node, References
from gateway.openapi.operations import Operation

_AUTHORIZATION: Final = ("header", "authorization")
_VARIABLE: Final = re.compile(r"\{([^{}]+)\}")


class UnusableServerError(DocumentError):
    """The document's server URLs cannot be used, so the entry needs a connection."""


def base_url(operation: Operation, root: Node) -> str:
    """Return the URL of an operation's first server, for an entry without a connection."""
    server = own_server(operation) or _first(root.at("servers")) or "/"
    # OpenAPI 3.0.3, "Server Object": a relative URL is relative to the location of the document.
    no_url = f"its server `{server}` is not an absolute URL. Set a `connection` with a `base_url`"
    try:
        url = urljoin(root.uri, server) if root.uri.startswith(("http://", "https://")) else server
        parts = urlsplit(url)
    except ValueError as error:
        raise DocumentError(no_url) from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise (DocumentError if parts.scheme else UnusableServerError)(no_url)
    # OpenAPI 3.0.3 "Paths Object": the path is appended to the base URL.
    return url.partition("#")[0].partition("?")[0].rstrip("/")


def own_server(operation: Operation) -> str | None:
    found = (_first(around.at("servers")) for around in (operation.node, *operation.items))
    return next(filter(None, found), None)


def _first(servers: Node) -> str | None:
    if not (listed := servers.items()):
        return None
    url, variables = listed[0].at("url").value, listed[0].at("variables").object

    def default(match: re.Match[str]) -> str:
        said = variables.get(match[1])
        if not isinstance(said, dict) or said.get("default") is None:
            message = f"its server `{url}` has no default for `{match[1]}`. Set a `connection` with a `base_url`"
            raise (UnusableServerError if servers.pointer == ("servers",) else DocumentError)(message)
        return str(said["default"])

    return _VARIABLE.sub(default, url) if isinstance(url, str) and url else None


def missing_schemes(
    operation: Operation, root: Node, references: References, connection: Connection | None
) -> list[str]:
    """Return the security schemes for which the connection has no credentials.

    If the operation accepts alternatives, the alternative with the fewest missing schemes is used.
    """
    # OpenAPI 3.0.3 "Operation Object": the operation's list, even if empty, overrides the document's list.
    required = operation.node.value.get("security", root.value.get("security"))
    if not isinstance(required, list) or not required:
        return []
    alternatives = [each for each in required if isinstance(each, dict)]
    lacking = [
        [name for name in each if not _is_met(scheme_of(name, root, references), connection)] for each in alternatives
    ]
    # An alternative `{}` makes security optional.
    return min(lacking, key=len, default=[])


def credentials(scheme: Mapping[str, Json], variable: str) -> str:
    """Return the YAML that makes a connection authenticate with `scheme`.

    The secret comes from the environment variable with the name `variable`.
    """
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
        return references.follow(root.at("components", "securitySchemes", name)).object
    except DocumentError:
        return {}


def credential_fields(root: Node, references: References, connection: Connection | None) -> frozenset[tuple[str, str]]:
    """Return the fields that callers must not set: API keys of security schemes, and fields that the connection sends.

    Each item contains a location, such as `header`, and a lower-case name.
    """
    found = [scheme_of(name, root, references) for name, _ in root.at("components", "securitySchemes").members()]
    return sent_fields(connection) | {_field_of(each) for each in found if each.get("type") == "apiKey"}


def sent_fields(connection: Connection | None) -> frozenset[tuple[str, str]]:
    """Return the fields that a connection sends, in the format of `credential_fields`."""
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
    if connection.auth is not None:
        fields |= {_AUTHORIZATION}
    match scheme.get("type"):
        case "apiKey":
            return _field_of(scheme) in fields
        case "mutualTLS":
            return connection.tls is not None and connection.tls.cert is not None
    return _AUTHORIZATION in fields


def different_servers(operations: Iterable[Operation], base: str) -> list[str]:
    """List the operations whose server differs from the connection's base URL, each with its server."""
    found = []
    for each in operations:
        try:
            server = own_server(each)
        except DocumentError:  # an undefined variable: the connection replaces the server
            continue
        if server is not None and server.startswith("http") and not server.rstrip("/").startswith(base.rstrip("/")):
            found.append(f"{each.key} ({server})")
    return found
