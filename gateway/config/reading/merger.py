"""Merges the files of a configuration into one document.

Each definition is validated separately, so that an error does not hide others. Invalid definitions are left out.
"""

from collections.abc import Collection, Mapping
from functools import cache
from io import StringIO
from itertools import chain
from typing import Final, TypeVar

import msgspec
from dotenv import dotenv_values
from pydantic import ValidationError, create_model

from gateway.config.diagnostics.near_misses import nearest
from gateway.config.diagnostics.render import shown_path
from gateway.config.models.backends import Connection
from gateway.config.models.base import Model, plain_text
from gateway.config.models.definition_keys import Definition
from gateway.config.models.definitions import Prompt, PromptHead, Resource, Tool, backends_of
from gateway.config.models.document import MAIN_FILE_ONLY, Database, Document, View
from gateway.config.models.openapi import OpenApi
from gateway.config.models.upstreams import Upstream
from gateway.config.reading.front_matter import read_prompt
from gateway.config.reading.inclusion import Inclusion, Part, Request
from gateway.config.reading.interpolation import Interpolator
from gateway.config.reading.mcp_servers_file import ClientServer, read_mcp_servers_file
from gateway.config.reading.nodes import (
    START,
    Diagnostic,
    Invalid,
    MapItem,
    Node,
    NodeRef,
    Place,
    Scalar,
    Sequence,
    place_of,
)
from gateway.config.reading.nodes import Mapping as MappingNode
from gateway.config.reading.source_file import SourceFile
from gateway.config.reading.validation_messages import (
    diagnostics_of,
    expected,
    keys_of,
    models_of,
    unknown_key,
    without_errors,
)
from gateway.errors import Severity
from gateway.json_types import DocumentPath, Json

M = TypeVar("M", bound=Model)

DEFINITIONS: Final[Mapping[str, type[Model]]] = {
    "connections": Connection,
    "databases": Database,
    "tools": Tool,
    "resources": Resource,
    "prompts": Prompt,
    "upstreams": Upstream,
    "openapi": OpenApi,
    "views": View,
}
"""Sections that map names to definitions, merged from all files."""

LISTS: Final = ("include", "plugins", "prompt_files", "mcp_json")
"""Lists of paths, concatenated from all files."""

ITEMS: Final = ("skills",)
"""Lists of mappings, concatenated from all files."""

_NEVER_EMPTY: Final = {"auth": "is empty, so no one would have to authenticate; add `api_keys`"}
"""Sections that would be dangerous to ignore when empty."""

_CONTRADICTIONS: Final = frozenset({"too_many_given", "not_together", "two_bodies", "read_only_writes"})
"""Errors about a combination of keys. Removing invalid values never causes them."""
_REPAIRS: Final = 3
"""Maximum number of attempts to remove invalid values."""

_WITH_BACKEND: Final = ("tools", "resources")
_MISPLACED_BACKEND: Final = "`{}` is a backend: indent it, so that it is a key of the definition above"

_DEFAULTS: Final = {name: field.default for name, field in Document.model_fields.items()}


@cache
def _document_of(section: str) -> type[Model]:
    """Return the model of a document with one section.

    Building the validator of the whole `Document` takes longer than reading a small file.
    """
    field = Document.model_fields[section]
    fields: dict[str, Json] = {section: (field.annotation, field)}
    return create_model(Document.__name__, __base__=Model, **fields)


class Merger:
    def __init__(self, inclusion: Inclusion, interpolation: Interpolator) -> None:
        """Start with an empty document, after `inclusion` has read all files."""
        self.repaired: dict[DocumentPath, Definition] = {}
        """Broken definitions without their invalid values."""
        self.diagnostics: list[Diagnostic] = []
        self._inclusion = inclusion
        self._interpolation = interpolation
        self._sections: dict[str, _Section] = {}
        self._single: dict[str, tuple[MapItem, Json]] = {}

    def add(self, part: Part) -> None:
        for key, entry in sorted(part.root.entries.items(), key=lambda item: item[0] in {"prompt_files", "mcp_json"}):
            # Reserved for anchors.
            if key.startswith("x-"):
                continue
            if key not in Document.model_fields:
                is_backend = key in backends_of(Tool)
                self._report(
                    _MISPLACED_BACKEND.format(key) if is_backend else unknown_key(key, Document), (key,), entry.place
                )
            elif key in MAIN_FILE_ONLY and not part.is_main:
                self._report(
                    f"`{key}` is allowed only in the main file, but this file is included", (key,), entry.place
                )
            elif entry.is_empty:
                if key in _NEVER_EMPTY:
                    self._report(_NEVER_EMPTY[key], (key,), entry.place)
            elif key in DEFINITIONS:
                self._definitions(key, entry)
            elif key in LISTS:
                self._list(key, entry)
            elif key in ITEMS:
                self._items(key, entry)
            else:
                self._single_section(key, entry)

    # Sections that map names to definitions.

    def _definitions(self, section: str, entry: MapItem) -> None:
        self._sections.setdefault(section, _Section(entry))
        if not isinstance(entry.node, MappingNode):
            if not (isinstance(entry.node, Scalar) and isinstance(entry.node.value, Invalid)):
                given: Json = [] if isinstance(entry.node, Sequence) else entry.node.value
                message = expected("a mapping (`name: …`)", given)
                self._report(message, (section,), place_of(entry, entry.node))
            return
        for name, definition in entry.node.entries.items():
            path = (section, name)
            if section in _WITH_BACKEND and _is_backend(name, definition.node, DEFINITIONS[section]):
                self._report(_MISPLACED_BACKEND.format(name), path, definition.place)
            elif "${" not in name or self._interpolation.check_key(name, path, definition.place):
                self._add(section, name, definition, self._read(DEFINITIONS[section], definition, path))

    def _read(self, model: type[M], item: MapItem, path: DocumentPath) -> M | None:
        """Validate an entry. Return None after reporting errors."""
        data = self._interpolation.fill(item.node, path)
        try:
            value = model.model_validate(data)
        except ValidationError as error:
            written = NodeRef(node=item.node, path=path, entry=item)
            self.diagnostics.extend(diagnostics_of(error, model=model, data=data, written=written))
            self._repair(model, data, error, written=written)
            return None
        # An anchor outside this entry can contain an unreadable value.
        if (self._inclusion.diagnostics or self._interpolation.diagnostics) and _has_invalid(data):
            self._repair(model, data, None, written=NodeRef(node=item.node, path=path, entry=item))
            return None
        return value

    def _repair(self, model: type[Model], data: Json, error: ValidationError | None, *, written: NodeRef) -> None:
        """Remove the invalid values of a definition, so that the compiler can find further errors in it."""
        if not issubclass(model, Definition) or model is PromptHead:
            return
        for _ in range(_REPAIRS):
            data = without_errors(data, error, model)
            if data is None:
                return
            try:
                value = model.model_validate(data)
            except ValidationError as further:
                found = diagnostics_of(further, model=model, data=data, written=written, kinds=_CONTRADICTIONS)
                self.diagnostics.extend(found)
                error = further
            else:
                self.repaired[written.path] = value
                return

    def _add(self, section: str, name: str, entry: MapItem, value: Model | None) -> None:
        merged = self._sections.setdefault(section, _Section(entry))
        if (first := merged.entries.get(name)) is not None:
            message = f"`{name}` is defined twice, first at {_shown(first.place)}"
            self._report(message, (section, name), entry.place)
            return
        merged.entries[name] = entry
        if value is not None:
            merged.values[name] = value.below(entry.source.directory) if isinstance(value, Upstream) else value

    # Sections that are lists of paths.

    def _list(self, section: str, entry: MapItem) -> None:
        merged = self._sections.setdefault(section, _Section(entry))
        if section == "include":  # already read
            return
        requests = self._inclusion.requests(entry, section)
        merged.items.extend(getattr(entry.node, "items", ()))
        merged.texts.extend(request.text for request in requests)
        if section == "prompt_files":
            for request in requests:
                self._prompt_files(request, entry)
        elif section == "mcp_json":
            for request in requests:
                self._client_files(request, entry)

    def _prompt_files(self, request: Request, entry: MapItem) -> None:
        self._sections.setdefault("prompts", _Section(entry))
        for path in self._inclusion.matches(request, suffixes=(".md",)):
            # Two globs can match the same file.
            if path in self._inclusion.digests:
                continue
            source = self._inclusion.source(path, request)
            if source is not None:
                self._prompt_file(source)

    def _prompt_file(self, source: SourceFile) -> None:
        name = source.path.stem
        path = ("prompts", name)
        prompt = read_prompt(source)
        self.diagnostics.extend(
            Diagnostic(message=diagnostic.message, path=(*path, *diagnostic.path), place=diagnostic.place)
            for diagnostic in prompt.diagnostics
        )
        value: Prompt | None = None
        if prompt.head is not None:
            head_entry = MapItem(source, prompt.head.start, prompt.head)
            head = self._read(PromptHead, head_entry, path)
            if head is not None and not prompt.diagnostics:
                # Leave out defaults, which would count as given.
                given = {key: getattr(head, key) for key in head.model_fields_set}
                value = Prompt.model_validate({**given, "messages": [{"user": prompt.body.value}]})
        self._add("prompts", name, MapItem(source, prompt.node.start, prompt.node), value)

    def _client_files(self, request: Request, entry: MapItem) -> None:
        self._sections.setdefault("upstreams", _Section(entry))
        for path in self._inclusion.matches(request, suffixes=(".json",)):
            source = None if path in self._inclusion.digests else self._inclusion.source(path, request)
            if source is None:
                continue
            servers, diagnostics = read_mcp_servers_file(source)
            self.diagnostics.extend(diagnostics)
            for name, server in servers.items():
                self._client_server(name, server)

    def _client_server(self, name: str, server: ClientServer) -> None:
        """Add a server from a client's file. Skip it with warnings if it has problems."""
        collected = (self.diagnostics, self._interpolation.diagnostics)
        before = [len(each) for each in collected]
        item, path, value = server.item, ("upstreams", name), None
        if self._interpolation.check_key(name, path, item.place):
            if server.env_file is not None:
                item = self._with_variables(item, server.env_file, path)
            value = self._read(Upstream, item, path)
        found = [(each, each[start:]) for each, start in zip(collected, before, strict=True)]
        for diagnostics, new in found:
            del diagnostics[len(diagnostics) - len(new) :]
            for each in new:
                message = f"{each.message}; this server is skipped"
                self.diagnostics.append(msgspec.structs.replace(each, message=message, severity=Severity.WARNING))
        if value is not None and not any(new for _, new in found):
            self._add("upstreams", name, item, value)

    def _with_variables(self, item: MapItem, env_file: MapItem, path: DocumentPath) -> MapItem:
        """Merge the variables of a server's `envFile` into its `env`."""
        source, start = env_file.source, env_file.node.start
        name = self._interpolation.fill(env_file.node, (*path, "cwd"))
        text = self._interpolation.fill(Scalar(f"${{file:{name}}}", source, start, start), (*path, "env"))
        assert isinstance(item.node, MappingNode)  # noqa: S101 - a server's entry
        if not isinstance(name, str) or not isinstance(text, str) or isinstance(text, Invalid):
            return item
        variables = {}
        for key, value in dotenv_values(stream=StringIO(text), interpolate=False).items():
            if value is not None:
                self._interpolation.secrets.update({value} - {""})
                variable = Scalar(value.replace("${", "$${"), source, start, start)
                variables[key] = MapItem(source, env_file.key_start, variable)
        env = item.node.entries.get("env", env_file)
        written = env.node.entries if isinstance(env.node, MappingNode) else {}
        merged = MappingNode({**variables, **written}, item.source, env.key_start, is_flow=True, size=1)
        entries = {**item.node.entries, "env": MapItem(item.source, env.key_start, merged)}
        return MapItem(item.source, item.key_start, msgspec.structs.replace(item.node, entries=entries))

    # Sections that are lists of mappings.

    def _items(self, section: str, entry: MapItem) -> None:
        merged = self._sections.setdefault(section, _Section(entry))
        merged.items.extend(getattr(entry.node, "items", ()))
        document = self._single_validated(section, entry)
        if document is not None:
            merged.models.extend(getattr(document, section))

    # Sections that stand once, in the main file.

    def _single_section(self, section: str, entry: MapItem) -> None:
        if section in self._single:
            first = self._single[section][0]
            message = f"`{section}` is defined twice, first at {_shown(first.place)}"
            self._report(message, (section,), entry.place)
            return
        document = self._single_validated(section, entry)
        value = _DEFAULTS[section] if document is None else getattr(document, section)
        self._single[section] = (entry, value)

    def _single_validated(self, section: str, entry: MapItem) -> Model | None:
        """Validate one section of one file. Return None after reporting errors."""
        data = {section: self._interpolation.fill(entry.node, (section,))}
        try:
            return _document_of(section).model_validate(data)
        except ValidationError as error:
            node = MappingNode({section: entry}, entry.source, entry.key_start, is_flow=True, size=1)
            self.diagnostics.extend(
                diagnostics_of(error, model=Document, data=data, written=NodeRef(node=node, path=()))
            )
            return None

    # The results.

    def broken(self) -> frozenset[DocumentPath]:
        """Return the sections and definitions that contain errors. A misspelt key is treated as the correct one."""
        found = chain(self._inclusion.diagnostics, self._interpolation.diagnostics, self.diagnostics)
        return frozenset(_owner(each.path) for each in found if each.severity is Severity.ERROR and each.path)

    def document(self, *, without: Collection[DocumentPath]) -> Document:
        """Return the merged document without some definitions."""
        lists: dict[str, list[str] | list[Model]] = {
            **{name: plain_text(self._sections[name].texts) for name in LISTS if name in self._sections},
            **{name: self._sections[name].models for name in ITEMS if name in self._sections},
        }
        named = {
            section: {name: value for name, value in merged.values.items() if (section, name) not in without}
            for section, merged in self._sections.items()
            if section in DEFINITIONS
        }
        single = {name: value for name, (_, value) in self._single.items() if value is not None}
        given = {**single, **lists, **named}
        return Document.model_construct(_fields_set=set(given), **{**_DEFAULTS, **given})  # each part was validated

    def tree(self) -> MappingNode:
        """Return the merged document as written."""
        entries = {section: entry for section, (entry, _) in self._single.items()}
        for name, section in self._sections.items():
            first = section.place
            node: Node
            if name in {*LISTS, *ITEMS}:
                node = Sequence(tuple(section.items), first.source, first.key_start, is_flow=False, size=1)
            else:
                node = MappingNode(section.entries, first.source, first.key_start, is_flow=False, size=1)
            entries[name] = MapItem(first.source, first.key_start, node)
        source = self._inclusion.parts[0].source if self._inclusion.parts else SourceFile(self._inclusion.directory, "")
        start = next((entry.key_start for entry in entries.values()), START)
        return MappingNode(entries, source, start, is_flow=False, size=1)

    def _report(self, message: str, path: DocumentPath, place: Place) -> None:
        self.diagnostics.append(Diagnostic(message=message, path=path, place=place))


def _is_backend(name: str, node: Node, model: type[Model]) -> bool:
    """Whether a definition looks like a backend with too little indentation."""
    if name not in backends_of(model) or not isinstance(node, MappingNode):
        return False
    keys = node.entries.keys()
    known = {key for part in models_of(model, name) for key in keys_of(part)}
    return bool(keys & known) and keys.isdisjoint(backends_of(model))


def _has_invalid(data: Json) -> bool:
    match data:
        case dict():
            return any(map(_has_invalid, data.values()))
        case list():
            return any(map(_has_invalid, data))
        case _:
            return isinstance(data, Invalid)


def _shown(place: Place) -> str:
    return f"{shown_path(place.source.path)}:{place.line}:{place.column}"


class _Section(msgspec.Struct):
    place: MapItem
    """Where the section was first written."""
    entries: dict[str, MapItem] = msgspec.field(default_factory=dict)
    items: list[Node] = msgspec.field(default_factory=list)
    values: dict[str, Model] = msgspec.field(default_factory=dict)
    texts: list[str] = msgspec.field(default_factory=list)
    models: list[Model] = msgspec.field(default_factory=list)


def _owner(path: DocumentPath) -> DocumentPath:
    """Return the section or definition of a path. A misspelt section is treated as the correct one."""
    # References to a misspelt section would only repeat its error.
    written = str(path[0])
    section = written if written in Document.model_fields else nearest(written, keys_of(Document)) or written
    return (section, *path[1:2]) if section in DEFINITIONS else (section,)
