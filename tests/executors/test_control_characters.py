"""Control characters for terminals are removed, and nothing else."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.control_characters import strip_control_characters


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("ünïcode 🎉", "ünïcode 🎉"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[38:2::1:2:3mcolour\x1b[K", "colour"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;https://example.com\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPdevice\x1b\\text", "text"),
        ("\x1b]never ended\nnext line", "\nnext line"),
        ("\x1b(Btext\x1b7\x1b8\x1bc", "text"),
        ("\x9b31mred\x9d0;title\x9ctext", "redtext"),
        ("10%\r20%\r\nnext\r\r\n", "10%20%\nnext\n"),
        ("bell\a back\b null\0 delete\x7f nel\x85", "bell back null delete nel"),
        ("\x1b", ""),
        ("\x1b[", ""),
    ],
)
def test_escapes_and_control_characters_are_removed(text: str, cleaned: str) -> None:
    assert strip_control_characters(text) == cleaned


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("\x1b[]\\;m07\x07\x9b\x9c\r\n")))
def test_no_control_character_remains(text: str) -> None:
    cleaned = strip_control_characters(text)
    assert not [char for char in cleaned if (ord(char) < 32 or 127 <= ord(char) < 160) and char not in "\t\n"]
    assert strip_control_characters(cleaned) == cleaned


@pytest.mark.parametrize(
    "piece", ["\x1b", "\x1b[", "\x1b[0;", "\x1b]x", "\x1b]\x1b[1", "\x9d", "\r", "\x1b[1m", "\x1b  "]
)
def test_time_is_linear_in_the_length(piece: str) -> None:
    began = time.process_time()
    strip_control_characters(piece * 500_000)
    assert time.process_time() - began < 3
