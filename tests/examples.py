"""The number of generated cases of property tests: half of the given number in CI, a quarter elsewhere."""

import os
from typing import Final

from hypothesis import settings

IS_CI: Final = "CI" in os.environ
DEFAULT: Final = 60


def share_of(number: int) -> int:
    return number // (2 if IS_CI else 4)


def examples(number: int) -> settings:
    """Return a decorator for tests that need a different number of cases than `DEFAULT`."""
    return settings(max_examples=share_of(number))
