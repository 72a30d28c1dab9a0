"""Fixtures that the executors' tests share."""

import pytest

from tests.executors.recording import RecordingContext, RecordingSlot


@pytest.fixture
def context() -> RecordingContext:
    return RecordingContext()


@pytest.fixture
def slot() -> RecordingSlot:
    return RecordingSlot()
