"""The number of generated cases in a property test: half of them in the build, a quarter of them elsewhere."""

import os
from typing import Final

from hypothesis import settings

IS_BUILD: Final = "CI" in os.environ
DEFAULT: Final = 60


def share_of(number: int) -> int:
    """Return how many of `number` cases are run here."""
    return number // (2 if IS_BUILD else 4)


def examples(number: int) -> settings:
    """Return the decorator of a test that needs another number of cases than `DEFAULT`."""
    return settings(max_examples=share_of(number))
