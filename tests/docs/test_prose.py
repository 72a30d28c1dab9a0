"""Texts are in plain English: the number of odd phrases per 1,000 words has upper bounds."""

from pathlib import Path
from typing import Final

import pytest

from tests.prose import ROOT, Count, Kind

DOCUMENTS: Final = ("docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
AT_MOST: Final = {
    "documents": (DOCUMENTS, [Kind.DOCUMENT], 2.0),
    "messages": (("gateway", "plugins"), [Kind.STRING], 2.0),
    "docstrings and comments": (("gateway", "plugins", "config"), [Kind.DOCSTRING], 2.2),
    "benchmarks": (("benchmarks",), list(Kind), 2.0),
    "tests": (("tests",), list(Kind), 2.0),
}


@pytest.mark.parametrize("name", AT_MOST)
def test_odd_phrases_are_rare(name: str) -> None:
    paths, kinds, bound = AT_MOST[name]
    count = Count((ROOT / path for path in paths), kinds)
    assert count.words > 2000
    assert count.per_thousand <= bound, count.report(examples=20)


def test_odd_phrase_is_found_in_each_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("Nobody may be asked.\n```\nnobody\n```\n")
    (tmp_path / "b.py").write_text('"""Whoever it is."""\nx = "It was none of the five"  # in vain\n')
    (tmp_path / "c.yaml").write_text("key: nobody  # it stands in the file\n")
    assert sum(map(len, Count([tmp_path]).places.values())) == 5
