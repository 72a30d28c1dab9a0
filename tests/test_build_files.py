"""`pytest -m build` finds all marked tests, although it imports only some files."""

import pytest

from tests.build_files import UNMARKED


def test_files_with_build_tests_are_found_by_their_text(request: pytest.FixtureRequest) -> None:
    assert request.config.stash[UNMARKED] == []
