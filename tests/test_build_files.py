"""`pytest -m build` finds every test that is marked so, although it looks at few files."""

import pytest

from tests.build_files import HIDDEN


def test_no_file_hides_that_it_holds_a_test_marked_build(request: pytest.FixtureRequest) -> None:
    assert request.config.stash[HIDDEN] == []
