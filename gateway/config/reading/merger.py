"""Put what all files say together into one document; each definition is validated by itself, so none hides another."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pydantic import ValidationError

from gateway.config.backends import Connection
from gateway.config.base import Model
from gateway.config.document import MAIN_FILE_ONLY, Document
from gateway.config.primitives import Prompt, PromptHead, Resource, Tool
from gateway.config.problems import DocumentPath
from gateway.config.reading.inclusion import Inclusion, Part, Request
from gateway.config.reading.interpolation import Interpolation
from gateway.config.reading.nodes import START, Broken, Entry, Finding, Node, Place, Scalar, Sequence, Written, place_of
from gateway.config.reading.nodes import Mapping as MappingNode
from gateway.config.reading.prompt_file import read_prompt
from gateway.config.reading.source_file import SourceFile
from gateway.config.reading.tolerance import idle, is_mendable, is_survivable, mend
from gateway.config.reading.wording import expected, findings_of, keys_of, nearest, unknown_key
from gateway.json_types import Json

M = TypeVar("M", bound=Model)

DEFINITIONS: Final[Mapping[str, type[Model]]] = {
    "connections": Connection,
    "tools": Tool,
    "resources": Resource,
    "prompts": Prompt,
}
"""Sections that map names to definitions; those of all files are put together."""

LISTS: Final = ("include", "plugins", "prompt_files")
"""Sections that are lists of paths; those of all files are put together, too."""

_NEVER_EMPTY: Final = {"auth": "nothing is written here, so that nobody would have to authenticate; write `api_keys`"}
"""Sections that mean something else without a word in them than their author thinks."""

_DEFAULTS: Final = {name: field.default for name, field in Document.model_fields.items()}


class Merger:
    """Takes in one file after the other; `document` is what they say together."""

    def __init__(self, inclusion: Inclusion, interpolation: Interpolation) -> None:
        self.findings: list[Finding] = []
        self.left_out: set[DocumentPath] = set()
        """Definitions and sections that the document has not as they are meant, or not at all, for their mistakes."""
        self._inclusion = inclusion
        self._interpolation = interpolation
        self._sections: dict[str, _Section] = {}
        self._single: dict[str, tuple[Entry, Json]] = {}

    def add(self, part: Part) -> None:
        """Take in what one file says."""
        for key, entry in sorted(part.root.entries.items(), key=_files_come_last):
            if key.startswith("x-"):
                continue
            if key not in Document.model_fields:
                self._report(unknown_key(key, keys_of(Document)), (key,), entry.place)
                self.left_out.add((nearest(key, keys_of(Document)) or key,))
            elif key in MAIN_FILE_ONLY and not part.is_main:
                self._report(
                    f"`{key}` may stand in the main file alone, and this file is included", (key,), entry.place
                )
                self.left_out.add((key,))
            elif entry.is_empty:
                if key in _NEVER_EMPTY:
                    self._report(_NEVER_EMPTY[key], (key,), entry.place)
                    self.left_out.add((key,))
            elif key in DEFINITIONS:
                self._definitions(key, entry)
            elif key in LISTS:
                self._list(key, entry)
            else:
                self._single_section(key, entry)

    # Sections that map names to definitions.

    def _definitions(self, section: str, entry: Entry) -> None:
        self._sections.setdefault(section, _Section(entry))
        if not isinstance(entry.node, MappingNode):
            if not (isinstance(entry.node, Scalar) and isinstance(entry.node.value, Broken)):
                given: Json = [] if isinstance(entry.node, Sequence) else entry.node.value
                message = expected("a mapping (`name: …`)", given)
                self._report(message, (section,), place_of(entry, entry.node))
            self.left_out.add((section,))
            return
        for name, definition in entry.node.entries.items():
            if not self._interpolation.check_key(name, (section, name), definition.place):
                self.left_out.add((section, name))
                continue
            value = self._definition(DEFINITIONS[section], definition, (section, name))
            self._add(section, name, definition, value)

    def _add(self, section: str, name: str, entry: Entry, value: Model | None) -> None:
        merged = self._sections.setdefault(section, _Section(entry))
        if (first := merged.entries.get(name)) is not None:
            message = f"`{name}` is defined twice, first at {self._shown(first.place)}"
            self._report(message, (section, name), entry.place)
            return
        merged.entries[name] = entry
        if value is None:
            self.left_out.add((section, name))
        else:
            merged.values[name] = value

    def _definition(self, model: type[M], entry: Entry, path: DocumentPath) -> M | None:
        """The definition, as far as it can be looked at; None if it cannot."""
        before = len(self._interpolation.findings)
        data = self._interpolation.fill(entry.node, path)
        filled = self._interpolation.findings[before:]
        composed = [finding for finding in self._inclusion.findings if finding.path[:2] == path]
        broken = [finding.path[2:] for finding in filled if not is_survivable(finding.path[2:])]
        doubtful = [*broken, *(finding.path[2:] for finding in composed if not is_survivable(finding.path[2:]))]
        hopeless = [steps for steps in doubtful if not is_mendable(data, steps, model)]
        if not hopeless:
            _mend_all(data, broken)
        written = Written(node=entry.node, path=path, entry=entry)
        value = self._validated(data, model, written, hopeless, is_reduced=bool(broken))
        if value is None:
            self.left_out.add(path)
            rest = idle(data, hopeless, model)
            value = None if rest is None else self._validated(rest, model, written, [], is_reduced=True)
        return value

    def _validated(
        self, data: Json, model: type[M], written: Written, hopeless: list[DocumentPath], *, is_reduced: bool
    ) -> M | None:
        """Validate without what is harmless to lose; None if there is more, which is put among the hopeless."""
        while True:
            try:
                value = model.model_validate(data)
            except ValidationError as error:
                found = list(findings_of(error, model=model, data=data, written=written, is_reduced=is_reduced))
                self.findings.extend(found)
                mistakes = [finding.path[2:] for finding in found]
                hopeless += [steps for steps in mistakes if not is_mendable(data, steps, model)]
                if hopeless or not mistakes:
                    return None
                _mend_all(data, mistakes)
                is_reduced = True
            else:
                return None if hopeless else value

    # Sections that are lists of paths.

    def _list(self, section: str, entry: Entry) -> None:
        merged = self._sections.setdefault(section, _Section(entry))
        if section == "include":  # has been read, and its mistakes reported
            return
        before = len(self._inclusion.findings)
        requests = self._inclusion.requests(entry, section)
        if len(self._inclusion.findings) > before:
            self.left_out.add((section,))
        merged.items.extend(getattr(entry.node, "items", ()))
        merged.texts.extend(request.text for request in requests)
        if section == "prompt_files":
            for request in requests:
                self._prompt_files(request, entry)

    def _prompt_files(self, request: Request, entry: Entry) -> None:
        self._sections.setdefault("prompts", _Section(entry))
        for path in self._inclusion.matches(request, suffixes=(".md",)):
            if path in self._inclusion.digests:
                continue
            source = self._inclusion.source(path, request)
            if source is not None:
                self._prompt_file(source)
            else:
                self.left_out.add(("prompts", path.stem))

    def _prompt_file(self, source: SourceFile) -> None:
        name = source.path.stem
        path = ("prompts", name)
        prompt = read_prompt(source)
        self.findings.extend(
            Finding(message=finding.message, path=(*path, *finding.path), place=finding.place)
            for finding in prompt.findings
        )
        value: Prompt | None = None
        if prompt.head is not None:
            head_entry = Entry(source, prompt.head.start, prompt.head)
            head = self._definition(PromptHead, head_entry, path)
            if head is not None and not prompt.findings:
                given = {key: getattr(head, key) for key in head.model_fields_set}
                value = Prompt.model_validate({**given, "messages": [{"user": prompt.body.value}]})
        self._add("prompts", name, Entry(source, prompt.node.start, prompt.node), value)

    # Sections that stand once, in the main file.

    def _single_section(self, section: str, entry: Entry) -> None:
        if section in self._single:
            first = self._single[section][0]
            message = f"`{section}` stands twice, first at {self._shown(first.place)}"
            self._report(message, (section,), entry.place)
            return
        data = {section: self._interpolation.fill(entry.node, (section,))}
        try:
            document = Document.model_validate(data)
        except ValidationError as error:
            node = MappingNode({section: entry}, entry.source, entry.key_start, is_flow=True, size=1)
            self.findings.extend(findings_of(error, model=Document, data=data, written=Written(node=node, path=())))
            self.left_out.add((section,))
            self._single[section] = (entry, _DEFAULTS[section])
        else:
            self._single[section] = (entry, getattr(document, section))

    # What comes out.

    def document(self) -> Document:
        lists = {name: self._sections[name].texts for name in LISTS if name in self._sections}
        named = {name: self._sections[name].values for name in DEFINITIONS if name in self._sections}
        single = {name: value for name, (_, value) in self._single.items() if value is not None}
        return Document.model_validate({**single, **lists, **named})

    def tree(self) -> MappingNode:
        """The merged document as it was written."""
        entries = {section: entry for section, (entry, _) in self._single.items()}
        for name, section in self._sections.items():
            first = section.place
            node: Node
            if name in LISTS:
                node = Sequence(tuple(section.items), first.source, first.key_start, is_flow=False, size=1)
            else:
                node = MappingNode(section.entries, first.source, first.key_start, is_flow=False, size=1)
            entries[name] = Entry(first.source, first.key_start, node)
        source = self._inclusion.parts[0].source if self._inclusion.parts else SourceFile(self._inclusion.directory, "")
        start = next((entry.key_start for entry in entries.values()), START)
        return MappingNode(entries, source, start, is_flow=False, size=1)

    def _shown(self, place: Place) -> str:
        return f"{os.path.relpath(place.source.path, self._inclusion.directory)}:{place.line}:{place.column}"

    def _report(self, message: str, path: DocumentPath, place: Place) -> None:
        self.findings.append(Finding(message=message, path=path, place=place))


@dataclass(slots=True)
class _Section:
    """One section of the merged document while it grows."""

    place: Entry
    """Where it was written first."""
    entries: dict[str, Entry] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)
    values: dict[str, Model] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)


def _mend_all(data: Json, mistakes: Iterable[DocumentPath]) -> None:
    for steps in mistakes:
        mend(data, steps)


def _files_come_last(item: tuple[str, Entry]) -> bool:
    """Sort key: prompts that a file names follow those that it holds."""
    return item[0] == "prompt_files"
