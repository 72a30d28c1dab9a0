"""Sales by month: structured content for a chart, with a text for other clients."""

from dataclasses import dataclass
from typing import Literal

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
UNITS = {
    "north": (120, 98, 143, 160, 172, 190, 205, 198, 170, 152, 149, 210),
    "south": (80, 85, 92, 110, 125, 160, 188, 195, 140, 112, 95, 130),
}


@dataclass(frozen=True)
class Month:
    """Units sold in one month."""

    name: str
    units: int


@dataclass(frozen=True)
class Sales:
    """Units sold in one region."""

    region: str
    months: list[Month]
    total: int


def figures(region: Literal["north", "south"] = "north") -> Sales:
    """Units sold by month in one region, north or south."""
    months = [Month(name=name, units=units) for name, units in zip(MONTHS, UNITS[region], strict=True)]
    return Sales(region=region, months=months, total=sum(UNITS[region]))
