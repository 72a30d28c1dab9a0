"""Tests of the JavaScript modules that need no browser, with Node's test runner."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.console.node_program import node_program

HERE: Final = Path(__file__).parent
SECONDS: Final = 120


@pytest.mark.parametrize("file", sorted(HERE.glob("*.test.mjs")), ids=lambda file: file.name.removesuffix(".test.mjs"))
def test_javascript_module_tests_pass(file: Path) -> None:
    done = subprocess.run(
        [node_program(), "--test", "--test-reporter=tap", file],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "# pass 0" not in done.stdout
