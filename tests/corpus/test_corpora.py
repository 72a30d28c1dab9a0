"""Samples of the corpora have no wrong cases, and `docs/compatibility.md` explains all refusals."""

import os
from collections.abc import Iterator

import pytest

from tests.corpus.corpora import Corpus, counted
from tests.corpus.page import PAGE, figures_of, shown
from tests.corpus.registry import CORPORA

pytestmark = [pytest.mark.corpus, pytest.mark.asyncio]
WHOLE = ("compose-files", "json-schema", "uri-templates", "yaml")
"""Small corpora, of which all cases are judged."""


def parts() -> Iterator[tuple[str, str]]:
    if "MCP_GATEWAY_TEST_CORPUS" in os.environ:  # without the packages, the tests below fail with the reason
        for name in CORPORA.keys() - {*WHOLE}:
            yield from ((name, part) for part in CORPORA[name].parts(is_whole=False))


@pytest.fixture(params=WHOLE)
def corpus(request: pytest.FixtureRequest) -> Corpus:
    return CORPORA[request.param]


async def test_figures_match_the_page(corpus: Corpus) -> None:
    verdicts = [verdict for part in corpus.parts(is_whole=True) async for verdict in corpus.verdicts(part)]
    assert counted(verdicts) == figures_of(corpus, PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "part"), sorted(parts()))
async def test_sample_is_correct_or_explained_on_the_page(name: str, part: str) -> None:
    corpus = CORPORA[name]
    figures = counted([verdict async for verdict in corpus.verdicts(part)])
    page = PAGE.read_text(encoding="utf-8")
    on_page = figures_of(corpus, page)
    for check, of in figures.items():
        assert [each for each in of.wrong if shown(each) not in page] == [], check
        assert of.reasons.keys() <= on_page[check].reasons.keys(), check
