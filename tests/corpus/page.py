"""The page `docs/compatibility.md`, with a section per corpus and the figures of a complete run."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.corpus.corpora import Corpus, Figures

PAGE: Final = Path(__file__).parents[2] / "docs" / "compatibility.md"
_HEAD: Final = "| Check | Tried | Right | Explained | Wrong |\n| --- | ---: | ---: | ---: | ---: |\n"
_NUMBERS: Final = " | ".join(rf"(?P<{name}>\d+)" for name in ("tried", "right", "explained", "wrong"))
_ROW: Final = re.compile(rf"(?m)^\| (?P<label>[^|]+) \| {_NUMBERS.replace(' | ', ' [|] ')} \|$")
_REASON: Final = re.compile(r"(?m)^- (?P<label>[^:]+): (?P<count>\d+) × (?P<sentence>.+)$")


def section(corpus: Corpus, figures: Mapping[str, Figures]) -> str:
    """Write the section of one corpus."""
    table, reasons, wrong = [], [], []
    for check, label in corpus.checks.items():
        of = figures.get(check, Figures())
        table.append(f"| {label} | {of.tried} | {of.right} | {of.reasons.total()} | {len(of.wrong)} |\n")
        reasons += [
            f"- {label}: {count} × {corpus.reasons[key]}\n"
            for key, count in sorted(of.reasons.items(), key=lambda each: (-each[1], each[0]))
        ]
        wrong += [f"- {label}: {shown(each)}\n" for each in sorted(of.wrong)]
    text = f"## {corpus.title}\n\n{corpus.about.strip()}\n\n{_HEAD}{''.join(table)}"
    if reasons:
        text += f"\nRefusals and differences:\n\n{''.join(reasons)}"
    if wrong:
        text += f"\nKnown defects:\n\n{''.join(wrong)}"
    return text


def shown(wrong: str) -> str:
    """Format a wrong case in one line."""
    return f"`{' '.join(wrong.replace('`', '').split())[:300]}`"


def figures_of(corpus: Corpus, page: str) -> dict[str, Figures]:
    """Read the figures of one corpus from the page."""
    labels = {label: check for check, label in corpus.checks.items()}
    sentences = {sentence: key for key, sentence in corpus.reasons.items()}
    found: dict[str, Figures] = {}
    for row in rows(sections(page)[corpus.title]):
        reasons = {sentences[sentence]: count for sentence, count in row.reasons.items()}
        found[labels[row.label]] = Figures(tried=row.tried, right=row.right, reasons=Counter(reasons))
    return found


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a section's table, and its reasons."""

    label: str
    tried: int
    right: int
    explained: int
    wrong: int
    reasons: Mapping[str, int]
    listed: int
    """Number of wrong cases listed in the section."""


def rows(text: str) -> list[Row]:
    """Read the table of a section."""
    reasons = [found.groupdict() for found in _REASON.finditer(text)]
    return [
        Row(
            label=row["label"],
            **{key: int(row[key]) for key in ("tried", "right", "explained", "wrong")},
            reasons={each["sentence"]: int(each["count"]) for each in reasons if each["label"] == row["label"]},
            listed=text.count(f"\n- {row['label']}: `"),
        )
        for row in (found.groupdict() for found in _ROW.finditer(text))
    ]


def write(corpus: Corpus, figures: Mapping[str, Figures]) -> None:
    """Replace the section of a corpus."""
    text = PAGE.read_text(encoding="utf-8")
    before = sections(text)[corpus.title]
    PAGE.write_text(text.replace(before, section(corpus, figures) + "\n" * before.endswith("\n\n")), encoding="utf-8")


def sections(page: str) -> dict[str, str]:
    """Split the page into sections by title."""
    parts = re.split(r"(?m)^(?=## )", page)
    return {part.partition("\n")[0].removeprefix("## "): part for part in parts if part.startswith("## ")}
