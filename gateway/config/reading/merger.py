"""Merges the files of a configuration into one document.

Each definition is validated separately, so that one error does not hide another. Invalid definitions are left out.
"""

from collections.abc import Collection, Iterator, Mapping
from io import StringIO
from typing import Final, TypeVar, get_args, get_origin

import msgspec
from dotenv import dotenv_values
from pydantic import ValidationError

from gateway.config.diagnostics.near_misses import nearest
from gateway.config.diagnostics.render import shown_path
from gateway.config.models.base import Model
from gateway.config.models.definition_keys import Definition
from gateway.config.models.definitions import Prompt, PromptHead, Tool, backends_of
from gateway.config.models.document import MAIN_FILE_ONLY, Document
from gateway.config.models.upstreams import Upstream
from gateway.config.reading.front_matter import prompt_node, read_prompt
from gateway.config.reading.inclusion import Inclusion, Request
from gateway.config.reading.interpolation import Interpolator
from gateway.config.reading.mcp_servers_file import read_mcp_servers_file
from gateway.config.reading.nodes import Diagnostic, Invalid, MapItem, Node, Place, Scalar, Sequence, place_of
from gateway.config.reading.nodes import Mapping as MappingNode
from gateway.config.reading.source_file import SourceFile
from gateway.config.reading.validation_messages import (
    diagnostics_of,
    expected,
    invalid_values,
    keys_of,
    models_of,
    unknown_key,
    without_errors,
)
from gateway.errors import Severity
from gateway.json_types import DocumentPath, Json

M = TypeVar("M", bound=Model)

DEFINITIONS: Final[Mapping[str, type[Model]]] = {
    name: get_args(field.annotation)[1]
    for name, field in Document.model_fields.items()
    if get_origin(field.annotation) is dict
}
"""Sections that map names to definitions, merged from all files."""

_LISTS: Final = frozenset(name for name, field in Document.model_fields.items() if get_origin(field.annotation) is list)
"""Sections that are lists, concatenated from all files."""

_NEVER_EMPTY: Final = {"auth": "is empty, so no one would have to authenticate. Add `api_keys`"}
"""Sections that must not be empty, with the error message. Ignoring an empty section would be dangerous."""

_CONTRADICTIONS: Final = frozenset({"too_many_given", "not_together", "two_bodies", "read_only_writes"})
"""Types of errors that report keys that exclude each other. The removal of other invalid values cannot cause them."""
_REPAIRS: Final = 3
"""Maximum number of attempts to remove invalid values."""

_WITH_BACKEND: Final = ("tools", "resources")
_MISPLACED_BACKEND: Final = "`{}` is a backend: indent it, so that it is a key of the definition above"

_DEFAULTS: Final = {name: field.default for name, field in Document.model_fields.items()}


class Merger:
    def __init__(self, inclusion: Inclusion, interpolation: Interpolator) -> None:
        """Start with an empty document. `inclusion` must already have read all files."""
        self.repaired: dict[DocumentPath, Definition] = {}
        """Broken definitions with the invalid values removed."""
        self._diagnostics = interpolation.diagnostics
        self._inclusion = inclusion
        self._interpolation = interpolation
        self._sections: dict[str, _Section] = {}
        self._single: dict[str, tuple[MapItem, Json]] = {}

    def add(self, root: MappingNode, *, is_main: bool) -> None:
        for key, entry in sorted(root.entries.items(), key=lambda item: item[0] in {"prompt_files", "mcp_json"}):
            # Keys that start with `x-` are reserved for anchors.
            if key.startswith("x-"):
                continue
            if key not in Document.model_fields:
                is_backend = key in backends_of(Tool)
                self._report(
                    _MISPLACED_BACKEND.format(key) if is_backend else unknown_key(key, Document), (key,), entry.place
                )
            elif key in MAIN_FILE_ONLY and not is_main:
                self._report(
                    f"`{key}` is allowed only in the main file, but this file is included", (key,), entry.place
                )
            elif entry.is_empty:
                if key in _NEVER_EMPTY:
                    self._report(_NEVER_EMPTY[key], (key,), entry.place)
            elif key in DEFINITIONS:
                self._definitions(key, entry)
            elif key in _LISTS:
                self._list(key, entry)
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
        """Validate an entry as a `model`. Return None after reporting errors."""
        data = self._interpolation.fill(item.node, path)
        try:
            value = model.model_validate(data)
        except ValidationError as error:
            self._diagnostics.extend(diagnostics_of(error, model=model, data=data, item=item, path=path))
            self._repair(model, data, error, item, path)
            return None
        # An anchor outside this entry can contain an unreadable value.
        if self._diagnostics and next(invalid_values(data), None) is not None:
            self._repair(model, data, None, item, path)
            return None
        return value

    def _repair(
        self, model: type[Model], data: Json, error: ValidationError | None, item: MapItem, path: DocumentPath
    ) -> None:
        """Remove the invalid values of a definition, so that the compiler can find further errors in it."""
        if not issubclass(model, Definition) or model is PromptHead:
            return
        for _ in range(_REPAIRS):
            data = without_errors(data, error, model)
            if data is None:
                return
            try:
                self.repaired[path] = model.model_validate(data)
            except ValidationError as further:
                found = diagnostics_of(further, model=model, data=data, item=item, path=path, kinds=_CONTRADICTIONS)
                self._diagnostics.extend(found)
                error = further
            else:
                return

    def _add(self, section: str, name: str, entry: MapItem, value: Model | None) -> None:
        merged = self._sections.setdefault(section, _Section(entry))
        if (first := merged.entries.get(name)) is not None:
            message = f"`{name}` is defined twice, first at {_shown(first.place)}"
            self._report(message, (section, name), entry.place)
            return
        merged.entries[name] = entry
        if value is not None:
            merged.values[name] = value.below(entry.place.source.directory) if isinstance(value, Upstream) else value

    # Sections that are lists.

    def _list(self, section: str, entry: MapItem) -> None:
        merged = self._sections.setdefault(section, _Section(entry))
        if section == "include":  # already read
            return
        merged.items.extend(getattr(entry.node, "items", ()))
        if section == "skills":
            document = self._validated(section, entry)
            merged.listed.extend([] if document is None else document.skills)
            return
        requests = self._inclusion.requests(entry, section)
        merged.listed.extend(request.text for request in requests)
        for request in requests:
            if section == "prompt_files":
                self._sections.setdefault("prompts", _Section(entry))
                for source in self._sources(request, suffix=".md"):
                    self._prompt_file(source)
            elif section == "mcp_json":
                self._sections.setdefault("upstreams", _Section(entry))
                for source in self._sources(request, suffix=".json"):
                    self._client_file(source)

    def _sources(self, request: Request, *, suffix: str) -> Iterator[SourceFile]:
        for path in self._inclusion.matches(request, suffixes=(suffix,)):
            # Two globs can match the same file.
            source = None if path in self._inclusion.digests else self._inclusion.source(path, request)
            if source is not None:
                yield source

    def _prompt_file(self, source: SourceFile) -> None:
        name = source.path.stem
        path = ("prompts", name)
        head, body, diagnostics = read_prompt(source)
        self._diagnostics.extend(msgspec.structs.replace(each, path=(*path, *each.path)) for each in diagnostics)
        value: Prompt | None = None
        if head is not None:
            keys = self._read(PromptHead, MapItem(head.place, head), path)
            if keys is not None and not diagnostics:
                # Leave out defaults, which would count as given.
                given = {key: getattr(keys, key) for key in keys.model_fields_set}
                value = Prompt.model_validate({**given, "messages": [{"user": body.value}]})
        self._add("prompts", name, MapItem(body.place, prompt_node(head, body)), value)

    def _client_file(self, source: SourceFile) -> None:
        """Add the servers of a client's file. Skip servers with errors, and report the errors as warnings."""
        servers, diagnostics = read_mcp_servers_file(source)
        self._diagnostics.extend(diagnostics)
        for name, (item, env_file) in servers.items():
            start, path, value = len(self._diagnostics), ("upstreams", name), None
            if self._interpolation.check_key(name, path, item.place):
                written = item if env_file is None else self._with_variables(item, env_file, path)
                value = self._read(Upstream, written, path)
            found = self._diagnostics[start:]
            del self._diagnostics[start:]
            for each in found:
                message = f"{each.message}; this server is skipped" if each.severity is Severity.ERROR else each.message
                skipped = msgspec.structs.replace(each, message=message, severity=Severity.WARNING)
                self._diagnostics.append(skipped)
            if value is not None and all(each.severity is Severity.WARNING for each in found):
                self._add("upstreams", name, written, value)

    def _with_variables(self, item: MapItem, env_file: MapItem, path: DocumentPath) -> MapItem:
        """Merge the variables of a server's `envFile` into its `env`."""
        place = env_file.node.place
        name = self._interpolation.fill(env_file.node, (*path, "cwd"))
        text = self._interpolation.fill(Scalar(f"${{file:{name}}}", place, place), (*path, "env"))
        assert isinstance(item.node, MappingNode)  # noqa: S101 - a server's entry
        if not isinstance(name, str) or not isinstance(text, str) or isinstance(text, Invalid):
            return item
        variables = {}
        for key, value in dotenv_values(stream=StringIO(text), interpolate=False).items():
            if value is not None:
                self._interpolation.secrets.update({value} - {""})
                variables[key] = MapItem(env_file.place, Scalar(value.replace("${", "$${"), place, place))
        env = item.node.entries.get("env", env_file)
        written = env.node.entries if isinstance(env.node, MappingNode) else {}
        merged = MappingNode({**variables, **written}, env.place, env.place)
        entries = {**item.node.entries, "env": MapItem(env.place, merged)}
        return MapItem(item.place, msgspec.structs.replace(item.node, entries=entries))

    # Sections that can only be defined once.

    def _single_section(self, section: str, entry: MapItem) -> None:
        if section in self._single:
            first = self._single[section][0]
            message = f"`{section}` is defined twice, first at {_shown(first.place)}"
            self._report(message, (section,), entry.place)
            return
        document = self._validated(section, entry)
        value = _DEFAULTS[section] if document is None else getattr(document, section)
        self._single[section] = (entry, value)

    def _validated(self, section: str, entry: MapItem) -> Document | None:
        """Validate one section of one file. Return None after reporting errors."""
        data = {section: self._interpolation.fill(entry.node, (section,))}
        try:
            return Document.model_validate(data)
        except ValidationError as error:
            whole = MapItem(entry.place, MappingNode({section: entry}, entry.place, entry.place))
            self._diagnostics.extend(diagnostics_of(error, model=Document, data=data, item=whole, path=()))
            return None

    # The results.

    def broken(self) -> frozenset[DocumentPath]:
        """Return the paths of all sections and definitions that contain errors."""
        found = self._diagnostics
        return frozenset(_owner(each.path) for each in found if each.severity is Severity.ERROR and each.path)

    def document(self, *, without: Collection[DocumentPath]) -> Document:
        """Return the merged document, except for the definitions in `without`."""
        merged = {
            name: section.listed
            if name in _LISTS
            else {key: value for key, value in section.values.items() if (name, key) not in without}
            for name, section in self._sections.items()
        }
        single = {name: value for name, (_, value) in self._single.items() if value is not None}
        given = {**single, **merged}
        return Document.model_construct(_fields_set=set(given), **{**_DEFAULTS, **given})  # each part was validated

    def tree(self) -> MappingNode:
        """Return the nodes of the merged document, before interpolation."""
        entries = {section: entry for section, (entry, _) in self._single.items()}
        for name, section in self._sections.items():
            place = section.first.place
            node: Node
            if name in _LISTS:
                node = Sequence(tuple(section.items), place, place, is_flow=False)
            else:
                node = MappingNode(section.entries, place, place, is_flow=False)
            entries[name] = MapItem(place, node)
        nowhere = Place(SourceFile(self._inclusion.directory, ""), 1, 1)
        start = next((entry.place for entry in entries.values()), nowhere)
        return MappingNode(entries, start, start, is_flow=False)

    def _report(self, message: str, path: DocumentPath, place: Place) -> None:
        self._diagnostics.append(Diagnostic(message=message, path=path, place=place))


def _is_backend(name: str, node: Node, model: type[Model]) -> bool:
    """Whether a definition looks like a backend with too little indentation."""
    if name not in backends_of(model) or not isinstance(node, MappingNode):
        return False
    keys = node.entries.keys()
    known = {key for part in models_of(model, name) for key in keys_of(part)}
    return bool(keys & known) and keys.isdisjoint(backends_of(model))


def _shown(place: Place) -> str:
    return f"{shown_path(place.source.path)}:{place.line}:{place.column}"


class _Section(msgspec.Struct):
    first: MapItem
    """The first occurrence of the section in the files."""
    entries: dict[str, MapItem] = msgspec.field(default_factory=dict)
    values: dict[str, Model] = msgspec.field(default_factory=dict)
    items: list[Node] = msgspec.field(default_factory=list)
    listed: list[Json] = msgspec.field(default_factory=list)
    """Validated values of `items`."""


def _owner(path: DocumentPath) -> DocumentPath:
    """Return the path of the section or definition that contains `path`. Correct the name of a misspelt section."""
    # Otherwise, each reference to the misspelt section would cause a further error.
    written = str(path[0])
    section = written if written in Document.model_fields else nearest(written, keys_of(Document)) or written
    return (section, *path[1:2]) if section in DEFINITIONS else (section,)
