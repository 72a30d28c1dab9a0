"""Services for compiled documents."""

from collections.abc import AsyncIterator

import pytest

from gateway.executors.shared_services import Services, running_services


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    async with running_services() as services:
        yield services
