"""Captures log events of all levels, even if another test has set a level in this process."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from structlog.typing import EventDict


@contextmanager
def capture_logs() -> Iterator[list[EventDict]]:
    earlier = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
    try:
        with structlog.testing.capture_logs() as logs:
            yield logs
    finally:
        structlog.configure(wrapper_class=earlier)
