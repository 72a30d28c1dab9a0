"""Matches URIs against URI templates in linear time.

Regular expressions would backtrack: for `x:{a}-{b}-{c}`, a hostile URI of 2 KiB takes 10 s.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

from gateway.language.scope import Scope
from gateway.language.uris.templates import (
    LONE_PERCENT,
    RESERVED,
    Part,
    UriExpression,
    UriTemplateError,
    names_in,
    parse_uri_template,
)


class UriMatcher(msgspec.Struct, frozen=True, kw_only=True):
    variables: tuple[str, ...]
    optional: frozenset[str]
    """Variables that a URI can omit, from `{/var}` and `{?var}`."""
    _patterns: tuple["_Pattern", ...]
    """One pattern for each possible number of `{/var}` values in a URI."""
    _query: frozenset[str] | None

    def match(self, uri: str) -> Mapping[str, str] | None:
        """Return the percent-decoded variables, or None if the URI does not match."""
        query: dict[str, str] | None = {}
        if self._query is not None:
            # RFC 3986 §3.4: the first `?` starts the query.
            uri, mark, text = uri.partition("?")
            query = _match_query(text, self._query) if mark else {}
        if query is None:
            return None
        # If several patterns match, use the one with the fewest `{/var}`.
        for pattern in self._patterns:
            if (found := _match_pattern(pattern, uri)) is not None:
                # Decode after matching: `%2F` is not a separator.
                return _decode_all(found | query)
        return None


def compile_matcher(source: str, scope: Scope) -> UriMatcher:
    try:
        return _strict_matcher(source)
    except UriTemplateError as error:
        scope.problems.error(str(error))
        return _matcher(())


def _strict_matcher(source: str) -> UriMatcher:
    parts = parse_uri_template(source)
    _check_matchable(parts)
    return _matcher(parts)


def _matcher(parts: tuple[Part, ...]) -> UriMatcher:
    segments = _names_with(parts, "/")
    query = _names_with(parts, "?")
    return UriMatcher(
        variables=tuple(names_in(parts)),
        optional=frozenset(segments + query),
        _patterns=tuple(_pattern(parts, segments[:count]) for count in range(len(segments) + 1)),
        _query=frozenset(query) if query else None,
    )


def _names_with(parts: Sequence[Part], operator: str) -> list[str]:
    return names_in([part for part in parts if isinstance(part, UriExpression) and part.operator == operator])


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LAST: Final = {"": 0, "+": 0, "/": 1, "?": 2}
"""Supported operators, with the order that expressions without text between them must have."""


def _check_matchable(parts: tuple[Part, ...]) -> None:
    """Check that a template can be matched without ambiguity.

    1. The template starts with a scheme.
    2. Its expressions have a supported form.
    3. Each variable is used once.
    4. Expressions are separated by text.
    """
    if not (parts and isinstance(parts[0], str) and _SCHEME.match(parts[0])):
        raise UriTemplateError("a resource's URI must start with a scheme, such as `incident://{id}`")
    for part in parts:
        if isinstance(part, UriExpression):
            _check_form(part)
    names = names_in(parts)
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UriTemplateError(f"`{twice}` is used twice. Each variable must be unique")
    for part, following in pairwise(parts):
        if isinstance(part, UriExpression):
            _check_neighbours(part, following)


def _check_form(expression: UriExpression) -> None:
    is_known = expression.operator in _LAST and not expression.has_modifier
    if not is_known or (len(expression.names) > 1 and expression.operator in {"", "+"}):
        raise UriTemplateError(
            f"`{expression.source}` cannot be matched; a resource's URI takes {{var}}, {{+var}}, {{/var}}, {{?a,b}}"
        )


def _check_neighbours(expression: UriExpression, following: Part) -> None:
    if isinstance(following, str):
        if expression.operator in {"/", "?"}:
            raise UriTemplateError(f"`{expression.source}` can only be matched at the end, not before `{following}`")
        return
    is_ordered = (
        _LAST[expression.operator] < _LAST[following.operator] or expression.operator == following.operator == "/"
    )
    if not is_ordered or (expression.operator == "+" and following.operator == "/"):
        raise UriTemplateError(f"`{expression.source}` and `{following.source}` need literal text between them")


def _pattern(parts: Sequence[Part], segments: Sequence[str]) -> "_Pattern":
    texts, slots = [""], list[_Slot]()
    for part in parts:
        if isinstance(part, str):
            texts[-1] += part
        elif part.operator in {"", "+"}:
            slots.append((part.names[0], "" if part.operator else "/?#"))
            texts.append("")
    for name in segments:
        texts[-1] += "/"
        slots.append((name, "/?#"))
        texts.append("")
    return texts, slots


_Slot = tuple[str, str]
"""The name of a variable, and the characters that its value cannot contain."""


_Pattern = tuple[Sequence[str], Sequence[_Slot]]
"""The literal strings of a template, and the slots between these strings."""


def _match_pattern(pattern: _Pattern, uri: str) -> dict[str, str] | None:
    """Return the value of each slot, or None if the URI does not match.

    The first loop finds the possible start positions of each slot. A value cannot extend past a forbidden character, so
    only the first start after each forbidden character is kept. The second loop selects a start, from last to first.
    """
    texts, slots = pattern
    if not uri.startswith(texts[0]):
        return None
    starts: list[int] = [len(texts[0])]
    earliest: list[dict[int, int]] = []
    stops = [[at for at, character in enumerate(uri) if character in slot[1]] for slot in slots]
    for index, text in enumerate(texts[1:]):
        first: dict[int, int] = {}
        for start in starts:
            first.setdefault(bisect_left(stops[index], start), start)
        earliest.append(first)
        ends = _places(uri, text, is_last=index == len(slots) - 1)
        starts = [end + len(text) for end in ends if first.get(bisect_left(stops[index], end), end + 1) <= end]
    if len(uri) not in starts:
        return None
    found: dict[str, str] = {}
    end = len(uri)
    for index in reversed(range(len(slots))):
        end -= len(texts[index + 1])
        start = earliest[index][bisect_left(stops[index], end)]
        found[slots[index][0]] = uri[start:end]
        end = start
    return dict(reversed(found.items()))


def _places(uri: str, text: str, *, is_last: bool) -> Iterator[int]:
    if is_last:
        if uri.endswith(text):
            yield len(uri) - len(text)
        return
    place = uri.find(text)
    while place >= 0:
        yield place
        # Matches can overlap: `--` occurs twice in `---`.
        place = uri.find(text, place + 1)


def _match_query(text: str, names: frozenset[str]) -> dict[str, str] | None:
    """Parse a query. Return None if it contains an unknown or repeated name, or a name without a value."""
    found: dict[str, str] = {}
    for pair in text.split("&"):
        name, mark, value = pair.partition("=")
        if not mark or name not in names or name in found:
            return None
        found[name] = value
    return found


def _decode_all(found: dict[str, str]) -> dict[str, str] | None:
    # No expansion contains a lone `%`.
    if any(map(LONE_PERCENT.search, found.values())):
        return None
    try:
        return {name: unquote_to_bytes(value).decode() for name, value in found.items()}
    # RFC 6570 §1.6: values are encoded as UTF-8.
    except UnicodeError:
        return None


URI: Final = "uri"
"""The only variable that `LooseMatcher` returns: the requested URI."""
_EXPRESSION: Final = re.compile(r"\{[^{}]*\}")


class LooseMatcher(msgspec.Struct, frozen=True, kw_only=True):
    """Matches URIs with a template of an upstream, whose matching rules are unknown.

    A URI matches if it contains the literal strings of the template in order, as every expansion does (RFC 6570 §3.1).
    """

    literals: tuple[str, ...]
    strict: UriMatcher | None
    """None if the template cannot be matched exactly."""

    def match(self, uri: str) -> dict[str, str] | None:
        encoded = _encoded(uri)
        first, *others = self.literals
        if not encoded.startswith(first):
            return None
        position = len(first)
        for literal in others:
            if (found := encoded.find(literal, position)) < 0:
                return None
            position = found + len(literal)
        # The URI must end with the last literal, which can also occur earlier in the URI.
        is_whole = not others or encoded.endswith(others[-1])
        return {URI: uri} if is_whole and (others or position == len(encoded)) else None

    def rank(self, uri: str) -> tuple[bool, int]:
        """Return a sort key that is higher for templates that fit the URI better."""
        return self.strict is None or self.strict.match(_encoded(uri)) is not None, len(self.literals[0])


def compile_loose_matcher(template: str) -> LooseMatcher:
    literals = tuple(_encoded(text) for text in _EXPRESSION.split(template))
    expressions = (*_EXPRESSION.findall(template), "")
    # Upstreams can send invalid literals, for example with spaces.
    encoded = "".join(f"{text}{expression}" for text, expression in zip(literals, expressions, strict=True))
    try:
        strict = _strict_matcher(encoded)
    except UriTemplateError:
        strict = None
    return LooseMatcher(literals=literals, strict=strict)


def _encoded(text: str) -> str:
    return quote(LONE_PERCENT.sub("%25", text), safe=RESERVED + "%", errors="replace")


_SEGMENT: Final = frozenset("/?#")
"""Characters that are encoded in values of `{var}`."""

_ANY_TEXT: Final[frozenset[str]] = frozenset()

_Token = str | frozenset[str]
"""A literal character, or a gap, which matches any text without the characters in the set."""


def overlap(one: str, other: str) -> bool:
    """Return whether two templates can match the same URI. False positives are possible.

    Templates are compared as sequences of literal characters and gaps. A gap matches any text, or for `{var}` any text
    without `/`, `?` and `#`. `{?var}` is ignored.
    """
    leads = one.partition("{")[0], other.partition("{")[0]
    if not (leads[0].startswith(leads[1]) or leads[1].startswith(leads[0])):
        return False
    first, second = _tokens(one), _tokens(other)
    pending, seen = [(0, 0)], {(0, 0)}
    while pending:
        at = pending.pop()
        if at == (len(first), len(second)):
            return True
        reached = set(_next(first[at[0] : at[0] + 1], second[at[1] : at[1] + 1], *at)) - seen
        seen |= reached
        pending += reached
    return False


def _next(first: list[_Token], second: list[_Token], i: int, j: int) -> Iterator[tuple[int, int]]:
    """Yield the positions that can follow (`i`, `j`). `first` and `second` are the tokens at `i` and `j`, if any."""
    if first and isinstance(first[0], frozenset):
        yield i + 1, j
        if second and second[0] not in first[0]:
            yield i, j + 1
    if second and isinstance(second[0], frozenset):
        yield i, j + 1
        if first and first[0] not in second[0]:
            yield i + 1, j
    if first and first == second:
        yield i + 1, j + 1


def _tokens(template: str) -> list[_Token]:
    tokens: list[_Token] = []
    try:
        parts = parse_uri_template(template)
    except UriTemplateError:  # from an upstream
        text, brace, _ = template.partition("{")
        return [*text, *([_ANY_TEXT] if brace else [])]
    for part in parts:
        if isinstance(part, str):
            tokens.extend(part)
        elif part.operator != "?":
            tokens.append(_ANY_TEXT if part.operator else _SEGMENT)
    return tokens
