"""The provider and the protected MCP server, each started once for a file of tests."""

from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from tests.identity.openid_provider import OpenIdProvider, protected_server, running_provider


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_provider(tmp_path_factory.mktemp("provider") / "log") as url:
        yield url


@pytest.fixture(scope="module")
def notes(issuer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an MCP server that requires access tokens."""
    with protected_server(issuer, tmp_path_factory.mktemp("notes") / "log") as url:
        yield url


@pytest.fixture
async def openid(issuer: str) -> AsyncIterator[OpenIdProvider]:
    """The provider with default options and without requests."""
    async with aiohttp.ClientSession() as http:
        found = OpenIdProvider(issuer=issuer, http=http)
        await found.start_over()
        yield found
