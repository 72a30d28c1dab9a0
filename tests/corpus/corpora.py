"""Shared by all corpora: verdicts, figures of a run, and reproducible samples."""

import random
from collections import Counter
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

SEED: Final = 20261125
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of one check of one case: correct, explained by a known reason, or wrong."""

    check: str
    case: str
    reason: str = ""
    """Key of the reason. Empty if the case is correct or wrong."""
    wrong: str = ""
    """Description of the error. Empty if the case is not wrong."""


@dataclass(kw_only=True)
class Figures:
    """The number of cases of one check, by verdict."""

    tried: int = 0
    right: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A collection of published cases, in parts that can be judged in any order."""

    title: str
    about: str
    """Description of the cases and the comparison, for the page."""
    checks: Mapping[str, str]
    """Checks, and their names on the page."""
    reasons: Mapping[str, str]
    """Explanations of refusals and differences, for operators."""
    parts: Callable[..., Sequence[str]]
    """Lists all parts if `is_whole`, otherwise the sample for CI."""
    verdicts: Callable[[str], AsyncIterable[Verdict]]
    """Judges the cases of one part."""


def counted(verdicts: Iterable[Verdict]) -> dict[str, Figures]:
    """Return the figures of each check."""
    found: dict[str, Figures] = {}
    for verdict in verdicts:
        figures = found.setdefault(verdict.check, Figures())
        figures.tried += 1
        if verdict.wrong:
            figures.wrong.append(f"{verdict.case}: {verdict.wrong}")
        elif verdict.reason:
            figures.reasons[verdict.reason] += 1
        else:
            figures.right += 1
    return found


def sampled(items: Sequence[T], count: int) -> list[T]:
    """Choose at most `count` items with the fixed seed. Smaller samples are prefixes of larger ones."""
    return random.Random(SEED).sample(items, len(items))[:count]


def reason_of(message: str, reasons: Mapping[str, str]) -> str | None:
    """Return the first reason whose text is part of a message."""
    return next((reason for text, reason in reasons.items() if text in message), None)
