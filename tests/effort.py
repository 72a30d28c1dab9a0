"""Measures the work of a function by the lines of Python that it runs: no other load on the machine changes that."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class Count:
    lines: int = 0


@contextmanager
def counted_lines() -> Iterator[Count]:
    """Counts the lines of Python that this thread runs within the context, all that it calls included."""
    count = Count()

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        count.lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


def cost(function: Callable[[], object]) -> int:
    """Lines of Python that `function` runs, those of everything that it calls included."""
    with counted_lines() as count:
        function()
    return count.lines
