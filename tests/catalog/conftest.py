"""Fixtures for tests of the catalog."""

import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.catalog.catalog import Catalog
from gateway.catalog.compile.compiler import compile_catalog
from gateway.catalog.plugins import Plugins
from gateway.config.loader import load
from gateway.executors.shared_services import Services, running_services

Compile = Callable[..., Catalog]


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    async with running_services() as services:
        yield services


@pytest.fixture
async def compiled(tmp_path: Path, services: Services, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Compile]:
    """Write a file and compile it: `compiled("tools: …", PATH="/bin")`."""
    plugins = Plugins()

    def write_and_compile(text: str, **environ: str) -> Catalog:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        main = tmp_path / "config.yaml"
        main.write_text(textwrap.dedent(text), encoding="utf-8")
        loaded = load(main, environ=environ)
        return compile_catalog(loaded, services=services, plugins=plugins, generation=7)

    yield write_and_compile
    plugins.close()
