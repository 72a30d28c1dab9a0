"""Finds prompt injection in texts that models read. Pure.

A description is read by every model that lists the tools, before anybody has called one. Published attacks
("tool poisoning") hide orders there: to drop other instructions, to keep something from the user, in tags that pose as
the system's voice, or in comments that no rendering shows. The table holds these alone: good
descriptions say everything else, too.
"""

import re
from typing import Final

_ORDERS: Final = (
    (
        re.compile(
            r"\b(?:ignore|disregard|forget|override)\s+(?:(?:all|any|the|your|of|these|those)\s+)*"
            r"(?:previous|prior|above|earlier|preceding|foregoing)\s+"
            r"(?:instruction|prompt|rule|message|direction|guideline|command|context)s?\b",
            re.IGNORECASE,
        ),
        "tells a model to ignore its instructions",
    ),
    (
        re.compile(
            r"\b(?:do\s+not|don[’']t|never|without)\s+(?:(?:tell|inform|notify|alert)(?:ing)?\s+(?:the\s+)?user\b"
            r"|(?:mention|reveal|disclose)(?:ing)?\s+(?:this|that|it|these)\s+to\s+(?:the\s+)?user\b)",
            re.IGNORECASE,
        ),
        "tells a model to hide something from its user",
    ),
)
_VOICES: Final = (
    (
        re.compile(
            r"</?(?:important|system)>|</(?:instructions?|secret|hidden|admin|assistant)>"
            r"|<\|(?:im_start|im_end|system|user|assistant|endoftext)\|>|\[/?INST\]|<</?SYS>>",
            re.IGNORECASE,
        ),
        "imitates another speaker",
    ),
    (re.compile("<!--"), "is not visible in rendered text, but models read it"),
)


def instructions_in(text: str) -> str | None:
    """Quote an instruction that no text of a server should give, and say what is wrong with it."""
    return _first(text, _ORDERS)


def prompt_injection_in(description: str) -> str | None:
    """Quote an instruction as `instructions_in` does, or a tag or comment: a description needs none of those."""
    return _first(description, (*_ORDERS, *_VOICES))


def _first(text: str, table: tuple[tuple[re.Pattern[str], str], ...]) -> str | None:
    for pattern, why in table:
        if (match := pattern.search(text)) is not None:
            return f"`{' '.join(match[0].split())}` {why}"
    return None
