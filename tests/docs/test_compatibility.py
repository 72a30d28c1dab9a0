"""`docs/compatibility.md` is complete, and its figures add up."""

import pytest

from tests.corpus.page import PAGE, Row, rows, sections

SECTIONS = sections(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("title", [title for title in SECTIONS if title != "The official conformance suite"])
def test_every_section_has_figures(title: str) -> None:
    assert rows(SECTIONS[title])


@pytest.mark.parametrize("row", [row for text in SECTIONS.values() for row in rows(text)], ids=lambda row: row.label)
def test_figures_of_a_check_add_up(row: Row) -> None:
    assert row.tried == row.right + row.explained + row.wrong > 0
    assert row.explained == sum(row.reasons.values())
    assert row.wrong == row.listed
