"""Cuts a YAML text into the entries of its sections, by indentation alone. Pure, and no more than a guess.

Why a guess is enough: YAML is read from left to right. Where a composer finds a block mapping's key at the place of a
cut, nothing was open there: no quote, no flow collection, no block scalar. An excerpt between two such places is whole,
and means the same wherever it stands at such a place, as long as it has no anchor or alias. `file_composer` confirms
each cut by the marks of the nodes.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import blake2b
from typing import Final

import msgspec

_KEY_BYTES: Final = 16

_BEFORE_TOP_LINE: Final = re.compile(r"\n(?=[^\s#])", re.ASCII)
"""Begins with a literal character, as the other patterns that search do: `^` would be tried at each character."""
_TOP_KEY: Final = re.compile(r"[A-Za-z_][\w-]*:(?=\s|\Z)|---\s", re.ASCII)
_HEADER: Final = re.compile(
    r"([A-Za-z][\w-]*):[ \t]*(?:#[^\r\n]*)?\r?\n((?:[ \t]*(?:#[^\r\n]*)?\r?\n)*)( +)(?=[^\s#])", re.ASCII
)
"""A section's key without a value, then blank lines and comments, then the indentation of its first entry.

Each of its lines is matched in one way alone: with two ways for a CR, a section of comments only would take 2^n tries.
"""


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of one entry of a section, up to the next entry or section."""

    section: str
    name: str
    start: int
    """The index of its first character, which is the first of its line."""
    end: int
    line: int
    """Lines count from 0."""
    end_line: int
    column: int

    @property
    def path(self) -> tuple[str, str]:
        return self.section, self.name

    def key(self, text: str, *, directory: str) -> bytes:
        """A digest of all that its meaning follows from: its text, its section, and where its relative paths begin."""
        content = f"{directory}\0{self.section}\0{text[self.start : self.end]}"
        return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()


def cut(text: str) -> list[Excerpt]:
    """Cut each section whose entries all begin with a plain key; the others are left whole."""
    if _has_other_line_breaks(text):
        return []
    if text[:1].strip() not in {"", "#"} and _TOP_KEY.match(text) is None:
        return []
    tops = [0]
    for match in _BEFORE_TOP_LINE.finditer(text):
        if _TOP_KEY.match(text, match.end()) is None:  # `<<` brings in keys that may stand in a flow mapping
            return []
        tops.append(match.end())
    excerpts: list[Excerpt] = []
    line, counted = 0, 0
    for top, end in zip(tops, [*tops[1:], len(text)], strict=True):
        if (header := _HEADER.match(text, top, end)) is not None:
            line, counted = line + text.count("\n", counted, header.start(3)), header.start(3)
            excerpts += _entries(text, header, end, line)
    return excerpts


def blanked(text: str, runs: Iterable[Sequence[Excerpt]]) -> str:
    """The text with each run of adjacent excerpts as one entry of empty text, and with as many lines as before."""
    parts: list[str] = []
    after = 0
    for run in runs:
        first, last = run[0], run[-1]
        # A quoted scalar: a plain one could go on in the next line.
        entry = f"{' ' * first.column}{first.name}: ''"
        parts += text[after : first.start], entry, "\n" * (last.end_line - first.line)
        after = last.end
    return "".join([*parts, text[after:]])


def _has_other_line_breaks(text: str) -> bool:
    """Whether lines end otherwise than by LF or CRLF, so that YAML's scanner would count others than we do."""
    return text.count("\r") != text.count("\r\n") or any(each in text for each in "\x85\u2028\u2029")


def _entries(text: str, header: re.Match[str], end: int, line: int) -> Iterator[Excerpt]:
    section, indentation = header[1], len(header[3])
    lines = [match.end() for match in _before_outer_line(indentation).finditer(text, header.start(3) - 1, end)]
    keys = [_entry_key(indentation).match(text, start, end) for start in lines]
    if not all(keys):  # such as `<<`, `? ` or a quoted key
        return
    for key, stop in zip(keys, [*lines[1:], end], strict=True):
        assert key is not None  # noqa: S101 - see above
        end_line = line + text.count("\n", key.start(), stop)
        yield Excerpt(
            section=section,
            name=key[1],
            start=key.start(),
            end=stop,
            line=line,
            end_line=end_line,
            column=indentation,
        )
        line = end_line


@cache
def _before_outer_line(indentation: int) -> re.Pattern[str]:
    """The end of the line before one that is indented no further, and is neither blank nor a comment."""
    return re.compile(rf"\n(?= {{0,{indentation}}}[^\s#])", re.ASCII)


@cache
def _entry_key(indentation: int) -> re.Pattern[str]:
    return re.compile(rf" {{{indentation}}}(\w[\w.-]*):(?=\s)", re.ASCII)
