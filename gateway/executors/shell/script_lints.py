"""Warns about inputs that a shell script uses without quotes, and about undeclared inputs."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from gateway.config.diagnostics.near_misses import nearest
from gateway.config.diagnostics.problems import TextOffset
from gateway.json_types import Json
from gateway.language.scope import Scope

_PREFIX: Final = "INPUT_"
_SHELLS: Final = frozenset({"sh", "ash", "bash", "dash", "ksh"})
"""Shells that split unquoted values into words. zsh does not."""
_REFERENCE: Final = re.compile(r"\$(?:\{([#!]?))?(INPUT_[A-Z0-9_]+)(:?\+)?")
_SKIPPED: Final = re.compile(r"\\.|\$\(\(.*?\)\)", re.DOTALL)
_SKIPPED_OUTSIDE_QUOTES: Final = re.compile(
    # A single-quoted string, a comment, or a here-document.
    r"'[^']*'|(?<![^\s;])#[^\n]*|<<-?[ \t]*(['\"\\]?)(\w+)\1[^\n]*\n(?s:.*?)^\t*\2$",
    re.MULTILINE,
)
_SEPARATOR: Final = re.compile(r"[\n;&|(){}]|\b(?:then|do|else)\b")
_NOT_SPLIT: Final = re.compile(
    # The value of an assignment, the word of `case`, the words of `for` (split on purpose), and `[[ … ]]`.
    r"\s*(?:\w+=\S*\s+)*\w+=\S*|.*\bcase\s+|.*\bfor\s+\w+\s+in\b.*|.*\[\[(?!.*\]\]).*",
    re.DOTALL,
)
_ONE_WORD: Final = re.compile(r"[\w./:@%+=,-]+")


def warn_of_variables(
    text: str, interpreter: Sequence[str], variables: Mapping[str, str], *, environment: Collection[str], scope: Scope
) -> None:
    """Warn about `$INPUT_…` in a script. `variables` maps inputs to variables. `scope` is the scope of the script."""
    programs = [PurePosixPath(word).name for word in interpreter if not word.startswith("-")]
    if _SHELLS.isdisjoint(programs[:2]):
        return
    inputs = {variable: name for name, variable in variables.items()}
    for offset, name, is_split in _references(text):
        place = scope.problems.at(TextOffset(offset))
        if name in inputs:
            if is_split and not _is_one_word(scope.inputs.schemas[inputs[name]]):
                place.warning(f'`${name}` is not quoted: spaces and `*` in it are expanded; write "${name}"')
        elif not scope.inputs.is_open and name not in environment and not _is_set_in(text, name):
            meant = nearest(name.removeprefix(_PREFIX), [each.removeprefix(_PREFIX) for each in inputs])
            place.warning(f"`${name}` is not an input" + (f"; did you mean `${_PREFIX}{meant}`?" if meant else ""))


def _is_one_word(schema: Mapping[str, Json]) -> bool:
    if schema.get("type") in {"integer", "number", "boolean"}:
        return True
    choices = schema.get("enum")
    return isinstance(choices, list) and all(_ONE_WORD.fullmatch(str(choice)) for choice in choices)


def _is_set_in(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w${{#!]){name}\b", text) is not None


def _references(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the offset and name of each variable that the shell expands, and whether it splits the value into words."""
    stack = [""]
    """Open quotes and parentheses."""
    at = start = 0
    """`start` is the start of the command."""
    while at < len(text):
        is_quoted = stack[-1] == '"'
        skipped = _SKIPPED.match(text, at) or (None if is_quoted else _SKIPPED_OUTSIDE_QUOTES.match(text, at))
        if skipped is not None:
            at = skipped.end()
        elif found := _REFERENCE.match(text, at):
            # `${#X}` is a number, and `${X:+word}` expands to the word.
            is_value = not found[1] and not found[3]
            yield at, found[2], is_value and not is_quoted and _NOT_SPLIT.fullmatch(text[start:at]) is None
            at = found.end()
        else:
            stack = _nested(stack, text, at)
            if not is_quoted and (separator := _SEPARATOR.match(text, at)):
                start = separator.end()
            at += 1


def _nested(stack: list[str], text: str, at: int) -> list[str]:
    match text[at], stack[-1]:
        case ('"', '"') | (")", "("):
            return stack[:-1]
        case '"', _:
            return [*stack, '"']
        case "(", last if last != '"' or text[at - 1 : at] == "$":
            return [*stack, "("]
        case _:
            return stack
