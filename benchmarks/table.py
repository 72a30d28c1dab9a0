"""Figures side by side, what was aimed at, and whether it was reached."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing that was measured; less is better."""

    work: str
    unit: str
    ours: float
    theirs: float | None = None
    at_least: float | None = None
    """How many times ours shall go into theirs."""
    at_most: float | None = None
    """What ours shall not exceed."""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.theirs is None else self.theirs / max(self.ours, 1e-9)

    @property
    def is_reached(self) -> bool:
        if self.at_most is not None and self.ours > self.at_most:
            return False
        return self.at_least is None or self.ratio is None or self.ratio >= self.at_least

    @property
    def cells(self) -> tuple[str, ...]:
        return (
            self.work,
            f"{_figure(self.ours)} {self.unit}",
            "–" if self.theirs is None else f"{_figure(self.theirs)} {self.unit}",
            "–" if self.ratio is None else f"{self.ratio:.1f}×",
            self._aim,
            self.note,
        )

    @property
    def _aim(self) -> str:
        aims = [
            f"{self.at_least:g}×" if self.at_least is not None else "",
            f"≤ {self.at_most:g} {self.unit}" if self.at_most is not None else "",
        ]
        said = ", ".join(filter(None, aims)) or "–"
        return said if self.is_reached else f"{said} (missed)"


def markdown(rows: Iterable[Row], *, names: tuple[str, str]) -> str:
    """A table that can be read as it is."""
    head = ("work", *names, "ratio", "aim", "")
    lines = [head, *(row.cells for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in (head, rule, *lines[1:])
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
