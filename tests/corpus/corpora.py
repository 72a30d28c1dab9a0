"""What all corpora share: verdicts on cases, figures of a run, and samples that are the same in every run."""

import random
from collections import Counter
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

SEED: Final = 20261125
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of one check of one case: right, explained by a known reason, or wrong."""

    check: str
    case: str
    reason: str = ""
    """A key of the corpus's reasons; empty if the case is right or wrong."""
    wrong: str = ""
    """What is wrong with it."""


@dataclass(kw_only=True)
class Figures:
    """The number of cases of one check, by their verdict."""

    tried: int = 0
    right: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Cases that other people wrote, in parts that can be judged in any order."""

    title: str
    about: str
    """Where the cases come from and what is compared, for the page."""
    checks: Mapping[str, str]
    """The checks and what a row of the page calls them."""
    reasons: Mapping[str, str]
    """Why cases are refused or differ, in a sentence for operators."""
    parts: Callable[..., Sequence[str]]
    """Lists its parts: all of them if `is_whole`, otherwise those that CI judges."""
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
    """Choose at most `count` items by the fixed seed; a smaller sample is the beginning of a larger one."""
    return random.Random(SEED).sample(items, len(items))[:count]


def reason_of(message: str, reasons: Mapping[str, str]) -> str | None:
    """Return the first reason whose text is part of a message."""
    return next((reason for text, reason in reasons.items() if text in message), None)
