"""Formats figures, aims and whether they are met."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.contenders import OURS


@dataclass(frozen=True, kw_only=True)
class Aim:
    """An upper bound: `factor` times the figure of `reference`, or `factor` itself."""

    factor: float
    reference: str | None = None
    text: str

    def is_reached(self, figures: Mapping[str, float]) -> bool | None:
        """Return None if the reference was not measured."""
        if self.reference is None:
            return figures[OURS] <= self.factor
        return None if self.reference not in figures else figures[OURS] <= self.factor * figures[self.reference]


def within(factor: float, reference: str) -> Aim:
    """Return the aim of at most `factor` times the reference."""
    return Aim(factor=factor, reference=reference, text=f"≤ {factor:g} × {reference}")


def cheaper(times: float, reference: str) -> Aim:
    """Return the aim of being at least `factor` times cheaper than the reference."""
    return Aim(factor=1 / times, reference=reference, text=f"{reference} ≥ {times:g} ×")


def at_most(figure: float, unit: str) -> Aim:
    return Aim(factor=figure, text=f"≤ {figure:g} {unit}")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A measurement; less is better."""

    work: str
    unit: str
    figures: Mapping[str, float]
    """Figures by contender, including ours."""
    aims: Sequence[Aim] = field(default=())
    note: str = ""

    def cells(self, names: Sequence[str]) -> tuple[str, ...]:
        return (self.work, *map(self._cell, names), self._aims(), self.note)

    def _cell(self, name: str) -> str:
        if name not in self.figures:
            return "–"
        figure = f"{_figure(self.figures[name])} {self.unit}"
        if name == OURS:
            return figure
        return f"{figure} ({self.figures[name] / max(self.figures[OURS], 1e-9):.2f} ×)"

    def _aims(self) -> str:
        verdicts = {True: "", False: " (missed)", None: " (not measured)"}
        return ", ".join(aim.text + verdicts[aim.is_reached(self.figures)] for aim in self.aims) or "–"


def markdown(rows: Iterable[Row], *, names: Sequence[str]) -> str:
    """Return a Markdown table. Ratios to our figure are in parentheses."""
    head = ("work", *names, "aim", "")
    lines = [head, *(row.cells(names) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in (head, rule, *lines[1:])
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
