"""Figures about a text: a plain function whose dataclass becomes the output schema."""

from dataclasses import dataclass

from gateway.plugin import ToolError


@dataclass(frozen=True)
class Figures:
    """Figures about a text."""

    characters: int
    words: int
    lines: int
    longest_word: str
    reading_minutes: float


def measure(text: str, words_per_minute: int = 230) -> Figures:
    """Count the characters, words and lines of a text, and estimate how long it takes to read.

    Args:
        text: The text to measure.
        words_per_minute: Reading speed for the estimate.
    """
    if words_per_minute < 1:
        raise ToolError("words_per_minute must be at least 1")
    words = text.split()
    return Figures(
        characters=len(text),
        words=len(words),
        lines=len(text.splitlines()),
        longest_word=max(words, key=len, default=""),
        reading_minutes=round(len(words) / words_per_minute, 1),
    )
