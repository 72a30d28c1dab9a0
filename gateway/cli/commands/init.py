import json
import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gateway.cli.commands.import_openapi import open_documents
from gateway.cli.console import Console
from gateway.cli.database_file import of_database, path_from
from gateway.cli.parser import Parser
from gateway.cli.results import writing
from gateway.config.machine_facts import is_directory, is_file
from gateway.config.reading.mcp_servers_file import read_mcp_servers_file
from gateway.config.reading.source_file import SourceFile, UnreadableError, decode, read_bytes
from gateway.errors import ConfigError, ExecutionError, Severity
from gateway.executors.sql.dialects import DIALECTS
from gateway.json_types import JsonObject
from gateway.net.address_guard import AddressGuard, AddressRefusedError
from gateway.openapi.document import DocumentError, Node, References, version_of
from gateway.openapi.operations import Operation, clean, operations_of
from gateway.openapi.servers import base_url, credentials, missing_schemes, scheme_of

_FIRST_FILE: Final = """\
# The configuration of an MCP server. `mcp-gateway validate` checks it. A running server reloads it when you save it.

server:
  name: my-tools
  instructions: Information that a model needs before it uses these tools.

tools:
  hello:
    description: Greet someone by name.
    annotations: {read_only: true}
    input:
      name: {type: string, description: Name of the person to greet, default: world}
    shell:
      # A list of arguments without a shell: each value stays a single argument.
      command: [echo, "Hello, {{ name }}!"]

  disk_free:
    description: Free space of the file systems.
    annotations: {read_only: true}
    input:
      human: {type: boolean, description: "Show sizes in KiB, MiB and GiB", default: true}
    shell:
      command: [df, -P, {if: human, then: [-h]}]

  # An HTTP API is called like this (https://example.com is only an example):
  # get_item:
  #   description: One item of the shop.
  #   input: {id: integer}
  #   http: {url: "https://example.com/items/{id}"}

resources:
  about:
    uri: "about://this-server"
    mime_type: text/markdown
    text: |
      # About this server
      Clients read this as a resource.

prompts:
  check_disks:
    description: Check the free space of all disks.
    arguments:
      concern: {description: The problem to look for, default: disks that are almost full}
    messages:
      - user: "Use `disk_free` and tell me about {{ concern }}."
"""

_CLIENT_SERVERS: Final = """\
# The servers of an MCP client, behind one URL. `mcp-gateway list` shows their tools.

mcp_json: [{file}]

# Select, rename or change their tools here:
# upstreams:
#   another:
#     url: https://mcp.example.com/mcp
#     tools: {{include: [search_*], override: {{search_all: {{confirm: "Search {{{{ query }}}}?"}}}}}}

server:
  name: my-servers
"""

_TEXT: Final = """\
# Each operation of an API becomes a tool. `mcp-gateway validate --list --connect` shows the others, with the reasons.

connections:
  {name}:
    base_url: {base_url}{note}
{access}
openapi:
  {name}:
    document: {document}
    connection: {name}
    # By default, only read operations (GET and HEAD) become tools. To choose others:
    # include: {{tags: [orders], operations: ["POST /items"], methods: [get, post]}}

server:
  name: {name}
"""
_READ: Final = frozenset({"get", "head"})
_NO_SERVER: Final = "https://api.example.com"


async def of_document(document: str, directory: Path | None) -> str:
    """Return a configuration for an OpenAPI document. `document` is a path, or a URL to fetch."""
    private: set[str] = set()
    try:
        try:
            documents = await open_documents(document, allow_private=False)
        except ExecutionError:
            documents = await open_documents(document, allow_private=True)
            private.add(urlsplit(document).hostname or "")
        references = References(documents.open)
        root = references.root(documents.uri)
        version_of(root)
    except (DocumentError, ExecutionError, ValueError) as error:
        raise ConfigError.at(document, str(error)) from error
    return _text(document, directory, references, Node(root, documents.uri), private)


def _text(document: str, directory: Path | None, references: References, root: Node, private: set[str]) -> str:
    server, note = _server(root)
    if _is_private(server):
        private.add(urlsplit(server).hostname or "")
    name = _name(root.value, document)
    return _TEXT.format(
        name=name,
        base_url=json.dumps(server),
        note=note,
        access="".join(f"    {line}\n" for line in _access(name, root, references, private)),
        document=json.dumps(document if "://" in document else path_from(directory, document)),
    )


def _server(root: Node) -> tuple[str, str]:
    try:
        return base_url(Operation(method="get", path="/", node=Node({}, root.uri), items=()), root), ""
    except DocumentError:
        return _NO_SERVER, "  # The document has no absolute server URL: replace this one."


def _is_private(url: str) -> bool:
    try:
        AddressGuard().check_spelled(urlsplit(url).hostname or "")
    except AddressRefusedError:
        return True
    return False


def _access(name: str, root: Node, references: References, private: set[str]) -> list[str]:
    lines: list[str] = []
    if private:
        lines += [
            "# The API has a private address. Only requests of this connection can reach it.",
            f"allow_private: {json.dumps(sorted(private))}",
        ]
    variable = f"{name.upper()}_TOKEN"
    settings: dict[str, str] = {}
    for operation in operations_of(root, references):
        if isinstance(operation, Operation) and operation.method in _READ:
            for scheme in missing_schemes(operation, root, references, None):
                setting = credentials(scheme_of(scheme, root, references), variable)
                settings.setdefault(setting.partition(":")[0], setting)
    for key, setting in settings.items():
        if key == "tls":
            lines.append(f"# {setting}")
        else:
            # Add a default to the variable, so that the file can be served before the variable is set.
            secret = setting.replace(f"${{env:{variable}}}", f"${{env:{variable}:-none}}")
            lines += [f"# Set {variable} to your credentials.", secret]
    return lines


def _name(root: JsonObject, document: str) -> str:
    info = root.get("info")
    title = str(info.get("title") or "") if isinstance(info, Mapping) else ""
    words = _words(title) or _words(Path(document.rstrip("/")).name.partition(".")[0]) or "api"
    return clean(words if words[0].isalpha() else f"api_{words}")


def _words(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()[:40]).strip("_")


_SERVERS: Final = frozenset(name for name, dialect in DIALECTS.items() if not dialect.is_file)
_KINDS: Final = ("mcp-json", "openapi", *DIALECTS)
"""The kinds of sources that `--from` accepts."""


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        words="[PATH] [--from KIND SOURCE]",
        summary="Write a small commented file to start from.",
        epilog=f"""\
examples:
  {name}
  {name} ops/config.yaml
  {name} --from mcp-json .mcp.json            the servers of an MCP client
  {name} --from openapi shop.openapi.yaml     an API's document, or its URL
  {name} --from sqlite shop.db                the tables of a database, read only
  {name} --from postgres postgresql://app@db/shop""",
    )
    arguments.add_argument("path", nargs="?", type=Path, default=Path("config.yaml"), help="(default: config.yaml)")
    arguments.add_argument(
        "--from",
        nargs=2,
        dest="source",
        metavar=("KIND", "SOURCE"),
        help=f"start from a file or URL: {', '.join(_KINDS)}",
    )
    return arguments


async def run(options: Namespace, out: Console, _hints: Console) -> int:
    path = options.path / "config.yaml" if is_directory(options.path) else options.path
    if options.source is None:
        text = _FIRST_FILE
    else:
        kind, source = options.source
        text = await text_of(kind, source, directory=path.parent)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # The mode "x" fails if the file exists, even if another process has just created the file.
            with path.open("x") as file:
                file.write(text)
        except FileExistsError as error:
            raise ConfigError.at(str(path), "already exists and was not overwritten") from error
    out.line(f"Wrote {path}. Now:")
    tried = (f"mcp-gateway list {path}", "what it offers")
    if options.source is None:
        tried = (f"mcp-gateway call {path} hello name=Ada", "try a tool, without a server")
    for command, what in (
        (f"mcp-gateway validate {path}", "check it after each change"),
        tried,
        (f"mcp-gateway serve {path}", "serve it at http://127.0.0.1:8000/mcp"),
    ):
        out.line(f"  {out.styled(command, 'cyan')}  # {what}")
    return 0


async def text_of(kind: str, source: str, *, directory: Path | None, option: str = "--from") -> str:
    kind = "mcp-json" if kind == "mcp.json" else kind
    if kind not in _KINDS:
        raise ConfigError.at("--from", f"unknown kind {kind!r}; expected one of {', '.join(_KINDS)}")
    is_remote = kind in _SERVERS or (kind == "openapi" and "://" in source)
    if not is_remote and not is_file(source):
        raise ConfigError.at(source, "no such file")
    if kind == "openapi":
        return await of_document(source, directory)
    return _of_servers(source, directory) if kind == "mcp-json" else await of_database(kind, source, directory, option)


def _of_servers(file: str, directory: Path | None) -> str:
    """Return a configuration for the MCP servers in the JSON file of an MCP client."""
    try:
        source = SourceFile(Path(file), decode(read_bytes(Path(file))))
    except UnreadableError as error:
        raise ConfigError.at(f"{file}:{error.line}:{error.column}", str(error)) from error
    _, diagnostics = read_mcp_servers_file(source)
    for each in diagnostics:
        if each.severity is Severity.ERROR and each.place is not None:
            raise ConfigError.at(f"{file}:{each.place.line}:{each.place.column}", each.message)
    # Write the path as a JSON string, which is valid YAML and escapes special characters.
    return _CLIENT_SERVERS.format(file=json.dumps(path_from(directory, file)))
