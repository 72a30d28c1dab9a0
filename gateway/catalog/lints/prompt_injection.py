"""Finds prompt injection in texts that models read.

Models read descriptions when they list tools, before any call. Published attacks ("tool poisoning") use them to
override other instructions, hide something from the user, imitate the system's voice in tags, or hide text in comments.
The table contains only these patterns.
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
    """Quote an instruction that no text of a server should contain, and describe the problem."""
    return _first(text, _ORDERS)


def prompt_injection_in(description: str) -> str | None:
    """Like `instructions_in`, but also find tags and comments, which descriptions do not need."""
    return _first(description, (*_ORDERS, *_VOICES))


def _first(text: str, table: tuple[tuple[re.Pattern[str], str], ...]) -> str | None:
    for pattern, why in table:
        if (match := pattern.search(text)) is not None:
            return f"`{' '.join(match[0].split())}` {why}"
    return None
