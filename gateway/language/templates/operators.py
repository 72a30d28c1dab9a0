"""Operators of templates: comparisons and arithmetic over JSON values, charged to the budget.

Undefined values stay undefined, and comparisons with them are false.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway.errors import ExecutionError
from gateway.json_types import Json
from gateway.language.templates.render_state import UNDEFINED, RenderState, cost_of, kind_of


def _equal(frame: RenderState, left: Json, right: Json) -> bool:
    frame.charge(cost_of(left))
    return bool(left == right)


def _contains(frame: RenderState, item: Json, container: Json) -> bool:
    if container is UNDEFINED or item is UNDEFINED:
        return False
    if not isinstance(container, str | list | Mapping):
        raise ExecutionError(f"`in` needs text, a list or an object, not {kind_of(container)}")
    if isinstance(container, str):
        frame.charge(len(container))
        return isinstance(item, str) and item in container
    if isinstance(container, Mapping):
        return isinstance(item, str) and item in container
    frame.charge(cost_of(container))
    return item in container


def _ordered(holds: Callable[[Any, Any], bool]) -> Callable[[RenderState, Json, Json], bool]:
    def compare(frame: RenderState, left: Json, right: Json) -> bool:
        if left is UNDEFINED or right is UNDEFINED:
            return False
        if kind_of(left) != kind_of(right) or not isinstance(left, str | int | float):
            raise ExecutionError(f"{kind_of(left)} cannot be compared with {kind_of(right)}")
        frame.charge(cost_of(left))
        return holds(left, right)

    return compare


COMPARISONS: Final[Mapping[str, Callable[[RenderState, Json, Json], bool]]] = {
    "eq": _equal,
    "ne": lambda frame, left, right: not _equal(frame, left, right),
    "lt": _ordered(operator.lt),
    "lteq": _ordered(operator.le),
    "gt": _ordered(operator.gt),
    "gteq": _ordered(operator.ge),
    "in": _contains,
    "notin": lambda frame, item, container: not _contains(frame, item, container),
}
"""By Jinja's name."""


def add(frame: RenderState, left: Json, right: Json) -> Json:
    """Add numbers, or concatenate texts or lists."""
    if left is UNDEFINED or right is UNDEFINED:
        return UNDEFINED
    if kind_of(left) != kind_of(right) or kind_of(left) not in {"a number", "text", "a list"}:
        raise ExecutionError(f"`+` cannot add {kind_of(right)} to {kind_of(left)}; `~` joins text")
    if isinstance(left, str | list):
        frame.charge(len(left) + len(right))
    return left + right


def arithmetic(sign: str, calculate: Callable[[Any, Any], Json]) -> Callable[[RenderState, Json, Json], Json]:
    """Return an operator for two numbers."""

    def evaluate(_frame: RenderState, left: Json, right: Json) -> Json:
        if left is UNDEFINED or right is UNDEFINED:
            return UNDEFINED
        # Not text: `%` would be Python's formatting, and `%1000000000d` a gigabyte.
        if {kind_of(left), kind_of(right)} != {"a number"}:
            raise ExecutionError(f"`{sign}` needs two numbers, not {kind_of(left)} and {kind_of(right)}")
        return calculate(left, right)

    return evaluate


def signed(calculate: Callable[[Any], Json]) -> Callable[[Json], Json]:
    """Return an operator for the sign of a number."""

    def evaluate(value: Json) -> Json:
        if value is not UNDEFINED and kind_of(value) != "a number":
            raise ExecutionError(f"a sign needs a number, not {kind_of(value)}")
        return value if value is UNDEFINED else calculate(value)

    return evaluate
