"""`pytest -m build` finds every test that is marked so, although it looks at few files."""

import pytest

from tests.build_files import HIDDEN


def test_files_with_build_tests_are_marked(request: pytest.FixtureRequest) -> None:
    assert request.config.stash[HIDDEN] == []
