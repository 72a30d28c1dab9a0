"""Reads a SKILL.md, and reports its problems.

The rules come from the Agent Skills specification (agentskills.io/specification) and SEP-2640. The front matter is read
as YAML 1.2, because hosts parse the file too, and compare the results.
"""

import re
from collections.abc import Iterator
from posixpath import normpath
from typing import Final
from urllib.parse import unquote

from gateway.config.reading.composer import compose
from gateway.config.reading.front_matter import front_matter
from gateway.config.reading.nodes import Diagnostic, Mapping, Place, Scalar, place_of, plain
from gateway.config.reading.source_file import SourceFile, UnreadableError
from gateway.errors import Severity
from gateway.executors.invocation import text_size
from gateway.json_types import JsonObject

MAX_VALUES: Final = 1000
"""Maximum number of values in the front matter after YAML aliases are expanded."""

_MAX_CHARACTERS: Final = 64 * 2**10
"""Maximum length of the expanded front matter, which every list of skills contains."""

MAX_DESCRIPTION: Final = 1024
"""Maximum length of a description (Agent Skills specification, "description field")."""

_NAME: Final = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
"""Matches valid names of skills (Agent Skills specification, "name field")."""

_FENCE: Final = re.compile(r" {0,3}(```+|~~~+)")
_CODE: Final = re.compile(r"`[^`]*`")
_INLINE: Final = re.compile(r"\]\([ \t]*<?([^\s<>()]+)")
_DEFINITION: Final = re.compile(r"^ {0,3}\[[^\]\[]+\]:[ \t]*<?([^\s<>]+)")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def read_skill_file(source: SourceFile, *, directory: str) -> tuple[JsonObject, list[Diagnostic]]:
    """Return the front matter of the SKILL.md in `directory`, and the problems of the file."""
    start = Place(source, 1, 1)
    try:
        front = front_matter(source)
    except UnreadableError as error:
        return {}, [Diagnostic(message=str(error), place=start)]
    if front is None:
        message = "expected `---` as the first line, and the skill's `name` and `description` below it"
        return {}, [Diagnostic(message=message, place=start)]
    text, body_start = front
    # YAML 1.2 has no merge keys.
    head, found = compose(source, text, first_line=1, has_merge_keys=False, max_nodes=MAX_VALUES)
    if not found and not isinstance(head, Mapping):
        found.append(Diagnostic(message="front matter must be a mapping (`name: …`)", place=start))
    if isinstance(head, Mapping):
        if text_size(plain(head), enough=_MAX_CHARACTERS) > _MAX_CHARACTERS:
            found.append(Diagnostic(message=f"front matter exceeds {_MAX_CHARACTERS:,} characters", place=start))
        else:
            found += _field_problems(head, start, directory=directory)
    found += _outward_links(source, start=body_start)
    if head is None or any(each.severity is Severity.ERROR for each in found):
        return {}, found
    return plain(head), found


def _field_problems(head: Mapping, start: Place, *, directory: str) -> Iterator[Diagnostic]:
    name, place = _text_of("name", head, start)
    if name is None:
        yield Diagnostic(message=f"needs a `name`, which must match its directory, `{directory}`", place=place)
    elif _NAME.fullmatch(name) is None:
        message = f"`{name}` is not a valid skill name: use 1 to 64 of a-z and 0-9, with single hyphens between them"
        yield Diagnostic(message=message, place=place)
    elif name != directory:
        message = f"the skill is named `{name}`, but its directory is named `{directory}`. Both must have the same name"
        yield Diagnostic(message=message, place=place)
    description, place = _text_of("description", head, start)
    if description is None or not description.strip():
        yield Diagnostic(message="needs a `description`: agents need it to choose a skill", place=place)
    elif len(description) > MAX_DESCRIPTION:
        message = f"`description` has {len(description):,} characters, but some agents allow only {MAX_DESCRIPTION:,}"
        yield Diagnostic(message=message, place=place, severity=Severity.WARNING)


def _text_of(key: str, head: Mapping, start: Place) -> tuple[str | None, Place]:
    entry = head.entries.get(key)
    if entry is None:
        return None, start
    value = entry.node.value if isinstance(entry.node, Scalar) else None
    return value if isinstance(value, str) else None, place_of(entry, entry.node)


def _outward_links(source: SourceFile, *, start: int) -> Iterator[Diagnostic]:
    """Report links after character `start` that lead outside the skill's directory.

    Links in code are ignored. Missing targets are not reported, because agents resolve links among the skill's files
    (SEP-2640, "Relative References").
    """
    first = source.text.count("\n", 0, start)
    fence = ""
    for number, line in enumerate(source.text[start:].split("\n"), first + 1):
        # CommonMark §4.5: a fence is closed by at least as many of the same character.
        if (mark := _FENCE.match(line)) and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        if fence or mark:
            continue
        # Replace code with spaces, so that the columns in messages stay correct.
        text = _CODE.sub(lambda code: " " * len(code[0]), line)
        for pattern in (_INLINE, _DEFINITION):
            for link in pattern.finditer(text):
                if leads_out(link[1]):
                    message = f"the link `{link[1]}` leads outside the skill's directory, which agents cannot follow"
                    yield Diagnostic(message=message, place=Place(source, number, link.start(1) + 1))


def leads_out(target: str) -> bool:
    """Whether a link leads outside the skill's directory."""
    if _SCHEME.match(target):
        return target.lower().startswith("file:")
    path = unquote(re.split(r"[?#]", target, maxsplit=1)[0])
    return path.startswith("/") or normpath(path).split("/")[0] == ".."
