from argparse import Namespace
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml

from gateway.cli.console import Console
from gateway.cli.parser import Parser
from gateway.config.core_schema import scalar
from gateway.config.models.document import Document
from gateway.config.models.openapi import OpenApi
from gateway.control_characters import visible
from gateway.errors import ConfigError, ExecutionError
from gateway.executors.shared_services import running_services
from gateway.json_types import Json, JsonObject
from gateway.openapi.definitions import DocumentDefinitions, definitions_of
from gateway.openapi.document import DocumentError, LocalDocuments, Node, References, check_readable
from gateway.openapi.operations import Operation, clean, operations_of
from gateway.openapi.remote_documents import FetchedDocuments, compile_fetcher, fetch_documents
from gateway.openapi.servers import base_url

_WIDTH: Final = 110


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        summary="Convert the operations of an OpenAPI document (3.0, 3.1, Swagger 2.0) to tools in YAML.",
        epilog=f"""\
examples:
  {name} openapi shop.openapi.yaml > tools.d/shop.yaml
  {name} openapi https://shop.example.com/openapi.json --include 'tag:orders'
  {name} openapi shop.openapi.yaml --include getItem --prefix shop_ --connection shop

To serve a document without editing, and to follow its changes, add it under `openapi:` instead.

exit codes:
  0    written; skipped operations are listed
  2    the document cannot be read""",
    )
    arguments.add_argument("kind", choices=["openapi"], help="the kind of the document")
    arguments.add_argument("document", metavar="DOCUMENT", help="path or URL")
    arguments.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="WHAT",
        help="a glob of operations: operationId, `METHOD /path`, `tag:NAME` or `method:NAME`; can be repeated "
        "(default: GET and HEAD)",
    )
    arguments.add_argument("--prefix", help="prefix of the names (default: the connection's name and _)")
    arguments.add_argument(
        "--connection", metavar="NAME", help="connection of the tools (default: a new one with the document's base URL)"
    )
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    try:
        documents = await open_documents(options.document, allow_private=True)
        sections, found = imported_from(
            documents.open,
            documents.uri,
            include=options.include,
            prefix=options.prefix,
            connection=options.connection,
        )
    except (DocumentError, ExecutionError, ValueError) as error:
        raise ConfigError.at(options.document, str(error)) from error
    out.line(as_yaml(sections).rstrip("\n"))
    for _, message in found.errors:
        # Remove the hint about `ignore_security`, because tools do not have this key of `openapi:`.
        hints.foreign(message.partition(" (or ")[0])
    for _, message in found.warnings:
        hints.foreign(message)
    for operation, reason in found.left_out:
        hints.foreign(f"{operation} was not written: {reason}")
    return 0


def imported_from(
    open_document: Callable[[str], JsonObject],
    uri: str,
    *,
    include: list[str],
    prefix: str | None = None,
    connection: str | None = None,
) -> tuple[dict[str, Json], DocumentDefinitions]:
    """Convert the operations that match a pattern in `include`, or by default all GET and HEAD operations.

    Return the sections of the configuration, and the definitions with their errors and the omitted operations. An error
    reports a missing credential. Raise DocumentError if the document cannot be used.
    """
    references = References(open_document)
    root = references.root(uri)
    name = connection or clean(_title(root) or urlsplit(uri).path.rpartition("/")[2].partition(".")[0]).lower()
    entry: dict[str, Json] = {"document": uri, "connection": name}
    operations = [each for each in operations_of(Node(root, uri), references) if isinstance(each, Operation)]
    if include:
        chosen = [each.key for each in operations if any(_fits(each, pattern) for pattern in include)]
        entry["include"] = {"operations": chosen or include}
    if prefix is not None:
        entry["prefix"] = prefix
    config = OpenApi.model_validate(entry)
    found = definitions_of(uri, references, name=name, config=config)
    return _sections(found, root, uri, name, connection), found


def _fits(operation: Operation, pattern: str) -> bool:
    kind, colon, value = pattern.partition(":")
    if colon and kind == "tag":
        return any(fnmatchcase(tag, value) for tag in operation.tags)
    if colon and kind == "method":
        return fnmatchcase(operation.method, value.lower())
    return operation.fits(pattern)


def _sections(
    found: DocumentDefinitions, root: JsonObject, uri: str, name: str, connection: str | None
) -> dict[str, Json]:
    sections: dict[str, Json] = {}
    if connection is None:
        # `base_url` returns the server of the document for this placeholder operation without a server.
        operation = Operation(method="get", path="/", node=Node({}, uri), items=(Node({}, uri),))
        sections["connections"] = {name: {"base_url": base_url(operation, Node(root, uri))}}
    for kind in ("tools", "resources"):
        if made := {each.name: each.data for each in found.made if each.kind == kind}:
            sections[kind] = made
    return sections


def _title(root: JsonObject) -> str:
    info = root.get("info")
    title = info.get("title") if isinstance(info, Mapping) else None
    return title if isinstance(title, str) and len(title) <= 24 else ""


async def open_documents(document: str, *, allow_private: bool) -> LocalDocuments | FetchedDocuments:
    check_readable(document)
    if not document.lower().startswith(("https://", "http://")):
        return LocalDocuments(Path(document))
    config = OpenApi.model_validate({"document": document, "allow_private": allow_private})
    async with running_services() as services:
        fetcher = compile_fetcher(config, None, document=Document(), services=services)
        return await fetch_documents(document, fetcher, None)


def as_yaml(value: Mapping[str, Json]) -> str:
    """Return YAML 1.2 from which the gateway loads the same value. `${` is escaped as `$${`."""
    text = yaml.dump(
        _escaped(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=None
    )
    # YAML allows characters that reorder text. `_text` has quoted such strings, so escapes work here.
    return visible(text, has_lines=True)


def _escaped(value: Json) -> Json:
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _escaped(member) for key, member in value.items()}
    return value


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that repeats equal values instead of using anchors and aliases, which are harder to read."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base class's method
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if visible(text, has_lines=True) != text:
        style = '"'
    # White space at the end of a line is invisible in a block, and editors remove it.
    elif "\n" in text and not any(line != line.rstrip() for line in text.split("\n")) and text.isprintable() is False:
        style = "|"
    elif not _reads_as_itself(text):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _reads_as_itself(text: str) -> bool:
    """Return whether YAML 1.2 parses unquoted text as the same string. PyYAML only implements YAML 1.1."""
    try:
        return scalar(text) == text
    except ValueError:
        return False


_Dumper.add_representer(str, _text)
_Dumper.add_representer(dict, lambda dumper, data: dumper.represent_dict(data.items()))
