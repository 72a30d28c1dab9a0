"""Matches URIs against URI templates of upstreams, whose matching rules are unknown."""

import re
from typing import Final
from urllib.parse import quote

import msgspec

from gateway.language.uris.grammar import LONE_PERCENT, RESERVED, UriTemplateError
from gateway.language.uris.matcher import UriMatcher, strict_matcher

URI: Final = "uri"
"""The only variable of a match: the requested URI."""
_EXPRESSION: Final = re.compile(r"\{[^{}]*\}")


class LooseMatcher(msgspec.Struct, frozen=True, kw_only=True):
    """Matches URIs that contain the literal texts of a template in order, as every expansion does (RFC 6570 §3.1)."""

    literals: tuple[str, ...]
    """Percent-encoded literal texts."""
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
        # The last text can occur again at the end.
        is_whole = not others or encoded.endswith(others[-1])
        return {URI: uri} if is_whole and (others or position == len(encoded)) else None

    def rank(self, uri: str) -> tuple[bool, int]:
        """Return how closely the template fits a URI. The template with the highest rank is read."""
        return self.strict is None or self.strict.match(_encoded(uri)) is not None, len(self.literals[0])


def compile_loose_matcher(template: str) -> LooseMatcher:
    literals = tuple(_encoded(text) for text in _EXPRESSION.split(template))
    expressions = (*_EXPRESSION.findall(template), "")
    # Literal text of upstreams can contain spaces, for example.
    encoded = "".join(f"{text}{expression}" for text, expression in zip(literals, expressions, strict=True))
    try:
        strict = strict_matcher(encoded)
    except UriTemplateError:
        strict = None
    return LooseMatcher(literals=literals, strict=strict)


def _encoded(text: str) -> str:
    return quote(LONE_PERCENT.sub("%25", text), safe=RESERVED + "%", errors="replace")
