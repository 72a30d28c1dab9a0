"""Forked workers report failed imports like other workers."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

_PROJECT: Final = Path(__file__).parents[1]
_FIRST_TEST: Final = """
import pytest

def test_first() -> None: ...

"""


@pytest.mark.build
def test_tests_of_an_incompletely_imported_module_do_not_run(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text(_FIRST_TEST + "raise ValueError('on import')")
    (tmp_path / "test_left_out.py").write_text(_FIRST_TEST + "pytest.skip('not here', allow_module_level=True)")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", f"{_PROJECT}/pyproject.toml", "-n1"]
    run = subprocess.run(
        [*command, f"--rootdir={tmp_path}", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=_PROJECT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "1 skipped, 1 error in" in run.stdout, run.stdout + run.stderr
