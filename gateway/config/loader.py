"""Read the operator's files into one `Document`, or say everything that is wrong with them.

Every mistake is found in one pass: each definition is validated by itself, so that one cannot hide another; a file
that is not YAML does not hide what the others say. What is wrong in a place that nothing else depends on (a title, a
timeout) is taken out and the rest goes on to the compiler, whose findings belong into the same report; a definition
with a deeper mistake is left out, and the compiler does not miss it (`LoadedConfig.may_hold`).
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from gateway.config.backends import Connection
from gateway.config.base import NOT_SUPPORTED, Model
from gateway.config.document import MAIN_FILE_ONLY, Document
from gateway.config.inclusion import Inclusion, Part, Request
from gateway.config.interpolation import Interpolation
from gateway.config.nodes import (
    START,
    Broken,
    Entry,
    Finding,
    Node,
    Place,
    Scalar,
    Sequence,
    Written,
    place_of,
)
from gateway.config.nodes import Mapping as MappingNode
from gateway.config.primitives import Prompt, PromptHead, Resource, Tool
from gateway.config.problems import DocumentPath, Problems, SourceMap
from gateway.config.prompt_file import read_prompt
from gateway.config.secrets import Redactor
from gateway.config.source_file import SourceFile
from gateway.config.source_map import WrittenSources
from gateway.config.wording import expected, findings_of, keys_of, model_at, nearest, unknown_key
from gateway.errors import Problem, Severity
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

_DEFAULTS: Final = {name: field.default for name, field in Document.model_fields.items()}

_HARMLESS: Final = frozenset(
    {
        *((key,) for key in ("title", "description", "icons", "meta", "tags", "aliases", "annotations", "requires")),
        *((key,) for key in ("access", "timeout", "concurrency", "queue", "rate_limit", "cache", "coerce")),
        *((key,) for key in ("confirm", "confirm_fallback", "max_files", "max_size", "mime_type", "retry", "proxy")),
        *((key,) for key in ("tls", "allow_private")),
        *(("shell", key) for key in ("timeout", "success_codes", "progress", "inherit_env", "limits", "sandbox")),
        *(("http", key) for key in ("timeout", "retry", "cache", "success", "forward_headers", "follow_redirects")),
        *(("http", key) for key in ("allow_private",)),
        ("python", "timeout"),
        *(("output", key) for key in ("max_size", "overflow", "raw", "mime_type")),
    }
)
"""Keys of a definition that can be taken out without changing what the rest of it means."""

_LITERAL: Final = frozenset({"headers", "query", "env", "form", "json", "body", "stdin"})
"""Keys below which a value that could not be filled in may be any text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """What the files say, and all that is needed to point into them, to mask their secrets and to watch them."""

    document: Document
    sources: SourceMap
    redactor: Redactor
    secrets: frozenset[str]
    files: Mapping[Path, str]
    """Every file that was asked for → SHA-256; empty where it could not be read."""
    globs: tuple[str, ...]
    """Absolute patterns of `include` and `prompt_files`: a file that appears under one belongs to the configuration."""
    root: Path
    """The directory of the main file, or the one that was given."""
    problems: tuple[Problem, ...] = ()
    """Mistakes and warnings, in the order of files and lines. Whoever compiles the document reports them with its own:
    a document with mistakes is not one to serve."""
    left_out: frozenset[DocumentPath] = frozenset()
    """Definitions (`("tools", "x")`) and sections that are not in `document` because of mistakes in them."""
    is_whole: bool = True
    """Whether every file could be read."""

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity is Severity.WARNING)

    @property
    def directories(self) -> frozenset[Path]:
        """Where changes matter: the directories of all files, and those from which globs start."""
        return frozenset({self.root, *(path.parent for path in self.files), *map(_fixed_part, self.globs)})

    def may_hold(self, *path: str) -> bool:
        """Whether `path` may be missing from the document only because of a mistake that is reported already."""
        return not self.is_whole or path in self.left_out or path[:1] in self.left_out

    def start_problems(self) -> Problems:
        """A report that begins with what the loader found; what the compiler finds is added."""
        return Problems(self.sources, found=self.problems, redactor=self.redactor)

    def raise_errors(self) -> None:
        """Raise `ConfigError` with everything found, if any of it is an error."""
        self.start_problems().raise_errors()


def load(path: Path, *, environ: Mapping[str, str] = os.environ) -> LoadedConfig:
    """Read a file, or a directory as all its files, with everything that they include.

    A document with mistakes is returned as far as it can be used, so that the compiler's findings join the loader's:
    `LoadedConfig.start_problems` begins that report, whose `raise_errors` comes before anything is served.

    Raises:
        ConfigError: no file could be read as a configuration at all; it has every problem.
    """
    loading = _Loading(environ)
    loaded = loading.load(path)
    if not loading.has_content:
        loaded.raise_errors()
    return loaded


@dataclass(slots=True)
class _Section:
    """One section of the merged document while it grows."""

    place: Entry
    """Where it was written first."""
    entries: dict[str, Entry] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)
    values: dict[str, Model] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)


class _Loading:
    """One load."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._interpolation = Interpolation(environ)
        self._inclusion = Inclusion(self._interpolation)
        self._findings: list[Finding] = []
        self._sections: dict[str, _Section] = {}
        self._single: dict[str, tuple[Entry, Json]] = {}
        self._left_out: set[DocumentPath] = set()
        self._root = Path()

    @property
    def has_content(self) -> bool:
        return bool(self._inclusion.parts)

    def load(self, path: Path) -> LoadedConfig:
        self._inclusion.read(path)
        self._root = self._inclusion.directory
        for part in self._inclusion.parts:
            self._part(part)
        sources = WrittenSources(
            self._merged_node(),
            directory=self._root,
            secrets=self._interpolation.literal_secrets,
            unstructured=self._inclusion.unstructured,
        )
        redactor = Redactor(self._interpolation.secrets)
        findings = [*self._inclusion.findings, *self._interpolation.findings, *self._findings]
        ordered = self._in_order(_without_repetitions(findings))
        return LoadedConfig(
            document=self._document(),
            sources=sources,
            redactor=redactor,
            secrets=frozenset(self._interpolation.secrets),
            files={**self._inclusion.digests, **self._interpolation.files},
            globs=tuple(dict.fromkeys(self._inclusion.globs)),
            root=self._root,
            problems=tuple(sources.problem(finding, redactor) for finding in ordered),
            left_out=frozenset(self._left_out),
            is_whole=all(self._inclusion.digests.values()) and not self._inclusion.unstructured,
        )

    def _part(self, part: Part) -> None:
        for key, entry in sorted(part.root.entries.items(), key=_files_come_last):
            if key.startswith("x-"):
                continue
            if key not in Document.model_fields:
                self._report(unknown_key(key, keys_of(Document)), (key,), entry.place)
            elif key in MAIN_FILE_ONLY and not part.is_main:
                self._report(
                    f"`{key}` may stand in the main file alone, and this file is included", (key,), entry.place
                )
            elif entry.is_empty:
                continue
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
            self._left_out.add((section,))
            return
        for name, definition in entry.node.entries.items():
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
            self._left_out.add((section, name))
        else:
            merged.values[name] = value

    def _definition(self, model: type[M], entry: Entry, path: DocumentPath) -> M | None:
        """The definition, without what is harmless to lose; None if it cannot be used."""
        before = len(self._interpolation.findings)
        data = self._interpolation.fill(entry.node, path)
        filled = self._interpolation.findings[before:]
        composed = [finding for finding in self._inclusion.findings if finding.path[:2] == path]
        is_usable = all(_is_survivable(finding.path[2:], model) for finding in (*composed, *filled))
        written = Written(node=entry.node, path=path, entry=entry)
        is_reduced = False
        while True:
            try:
                value = model.model_validate(data)
            except ValidationError as error:
                found = list(findings_of(error, model=model, data=data, written=written, is_reduced=is_reduced))
                self._findings.extend(found)
                steps = [finding.path[2:] for finding in found]
                if not steps or not all(_is_harmless(each, model) for each in steps):
                    return None
                for each in steps:
                    _remove(data, each)
                is_reduced = True
            else:
                return value if is_usable else None

    # Sections that are lists of paths.

    def _list(self, section: str, entry: Entry) -> None:
        merged = self._sections.setdefault(section, _Section(entry))
        if section == "include":  # has been read, and its mistakes reported
            return
        before = len(self._inclusion.findings)
        requests = self._inclusion.requests(entry, section)
        if len(self._inclusion.findings) > before:
            self._left_out.add((section,))
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
                self._left_out.add(("prompts", path.stem))

    def _prompt_file(self, source: SourceFile) -> None:
        name = source.path.stem
        path = ("prompts", name)
        prompt = read_prompt(source)
        self._findings.extend(
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
            self._findings.extend(findings_of(error, model=Document, data=data, written=Written(node=node, path=())))
            self._left_out.add((section,))
            self._single[section] = (entry, _DEFAULTS[section])
        else:
            self._single[section] = (entry, getattr(document, section))

    # What comes out.

    def _document(self) -> Document:
        lists = {name: self._sections[name].texts for name in LISTS if name in self._sections}
        named = {name: self._sections[name].values for name in DEFINITIONS if name in self._sections}
        single = {name: value for name, (_, value) in self._single.items() if value is not None}
        return Document.model_validate({**single, **lists, **named})

    def _merged_node(self) -> MappingNode:
        entries = {section: entry for section, (entry, _) in self._single.items()}
        for name, section in self._sections.items():
            first = section.place
            node: Node
            if name in LISTS:
                node = Sequence(tuple(section.items), first.source, first.key_start, is_flow=False, size=1)
            else:
                node = MappingNode(section.entries, first.source, first.key_start, is_flow=False, size=1)
            entries[name] = Entry(first.source, first.key_start, node)
        source = self._inclusion.parts[0].source if self._inclusion.parts else SourceFile(self._root, "")
        start = next((entry.key_start for entry in entries.values()), START)
        return MappingNode(entries, source, start, is_flow=False, size=1)

    def _in_order(self, findings: Iterable[Finding]) -> list[Finding]:
        files = {path: index for index, path in enumerate(self._inclusion.digests)}

        def position(finding: Finding) -> tuple[int, int, int]:
            place = finding.place
            return (files.get(place.source.path, -1), place.line, place.column) if place is not None else (-1, 0, 0)

        return sorted(findings, key=position)

    def _shown(self, place: Place) -> str:
        return f"{os.path.relpath(place.source.path, self._root)}:{place.line}:{place.column}"

    def _report(self, message: str, path: DocumentPath, place: Place) -> None:
        self._findings.append(Finding(message=message, path=path, place=place))


def _files_come_last(item: tuple[str, Entry]) -> bool:
    """Sort key: prompts that a file names follow those that it holds."""
    return item[0] == "prompt_files"


def _is_harmless(steps: DocumentPath, model: type[Model]) -> bool:
    """Whether a mistake at these steps of a definition can be taken out with nothing else depending on it."""
    if not steps:
        return False
    owner = model_at(model, steps[:-1])
    if owner is not None and isinstance(steps[-1], str) and steps[-1] not in keys_of(owner):
        meant = nearest(steps[-1], keys_of(owner))
        if meant is None:
            return True
        steps = (*steps[:-1], meant)
    return any(steps[:length] in _HARMLESS for length in (1, 2))


def _is_survivable(steps: DocumentPath, model: type[Model]) -> bool:
    """Whether a definition can be compiled although a value in it could not be filled in, or stands there twice."""
    return not steps or _is_harmless(steps, model) or any(step in _LITERAL for step in steps)


def _remove(data: Json, steps: DocumentPath) -> None:
    """Take the mistake out: the unknown key alone, otherwise the whole harmless key that it stands in."""
    harmless = next((steps[:length] for length in (1, 2) if steps[:length] in _HARMLESS), steps)
    for step in harmless[:-1]:
        data = data[step]
    data.pop(harmless[-1], None)


def _without_repetitions(findings: Iterable[Finding]) -> list[Finding]:
    """One mistake once.

    What is wrong in an anchor is wrong wherever it is used; what stands below an unsupported key is not looked at.
    """
    findings = list(findings)
    refused = [finding.path for finding in findings if finding.message == NOT_SUPPORTED]
    seen: dict[tuple[str, str, Place | None], Finding] = {}
    for finding in findings:
        if not any(finding.path[: len(path)] == path != finding.path for path in refused):
            seen.setdefault((finding.message, finding.severity, finding.place), finding)
    return list(seen.values())


def _fixed_part(pattern: str) -> Path:
    """The directory from which a glob starts."""
    steps = Path(pattern).parts[:-1]
    wild = next((index for index, step in enumerate(steps) if any(mark in step for mark in "*?[")), len(steps))
    return Path(*steps[:wild])
