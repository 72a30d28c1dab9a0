"""Composes a file of the configuration, and of its sections only the entries that an earlier load has not read.

An entry that is known is taken out of the text before that is composed, and stands there as a key with empty text.
Where its key is found at its place, and nothing is wrong with the rest, the whole would have been composed alike:
`excerpts` says why. Where anything is wrong the whole text is composed, so that errors are the same however it is read.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Map
from collections.abc import Set as AbstractSet
from functools import cached_property

from msgspec.structs import replace

from gateway.config.reading.composer import MAX_NODES, Composition, compose
from gateway.config.reading.entries import KnownEntry
from gateway.config.reading.excerpts import Excerpt, blanked, cut
from gateway.config.reading.nodes import MapItem, Mapping, Node, Point
from gateway.config.reading.source_file import SourceFile


def compose_file(source: SourceFile, earlier: Map[bytes, KnownEntry]) -> Composition:
    """Compose a file, but for the entries that are known."""
    directory = str(source.directory)
    excerpts = cut(source.text)
    keys = [excerpt.key(source.text, directory=directory) for excerpt in excerpts]
    known = [(excerpt, earlier[key]) for excerpt, key in zip(excerpts, keys, strict=True) if key in earlier]
    composition = _without_known(source, known) if known else None
    if composition is None:
        composition, known = compose(source), []
    confirmed = _confirmed(excerpts, {excerpt.start for excerpt, _ in known}, composition)
    return replace(
        composition,
        keys={excerpt.path: key for excerpt, key in zip(excerpts, keys, strict=True) if excerpt.start in confirmed},
    )


def _without_known(source: SourceFile, known: Sequence[tuple[Excerpt, KnownEntry]]) -> Composition | None:
    """The nodes of a file, those of known entries on demand; None if the whole has to be composed."""
    runs = _runs(known)
    found = compose(source, blanked(source.text, ([excerpt for excerpt, _ in run] for run in runs)))
    root = found.root
    if found.diagnostics or not isinstance(root, Mapping):
        return None
    # Each run stands there as one empty text; the limit is for the whole file.
    size = root.size - len(runs) + sum(entry.size for _, entry in known)
    if size > MAX_NODES or not all(_begins_at_key(run[0][0], root) for run in runs):
        return None
    sections = dict(root.entries)
    for name in dict.fromkeys(excerpt.section for excerpt, _ in known):
        section = _with_known(sections[name], {run[0][0].name: run for run in runs if run[0][0].section == name})
        if section is None:
            return None
        sections[name] = section
    return replace(found, root=replace(root, entries=sections, size=size))


def _runs(known: Sequence[tuple[Excerpt, KnownEntry]]) -> list[list[tuple[Excerpt, KnownEntry]]]:
    """Known entries that follow each other: the next begins where nothing of the one before is open."""
    runs: list[list[tuple[Excerpt, KnownEntry]]] = []
    for excerpt, entry in known:
        before = runs[-1][-1][0] if runs else None
        if before is not None and (before.end, before.section) == (excerpt.start, excerpt.section):
            runs[-1].append((excerpt, entry))
        else:
            runs.append([(excerpt, entry)])
    return runs


def _with_known(section: MapItem, runs: Map[str, Sequence[tuple[Excerpt, KnownEntry]]]) -> MapItem | None:
    """A section with its known entries, each run by the name of its first; None if a name stands in it twice."""
    node, source = section.node, section.source
    assert isinstance(node, Mapping)  # noqa: S101 - or nothing in it would begin at a key
    items: dict[str, MapItem] = {}
    count, size = 0, node.size
    for name, item in node.entries.items():
        run = runs.get(name)
        if run is None:
            items[name] = item
            count += 1
            continue
        for excerpt, entry in run:
            items[excerpt.name] = MapItem(source, Point(excerpt.line, excerpt.column), _node(source, excerpt, entry))
            size += entry.size
        count += len(run)
    if len(items) < count:
        return None
    return replace(section, node=replace(node, entries=items, size=size - len(runs)))


def _node(source: SourceFile, excerpt: Excerpt, entry: KnownEntry) -> Node:
    """The node of a known entry, which is composed once something in it is looked for."""
    start = Point(excerpt.line + entry.start.line, entry.start.column)
    return Mapping(_MembersOnDemand(source, excerpt), source, start, entry.is_flow, entry.size)


def _confirmed(excerpts: Sequence[Excerpt], known: AbstractSet[int], composition: Composition) -> AbstractSet[int]:
    """The starts of excerpts that are one entry each, and have nothing to do with the rest; known ones are such."""
    root = composition.root
    if composition.diagnostics or not isinstance(root, Mapping):
        return frozenset()
    begun = [excerpt for excerpt in excerpts if excerpt.start in known or _begins_at_key(excerpt, root)]
    ends = {excerpt.line for excerpt in begun} | {item.key_start.line for item in root.entries.values()}
    referring = sorted(composition.referring_lines)
    confirmed = set(known)
    for each in begun:
        is_last = each.end == len(root.source.text)
        # An excerpt ends before `end_line`; the last one of a text without a line break at its end has that, too.
        is_by_itself = bisect_left(referring, each.line) == bisect_left(referring, each.end_line + is_last)
        if is_by_itself and (is_last or each.end_line in ends):
            confirmed.add(each.start)
    return confirmed


def _begins_at_key(excerpt: Excerpt, root: Mapping) -> bool:
    """Whether the entry's key is where the text was cut: nothing was open there."""
    section = root.entries.get(excerpt.section)
    if root.is_flow or section is None or not isinstance(section.node, Mapping) or section.node.is_flow:
        return False
    item = section.node.entries.get(excerpt.name)
    return item is not None and (item.key_start.line, item.key_start.column) == (excerpt.line, excerpt.column)


class _MembersOnDemand(Map[str, MapItem]):
    """The members of an entry, composed with the first that is asked for: most are never asked for."""

    def __init__(self, source: SourceFile, excerpt: Excerpt) -> None:
        self._source = source
        self._excerpt = excerpt

    def __getitem__(self, name: str) -> MapItem:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    @cached_property
    def _members(self) -> Map[str, MapItem]:
        excerpt = self._excerpt
        text = self._source.text[excerpt.start : excerpt.end]
        root = compose(self._source, text, first_line=excerpt.line).root
        assert isinstance(root, Mapping)  # noqa: S101 - it was when the entry became known
        node = root.entries[excerpt.name].node
        assert isinstance(node, Mapping)  # noqa: S101 - likewise
        return node.entries
