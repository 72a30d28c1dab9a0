"""Measures the work of a function by the lines of Python that it runs, which does not depend on other load."""

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
def counted_lines(*, ignoring: tuple[str, ...] = ()) -> Iterator[Count]:
    """Count the lines of Python that this thread runs in the context. Files with a part of `ignoring` do not count."""
    count = Count()
    lines = 0

    def trace(frame: FrameType, _event: str, _argument: Any) -> Any:
        return None if ignoring and any(part in frame.f_code.co_filename for part in ignoring) else trace_line

    def trace_line(
        _frame: FrameType, event: str, _argument: Any
    ) -> Any:  # called for each line, so it uses a local variable
        nonlocal lines
        if event == "line":
            lines += 1
        return trace_line

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)
        count.lines = lines


def cost(function: Callable[[], object]) -> int:
    """Return the number of lines of Python that `function` runs, including the functions that it calls."""
    with counted_lines() as count:
        function()
    return count.lines
