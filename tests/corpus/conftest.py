"""Corpora are only collected on request, because their libraries take seconds to import."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return (collection_path.name == "test_corpora.py" and config.getoption("markexpr") != "corpus") or None
