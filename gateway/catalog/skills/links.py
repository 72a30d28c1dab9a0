"""Finds links in a Markdown text that lead out of the directory in which it lies. Pure.

Fenced code and code within a line are text. What a link names is not looked for: an agent resolves it among the files
of the skill (SEP-2640, "Relative References").
"""

import re
from collections.abc import Iterator
from posixpath import normpath
from typing import Final
from urllib.parse import unquote

from gateway.config.reading.nodes import Diagnostic, Place
from gateway.config.reading.source_file import SourceFile

_FENCE: Final = re.compile(r" {0,3}(```+|~~~+)")
_CODE: Final = re.compile(r"`[^`]*`")
_INLINE: Final = re.compile(r"\]\([ \t]*<?([^\s<>()]+)")
_DEFINITION: Final = re.compile(r"^ {0,3}\[[^\]\[]+\]:[ \t]*<?([^\s<>]+)")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def outward_links(source: SourceFile, *, start: int) -> Iterator[Diagnostic]:
    """Report each link after the character `start` that names a place outside."""
    first = source.text.count("\n", 0, start)
    fence = ""
    for number, line in enumerate(source.text[start:].split("\n"), first + 1):
        if (mark := _FENCE.match(line)) and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        if fence or mark:
            continue
        text = _CODE.sub(lambda code: " " * len(code[0]), line)
        for pattern in (_INLINE, _DEFINITION):
            for link in pattern.finditer(text):
                if leads_out(link[1]):
                    message = f"the link `{link[1]}` leads outside the skill's directory, which agents cannot follow"
                    yield Diagnostic(message=message, place=Place(source, number, link.start(1) + 1))


def leads_out(target: str) -> bool:
    """Say whether a link of a file in a directory's root names a place outside of it. Web links are no files."""
    if _SCHEME.match(target):
        return target.lower().startswith("file:")
    path = unquote(re.split(r"[?#]", target, maxsplit=1)[0])
    return path.startswith("/") or normpath(path).split("/")[0] == ".."
