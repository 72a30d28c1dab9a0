"""Builds nodes with positions from YAML text, using PyYAML's events. Only JSON values are allowed.

`yaml.safe_load` keeps the last of two equal keys, reads `no` and `12:30:45` as YAML 1.1 does, and drops positions.
`yaml.compose` with CSafeLoader recurses in C, so 100,000 `[` crash the process. `yaml.compose` also stops at the
first unknown alias, and the nodes lack the tags and alias positions that the errors below need.

The composer rejects the following, for the reasons after the colons:

1. characters that YAML does not allow: the scanner's errors report bytes, not lines;
2. tags (`!!python/object`): a configuration has no such types;
3. nesting over `MAX_DEPTH`: would overflow the stack;
4. more than `MAX_NODES` nodes after alias expansion, or an alias inside its own anchor: unbounded memory;
5. duplicate keys and keys that are not text: silent data loss;
6. numbers that JSON cannot represent: would fail later, when a message is encoded.
"""

import re
from collections.abc import Callable
from itertools import islice
from typing import Any, Final, NoReturn

import msgspec
import yaml

from gateway.config.core_schema import scalar
from gateway.config.reading.nodes import (
    Diagnostic,
    Invalid,
    MapItem,
    Mapping,
    Node,
    Place,
    Scalar,
    Sequence,
)
from gateway.config.reading.source_file import LINE_BREAK, SourceFile, UnreadableError, has_surrogate
from gateway.json_types import DocumentPath

_ADVICE: Final = (
    # Part of the scanner's message → our message.
    ("mapping values are not allowed", "a second `: ` in one line. Quote the text that contains it"),
    ("cannot start any token", "text cannot start with this character. Quote it"),
    ("found unexpected end of stream", "the quote opened here is never closed"),
    ("found unexpected document indicator", "the quote opened here is never closed"),
    ("did not find expected node content", "expected a value"),
    ("found unknown escape character", "unknown escape in double quotes. Use single quotes, or double the \\"),
    ("expected ',' or ']'", "expected `,` or `]` in the list opened"),
    ("expected ',' or '}'", "expected `,` or `}` in the mapping opened"),
    ("expected key", "this line does not match any open level. Check its indentation"),
    ("expected <block end>", "this line does not match any open level. Check its indentation"),
    ("expected '-' indicator", "expected another item of the list (`- …`). Check the indentation"),
    ("could not find expected ':'", "expected `key: value`; a `:` is missing"),
    ("incompatible YAML document", "this YAML version is not supported. Remove the %YAML line"),
)

_DEEPER: Final = "this line continues the text above it because it is indented deeper. Check its indentation"


def _explain(error: yaml.MarkedYAMLError, text: str, *, first_line: int) -> tuple[str, yaml.Mark | None]:
    """Return a message and the position of a PyYAML error. `text` starts at line `first_line` (from 0) of the file."""
    problem, opened, mark = error.problem or "cannot be read", error.context_mark, error.problem_mark
    lines = LINE_BREAK.split(text)
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    column = 0 if mark is None else mark.column
    if "cannot start any token" in problem and line[column : column + 1] == "\t":
        return "tabs cannot be used for indentation. Use spaces", mark
    # Without a preceding `: `, the line continues the text above.
    if "mapping values are not allowed" in problem and ": " not in line[:column]:
        return _DEEPER, mark
    advice = next((ours for theirs, ours in _ADVICE if theirs in problem), problem)
    if opened is not None and advice.endswith(" opened"):
        advice += f" at {opened.line + 1 + first_line}:{opened.column + 1}"
    # The scanner reports the end of the file instead of the opening quote.
    is_quote = "opened here" in advice
    return advice, opened if is_quote and opened is not None else mark or opened


MAX_DEPTH: Final = 64
MAX_NODES: Final = 500_000

_TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"

# Without libyaml, PyYAML has only the slower loader.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NOT_PRINTABLE: Final = re.compile(
    "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x84\\x86-\\x9f\\ud800-\\udfff\\ufeff\\ufffe\\uffff]"
)
"""Characters that YAML 1.2 §5.1 does not allow, and byte order marks inside the text."""


def compose(  # noqa: PLR0913 - options that differ between kinds of files
    source: SourceFile,
    text: str | None = None,
    *,
    first_line: int = 0,
    has_merge_keys: bool = True,
    has_scalar_keys: bool = False,
    max_nodes: int = MAX_NODES,
) -> tuple[Node | None, list[Diagnostic]]:
    """Build the nodes of `text`, which starts at line `first_line` (from 0) of `source`. The default is the whole file.

    Return the root, which is None if the text is empty or invalid, and the errors.

    With `has_merge_keys`, `<<` merges mappings as in YAML 1.1. With `has_scalar_keys`, keys can be numbers or booleans
    (`200:`), which become text.
    """
    text = source.text if text is None else text
    composer = _Composer(
        source, text, first_line, has_merge_keys, has_scalar_keys, max_nodes, next_event=_LOADER(text).get_event
    )
    try:
        return composer.document(), composer.diagnostics
    except UnreadableError as error:
        fatal = Diagnostic(message=str(error), place=Place(source, error.line, error.column))
        return None, [*composer.diagnostics, fatal]


class _Composer(msgspec.Struct):
    source: SourceFile
    text: str
    first_line: int
    has_merge_keys: bool
    has_scalar_keys: bool
    max_nodes: int
    next_event: Callable[[], yaml.Event]
    """Returns the next event. Faster than `yaml.parse`, which also checks for a further event each time."""
    diagnostics: list[Diagnostic] = msgspec.field(default_factory=list)
    anchors: dict[str, tuple[Node | None, int]] = msgspec.field(default_factory=dict)
    """Maps each anchor to its node and the number of values in the node. The node is None until it is complete."""
    values: int = 0
    """Number of values so far, after alias expansion."""
    has_aliases: bool = False
    path: list[str | int] = msgspec.field(default_factory=list)

    def document(self) -> Node | None:
        """Return the root node, or None if the document is empty.

        Raises:
            UnreadableError: the text is not YAML, or exceeds a limit.
        """
        if (found := _NOT_PRINTABLE.search(self.text)) is not None:
            lines = LINE_BREAK.split(self.text[: found.start()])
            place = Place(self.source, len(lines) + self.first_line, len(lines[-1]) + 1)
            code = f"U+{ord(found[0]):04X}"
            self._give_up(f"YAML syntax: the control character {code} is not allowed. Write it as an escape", place)
        try:
            return self._document()
        except yaml.MarkedYAMLError as error:
            if "nesting depth" in (error.problem or ""):  # libyaml and PyYAML 6.0.4 have a limit too
                self._give_up(_TOO_DEEP, self._place(error.problem_mark))
            message, mark = _explain(error, self.text, first_line=self.first_line)
            self._give_up(f"YAML syntax: {message}", self._place(mark))

    def _document(self) -> Node | None:
        next_event = self.next_event
        next_event()  # stream start
        if isinstance(next_event(), yaml.StreamEndEvent):
            return None
        root = self._node(next_event())
        next_event()  # document end
        following = next_event()
        if not isinstance(following, yaml.StreamEndEvent):
            message = "a second document starts here; a file can contain only one"
            self._give_up(message, self._place(following.start_mark))
        # A file that contains only comments or `null` counts as empty.
        return None if isinstance(root, Scalar) and root.value is None else root

    def _node(self, event: yaml.Event) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        before = self.values
        self._count(1, event)
        if isinstance(event, yaml.ScalarEvent) and event.tag is None and event.anchor is None:
            return self._scalar(event)  # most nodes
        tag = getattr(event, "tag", None)
        if tag is not None and tag != "!":
            shown = tag.replace("tag:yaml.org,2002:", "!!")
            self._report(f"the tag `{shown}` is not allowed; values are plain YAML", event)
        if len(self.path) > MAX_DEPTH:
            # `_node` is recursive, so deeper nesting would overflow the stack.
            self._give_up(_TOO_DEEP, self._place(event.start_mark))
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            self.anchors[anchor] = (None, 1)
        if isinstance(event, yaml.ScalarEvent):
            node: Node = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(event)
        elif isinstance(event, yaml.MappingStartEvent):
            node = self._mapping(event)
        else:
            self._give_up("YAML syntax: expected a value", self._place(event.start_mark))
        if anchor is not None:
            self.anchors[anchor] = (node, self.values - before)
        return node

    def _count(self, values: int, event: yaml.Event) -> None:
        self.values += values
        # Check each time, because a few hundred bytes of aliases can expand to hundreds of millions of values.
        if self.values > self.max_nodes:
            advice = " once aliases are expanded. Check for nested aliases" if self.has_aliases else "; remove some"
            self._give_up(f"more than {self.max_nodes:,} values{advice}", self._place(event.start_mark))

    def _alias(self, event: yaml.AliasEvent) -> Node:
        self.has_aliases = True
        name = event.anchor or ""
        node, values = self.anchors.get(name, (None, 1))
        self._count(values, event)
        if node is not None:
            return node
        if name in self.anchors:
            self._report(f"`*{name}` is inside its own anchor", event)
        else:
            known = ", ".join(f"`&{anchor}`" for anchor in islice(self.anchors, 10))
            self._report(f"`*{name}` has no anchor before it" + (f". Available: {known}" if known else ""), event)
        return self._invalid(event)

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        return Scalar(self._value(event), self._place(event.start_mark), self._place(event.end_mark))

    def _value(self, event: yaml.ScalarEvent) -> bool | int | float | str | None:
        """Return the value of a scalar, or `Invalid` after reporting an error."""
        text: str = event.value
        if event.implicit[0]:
            try:
                return scalar(text)
            except ValueError as error:
                self._report(str(error), event)
                return Invalid()
        if has_surrogate(text):
            # Only the pure Python scanner accepts escapes of unpaired surrogates.
            self._report("an unpaired surrogate is not valid text", event)
            return Invalid()
        return text

    def _sequence(self, start: yaml.SequenceStartEvent) -> Sequence:
        items: list[Node] = []
        self.path.append(0)
        while not isinstance(event := self.next_event(), yaml.SequenceEndEvent):
            self.path[-1] = len(items)
            items.append(self._node(event))
        self.path.pop()
        place, end = self._place(start.start_mark), self._place(event.end_mark)
        return Sequence(tuple(items), place, end, is_flow=bool(start.flow_style))

    def _mapping(self, start: yaml.MappingStartEvent) -> Mapping | Scalar:
        entries: dict[str, MapItem] = {}
        merged: dict[str, MapItem] = {}
        merge_place: Place | None = None
        is_template = False  # `key: {{ name }}` without quotes is a mapping with a mapping as key
        self.path.append("")
        while not isinstance(event := self.next_event(), yaml.MappingEndEvent):
            self.path[-1] = ""
            is_merge = (
                self.has_merge_keys
                and isinstance(event, yaml.ScalarEvent)
                and event.value == "<<"
                and event.implicit[0]
            )
            key = "<<" if is_merge else self._key(event)
            self.path[-1] = key or "?"
            place = self._place(event.start_mark)
            node = self._node(self.next_event())
            if is_merge:
                if merge_place is None:
                    merge_place = place
                    merged = self._merged(node, merge_place)
                else:
                    text = f"duplicate key `<<`, first at {_short(merge_place)}; write `<<: [*a, *b]`"
                    self._report(text, place)
            elif key is not None and key in entries:
                self._report(f"duplicate key `{key}`, first at {_short(entries[key].place)}", place)
            elif key is not None:
                entries[key] = MapItem(place, node)
            elif isinstance(event, yaml.CollectionStartEvent):
                is_template = True
        self.path.pop()
        if is_template:
            return self._invalid(start)
        # Keys of the mapping take precedence over merged keys.
        entries = {**merged, **entries} if merged else entries
        place, end = self._place(start.start_mark), self._place(event.end_mark)
        return Mapping(entries, place, end, is_flow=bool(start.flow_style))

    def _key(self, event: yaml.Event) -> str | None:
        """Return a key, or None after reporting that the key is not text."""
        if isinstance(event, yaml.ScalarEvent) and event.tag is None and event.anchor is None:  # most keys
            if self.has_scalar_keys:
                return str(event.value)
            value = self._value(event)
        else:
            node = self._node(event)
            value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, str):
            return None if isinstance(value, Invalid) else value
        if isinstance(event, yaml.MappingStartEvent) and event.flow_style:
            self._report('a template needs quotes: "{{ … }}"', event)
        elif isinstance(event, yaml.ScalarEvent):
            self._report(
                "a key must be text; " + (f'quote it: "{event.value}"' if event.value else "it is empty"), event
            )
        else:
            self._report("a key must be text", event)
        return None

    def _merged(self, node: Node, place: Place) -> dict[str, MapItem]:
        """Return the entries of the mapping or mappings in `<<`. For equal keys, the first mapping wins."""
        sources = node.items if isinstance(node, Sequence) else (node,)
        entries: dict[str, MapItem] = {}
        for source in sources:
            if isinstance(source, Mapping):
                entries = {**source.entries, **entries}
            elif not (isinstance(source, Scalar) and isinstance(source.value, Invalid)):
                self._report("`<<` takes a mapping, or a list of mappings", place)
        return entries

    def _invalid(self, event: yaml.Event) -> Scalar:
        return Scalar(Invalid(), self._place(event.start_mark), self._place(event.end_mark))

    def _place(self, mark: Any) -> Place:
        # PyYAML and libyaml have different classes of marks.
        line, column = (0, 0) if mark is None else (mark.line, mark.column)
        return Place(self.source, self.first_line + line + 1, column + 1)

    def _report(self, message: str, where: yaml.Event | Place) -> None:
        place = where if isinstance(where, Place) else self._place(where.start_mark)
        path: DocumentPath = tuple(key for key in self.path if key != "")
        self.diagnostics.append(Diagnostic(message=message, path=path, place=place))

    def _give_up(self, message: str, place: Place) -> NoReturn:
        raise UnreadableError(message, line=place.line, column=place.column)


def _short(place: Place) -> str:
    return f"{place.source.path.name}:{place.line}:{place.column}"
