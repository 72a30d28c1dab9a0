"""Callers cannot use masking to find out whether a text is part of a secret.

A caller can choose where an output is truncated with escape sequences, which count towards the limit and are then
removed. Only the text at the truncation remains visible.
"""

from typing import Final

import pytest

from tests.attacks.seeds import SECRETS
from tests.attacks.target import Plan, Target

PLAN = Plan(
    file="""
    tools:
      told:
        description: Print a text, and report each of its lines.
        input: {text: string}
        shell: {command: [cat], stdin: "{{ text }}", progress: stdout}
      failed:
        description: Print a text as an error, and fail.
        input: {text: string}
        shell: {script: 'cat "$INPUTS_FILE" >&2; printf %s "$INPUT_TEXT" >&2; exit 1'}
      refused:
        description: Query a server that echoes requests.
        http: {url: "@backend@/", allow_private: true}
      filled:
        description: Print more output than is kept.
        input: {start: string, end: string}
        shell:
          script: |
            '@python@' -ISc 'import json, os, sys
            given = json.load(open(os.environ["INPUTS_FILE"]))
            half = 2**18
            head, tail = given["start"].encode(), given["end"].encode()
            sys.stdout.buffer.write(b"\\x1b[m" * ((half - len(head)) // 3) + b" " * ((half - len(head)) % 3) + head)
            sys.stdout.buffer.write(b"in between")
            sys.stdout.buffer.write(tail + b" " * ((half - len(tail)) % 3) + b"\\x1b[m" * ((half - len(tail)) // 3))'
    """
)
NOTHING: Final = "\x1b[m"
SECRET: Final = SECRETS["env in a header"]
SIZES: Final = (3, 4, 5, 8, len(SECRET) - 1)
LINE: Final = 64 * 1024
"""The number of bytes of a progress line that are shown."""
TAIL: Final = 32 * 1024
"""The number of bytes at the end of a long standard error that are kept."""


def filled(text: str, *, size: int, at_end: bool) -> str:
    """Return a text of `size` bytes that consists of invisible escapes, with `text` at one end."""
    missing = size - len(text)
    nothing = NOTHING * (missing // len(NOTHING)) + " " * (missing % len(NOTHING))
    return nothing + text if at_end else text + nothing


def seen(target: Target, tool: str, arguments: dict[str, str], guess: str) -> tuple[bool, bool]:
    """Return whether the guess is visible, and whether anything was masked."""
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}}
    body = target.client.modern("tools/call", params, fields=[("Accept", "text/event-stream")]).body.decode()
    return guess in body, "***" in body


def parts(size: int, *, of_start: bool) -> tuple[str, str]:
    """Return a part of the secret, and a text of the same length that is not part of it."""
    right = SECRET[:size] if of_start else SECRET[-size:]
    return right, right.swapcase().translate(str.maketrans("0123456789-", "1234567890+"))


@pytest.mark.parametrize("size", SIZES)
def test_truncated_progress_line_leaks_no_secret(target: Target, size: int) -> None:
    right, wrong = parts(size, of_start=True)
    shown = [
        seen(target, "told", {"text": filled(guess, size=LINE, at_end=True) + "more\n"}, guess)
        for guess in (right, wrong)
    ]
    assert shown[0] == shown[1]
    assert not shown[0][1]


@pytest.mark.parametrize("size", SIZES)
def test_truncated_error_leaks_no_secret(target: Target, size: int) -> None:
    right, wrong = parts(size, of_start=False)
    shown = [
        seen(target, "failed", {"text": filled(guess + ".", size=TAIL, at_end=False)}, guess)
        for guess in (right, wrong)
    ]
    assert shown[0] == shown[1]
    assert not shown[0][1]


@pytest.mark.parametrize("size", SIZES)
def test_omitted_middle_of_an_output_leaks_no_secret(target: Target, size: int) -> None:
    starts, ends = parts(size, of_start=True), parts(size, of_start=False)
    shown = [
        seen(target, "filled", {"start": start, "end": f"{end}."}, start)
        for start, end in zip(starts, ends, strict=True)
    ]
    assert shown[0] == shown[1]
    assert not shown[0][1]


@pytest.mark.parametrize("size", SIZES)
def test_truncated_server_response_leaks_no_secret(target: Target, size: int) -> None:
    shown = []
    for guess in parts(size, of_start=True):
        for length in (8000, 16000, 16 * 1000, 32000, 16 * 2000, 16 * 2048):
            body = (filled(guess, size=length, at_end=True) + "more").encode()
            head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
            target.backend.answer = head.encode() + body
            shown.append(seen(target, "refused", {}, guess))
    assert shown[: len(shown) // 2] == shown[len(shown) // 2 :]
    assert not any(is_masked for _, is_masked in shown)


def test_whole_secret_is_masked(target: Target) -> None:
    target.scanner.found.clear()
    assert target.client.text("told", {"text": f"<{SECRET}>"}) == "<***>"
