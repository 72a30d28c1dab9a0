"""Messages of a prompt, made by a function, and the values that one of its arguments may take."""

from collections.abc import Mapping, Sequence

FOCUS = {
    "clarity": "Which sentence would a newcomer read twice? Rewrite it.",
    "correctness": "Which statement can be checked, and does it hold?",
    "brevity": "What can be left out without being missed?",
}


def review_messages(text: str, focus: str = "clarity") -> Sequence[Mapping[str, str]]:
    """Ask for a review of a text with one thing in mind."""
    question = FOCUS.get(focus, f"Look at its {focus}.")
    return [
        {"role": "user", "content": f"Please review this text:\n\n{text}"},
        {"role": "assistant", "content": "I have read it. What should I look at?"},
        {"role": "user", "content": question},
    ]


def focus_names(value: str) -> list[str]:
    """Everything that a review can look at; the gateway puts what fits `value` first."""
    del value
    return list(FOCUS)
