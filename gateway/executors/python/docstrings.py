"""Reads a function's docstring: what it does, and in Google style what its parameters are. Pure."""

import re
from inspect import cleandoc
from typing import Final

_SECTION: Final = re.compile(r"(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Attributes|References):\s*")
_ARGUMENTS: Final = frozenset({"Args", "Arguments", "Parameters"})
_ARGUMENT: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the summary, which ends at the first section, and what it says of each parameter.

    What does not look like Google style is all summary.
    """
    summary: list[str] = []
    arguments: list[str] = []
    into = summary
    for line in cleandoc(text).splitlines():
        if section := _SECTION.fullmatch(line):
            into = arguments if section[1] in _ARGUMENTS else []
        else:
            into.append(line)
    return "\n".join(summary).strip(), _parameters(arguments)


def _parameters(lines: list[str]) -> dict[str, str]:
    """`name (type): text`, each with its indented continuation lines joined to it."""
    found: dict[str, str] = {}
    name = ""
    # cleandoc ignores how far the first line is indented, so an empty one goes before.
    for line in cleandoc("\n" + "\n".join(lines)).splitlines():
        if not line.startswith(" ") and (match := _ARGUMENT.fullmatch(line.strip())):
            name = match[1]
            found[name] = match[2]
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return {name: text for name, text in found.items() if text}
