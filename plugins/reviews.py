"""The messages of a prompt, and the values of one of its arguments."""

from collections.abc import Mapping, Sequence

FOCUS = {
    "clarity": "Which sentence would a newcomer read twice? Rewrite it.",
    "correctness": "Which statement can be checked, and is it true?",
    "brevity": "What can be left out?",
}


def review_messages(text: str, focus: str = "clarity") -> Sequence[Mapping[str, str]]:
    """Ask for a review of a text with one focus."""
    question = FOCUS.get(focus, f"Look at its {focus}.")
    return [
        {"role": "user", "content": f"Please review this text:\n\n{text}"},
        {"role": "assistant", "content": "I have read it. What should I look at?"},
        {"role": "user", "content": question},
    ]


def focus_names(value: str) -> list[str]:
    """Return every focus of a review. The gateway puts matches for `value` first."""
    del value
    return list(FOCUS)
