"""README, guides and examples use only commands and flags that exist on Linux and macOS."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FILES: Final = sorted(
    path
    for pattern in ("README.md", "docs/tutorial.md", "docs/guides/*.md", "config/**/*.yaml", "config/**/*.md")
    for path in ROOT.glob(pattern)
)
GNU: Final = re.compile(
    r"\bfind\b.* -(?:printf|regextype|executable)\b"
    r"|\bsed (?:-\w+ )*(?:-\w*[ir]|--)"
    r"|\bdate (?:-d|-I|--)"
    r"|\bstat (?:-c|--)"
    r"|\breadlink (?:-m|-e|--)"
    r"|\bxargs (?:-\w+ )*-\w*[rd]\b"
    r"|\bgrep (?:-\w+ )*-\w*P"
    r"|\bsort (?:-\w+ )*-\w*V"
    r"|\b(?:head|tail) -[nc] [-+]"
    r"|\bbase64 -\w*w"
    r"|\b(?:cut|df|du|mktemp|tr|uptime|wc) --\w"
    r"|(?:[$|(]|&&) *(?:free|md5sum|nproc|numfmt|setsid|sha256sum|shuf|tac|timeout)\b"
    r"|\[(?:free|md5sum|nproc|numfmt|setsid|sha256sum|shuf|tac|timeout)\b"
)
"""Flags and programs of GNU and Linux that macOS lacks or uses differently."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_are_portable(path: Path) -> None:
    text = path.read_text()
    problems = [f"{number}: {line}" for number, line in enumerate(text.splitlines(), 1) if GNU.search(line)]
    assert not problems, "\n".join(problems)
    assert "/proc/" not in text or "platforms: [linux]" in text


@pytest.mark.parametrize(
    "command",
    [
        "find . -type f -printf '%s %p'",
        "$ sed -i 's/a/b/' file",
        "sed -E -i.bak s/a/b/ file",
        "date -d yesterday",
        "stat -c %s file",
        "find . | xargs -0 -r rm",
        "grep -oP 'a+' file",
        "$ timeout 60 sleep 1",
        "shell: {command: [sha256sum, file]}",
        "printf x | sha256sum",
    ],
)
def test_commands_of_gnu_are_found(command: str) -> None:
    assert GNU.search(command)


@pytest.mark.parametrize(
    "command", ["sed 's/-i/x/' file", "retry: {on: [429, timeout]}", "date -u +%s", "grep -q P file"]
)
def test_portable_commands_are_accepted(command: str) -> None:
    assert not GNU.search(command)
