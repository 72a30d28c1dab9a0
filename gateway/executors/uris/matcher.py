"""URI templates read backwards: a URI to the variables that it was made from. Compiled at load; no I/O.

Matching runs in linear time, whatever the URI: nothing here backtracks.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from urllib.parse import unquote_to_bytes

from gateway.executors.scope import Scope
from gateway.executors.uris.grammar import (
    LONE_PERCENT,
    Expression,
    Part,
    UriTemplateError,
    Variable,
    names_in,
    parse_uri_template,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UriMatcher:
    """A compiled template that finds its variables in a URI."""

    variables: tuple[str, ...]
    """In the order of the template."""
    optional: frozenset[str]
    """Those of `{/var}` and `{?var}`, which a URI may lack."""
    _shapes: "tuple[_Shape, ...]"
    """One for each number of `{/var}` that a URI may have."""
    _query: frozenset[str] | None

    def match(self, uri: str) -> Mapping[str, str] | None:
        """The variables that make the template expand to `uri`, percent-decoded once; None if none do."""
        query: dict[str, str] | None = {}
        if self._query is not None:
            uri, mark, text = uri.partition("?")
            query = _match_query(text, self._query) if mark else {}
        if query is None:
            return None
        for shape in self._shapes:
            if (found := shape.match(uri)) is not None:
                return _decode_all(found | query)
        return None


def compile_matcher(source: str, scope: Scope) -> UriMatcher:
    """Compile a resource's `uri`; mistakes go to the problems of `scope`, whose inputs are not looked at."""
    try:
        parts = parse_uri_template(source)
        _check_matchable(parts)
    except UriTemplateError as error:
        scope.problems.error(str(error))
        parts = ()
    return _matcher(parts)


def _matcher(parts: tuple[Part, ...]) -> UriMatcher:
    segments = _names_with(parts, "/")
    query = _names_with(parts, "?")
    return UriMatcher(
        variables=tuple(names_in(parts)),
        optional=frozenset(segments + query),
        _shapes=tuple(_shape(parts, segments[:count]) for count in range(len(segments) + 1)),
        _query=frozenset(query) if query else None,
    )


def _names_with(parts: Sequence[Part], operator: str) -> list[str]:
    return names_in([part for part in parts if isinstance(part, Expression) and part.operator == operator])


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LAST: Final = {"": 0, "+": 0, "/": 1, "?": 2}
"""In which order expressions may follow each other without text between them."""


def _check_matchable(parts: tuple[Part, ...]) -> None:
    """Allow what can be told apart: (1) a scheme, (2) known forms, (3) each name once, (4) text between neighbours."""
    if not (parts and isinstance(parts[0], str) and _SCHEME.match(parts[0])):
        raise UriTemplateError("a resource's URI starts with a scheme of its own, such as `incident://{id}`")
    for part in parts:
        if isinstance(part, Expression):
            _check_form(part)
    names = names_in(parts)
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UriTemplateError(f"`{twice}` stands there twice; a URI is matched to each variable once")
    for part, following in pairwise(parts):
        if isinstance(part, Expression):
            _check_neighbours(part, following)


def _check_form(expression: Expression) -> None:
    is_known = expression.operator in _LAST and not any(map(_has_modifier, expression.variables))
    if not is_known or (len(expression.variables) > 1 and expression.operator in {"", "+"}):
        raise UriTemplateError(
            f"`{expression.source}` cannot be matched; a resource's URI takes {{var}}, {{+var}}, {{/var}}, {{?a,b}}"
        )


def _has_modifier(variable: Variable) -> bool:
    return variable.has_modifier


def _check_neighbours(expression: Expression, following: Part) -> None:
    if isinstance(following, str):
        if expression.operator in {"/", "?"}:
            raise UriTemplateError(f"`{expression.source}` can only be matched at the end, not before `{following}`")
        return
    is_ordered = (
        _LAST[expression.operator] < _LAST[following.operator] or expression.operator == following.operator == "/"
    )
    if not is_ordered or (expression.operator == "+" and following.operator == "/"):
        raise UriTemplateError(
            f"`{expression.source}` and `{following.source}` need text between them to be told apart"
        )


def _shape(parts: Sequence[Part], segments: Sequence[str]) -> "_Shape":
    texts, holes = [""], []
    for part in parts:
        if isinstance(part, str):
            texts[-1] += part
        elif part.operator in {"", "+"}:
            holes.append(_Hole(part.variables[0].name, stops="" if part.operator else "/?#"))
            texts.append("")
    for name in segments:
        texts[-1] += "/"
        holes.append(_Hole(name, stops="/?#"))
        texts.append("")
    return _Shape(texts=tuple(texts), holes=tuple(holes))


@dataclass(frozen=True, slots=True)
class _Hole:
    """A place for a value, which holds none of the characters in `stops`."""

    name: str
    stops: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """Texts with holes between them: one more text than holes."""

    texts: tuple[str, ...]
    holes: tuple[_Hole, ...]

    def match(self, uri: str) -> dict[str, str] | None:
        """Fill the holes, each as short as can be, from left to right.

        Forward, the places where each hole can begin are found; backward, one of them is taken for each. A value lies
        within one *run*, the stretch between two stops, so that only the earliest beginning in each run matters.
        """
        if not uri.startswith(self.texts[0]):
            return None
        begins: list[int] = [len(self.texts[0])]
        steps: list[_Step] = []
        for hole, text in zip(self.holes, self.texts[1:], strict=True):
            step = _Step(uri, hole, begins)
            ends = _places(uri, text, is_last=len(steps) == len(self.holes) - 1)
            begins = [end + len(text) for end in ends if step.reaches(end)]
            steps.append(step)
        return self._read_back(uri, steps) if len(uri) in begins else None

    def _read_back(self, uri: str, steps: "Sequence[_Step]") -> dict[str, str]:
        found: dict[str, str] = {}
        end = len(uri)
        for step, text in zip(reversed(steps), reversed(self.texts), strict=False):
            end -= len(text)
            begin = step.earliest[step.run_of(end)]
            found[step.hole.name] = uri[begin:end]
            end = begin
        return dict(reversed(found.items()))


class _Step:
    """Where one hole may begin in a URI."""

    __slots__ = ("_stops", "earliest", "hole")

    def __init__(self, uri: str, hole: _Hole, begins: Sequence[int]) -> None:
        self.hole = hole
        self._stops = [index for index, character in enumerate(uri) if character in hole.stops] if hole.stops else []
        self.earliest: dict[int, int] = {}
        """Run → the earliest beginning in it."""
        for begin in begins:
            self.earliest.setdefault(self.run_of(begin), begin)

    def run_of(self, index: int) -> int:
        return bisect_left(self._stops, index)

    def reaches(self, end: int) -> bool:
        return self.earliest.get(self.run_of(end), end + 1) <= end


def _places(uri: str, text: str, *, is_last: bool) -> Iterator[int]:
    """Where `text` stands in `uri`, from left to right; the last text stands at the end."""
    if is_last:
        if uri.endswith(text):
            yield len(uri) - len(text)
        return
    place = uri.find(text)
    while place >= 0:
        yield place
        place = uri.find(text, place + 1)


def _match_query(text: str, names: frozenset[str]) -> dict[str, str] | None:
    """Read a query in which each of `names` stands at most once, in any order, and nothing else."""
    found: dict[str, str] = {}
    for pair in text.split("&"):
        name, mark, value = pair.partition("=")
        if not mark or name not in names or name in found:
            return None
        found[name] = value
    return found


def _decode_all(found: dict[str, str]) -> dict[str, str] | None:
    if any(map(LONE_PERCENT.search, found.values())):
        return None
    try:
        return {name: unquote_to_bytes(value).decode() for name, value in found.items()}
    except UnicodeError:
        return None
