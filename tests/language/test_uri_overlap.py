"""URI templates that can match the same URI."""

import pytest

from gateway.language.uris.matcher import overlap


@pytest.mark.parametrize(
    ("one", "other", "answer"),
    [
        ("a://{x}", "a://{y}", True),
        ("a://{x}", "b://{x}", False),
        ("a://{x}", "a://b/{y}", False),
        ("a://{+x}", "a://b/{y}", True),
        ("a://{x}/b", "a://c/{y}", True),
        ("a://{x}/b", "a://c/{y}/d", False),
        ("a://{x}.md", "a://{y}.txt", False),
        ("a://{x}.md", "a://n{y}", True),
        ("a://x{?q}", "a://x{?r}", True),
        ("a://x{/y}", "a://x/{z}", True),
        ("a://x{y", "a://x/{z}", True),
        ("a://x{y", "a://y/{z}", False),
        ("a://x/y/z/{a}", "a://x/y/w/{a}", False),
    ],
)
def test_templates_overlap_if_a_uri_matches_both(one: str, other: str, *, answer: bool) -> None:
    assert overlap(one, other) is answer
    assert overlap(other, one) is answer


def test_many_gaps_are_compared_quickly() -> None:
    assert not overlap("a://" + "{x}-" * 200 + "b", "a://" + "{y}-" * 200 + "c")
