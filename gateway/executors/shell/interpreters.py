"""Finds words of a command that an interpreter would run as code.

Threat: with `sh -c "grep {{ word }} log"`, `awk "/{{ word }}/"` or `ssh host "{{ command }}"`, callers can run any
command. No quoting is safe for all interpreters, so such expressions are rejected at load.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from gateway.executors.shell.interpreter_table import COMMAND_WRAPPERS, INTERPRETERS, CommandWrapper, Interpreter
from gateway.language.templates.templating import EXPRESSION


class Word(msgspec.Struct, frozen=True, kw_only=True):
    shape: str
    """The text of the word, with `EXPRESSION` in place of each expression."""
    programs: tuple[str, ...] = ()
    """The programs that the word can name: the literal, or the values of an `enum`. Empty if unknown."""
    may_spread: bool = False
    """Whether the word can become several arguments, because its input can be a list."""

    @property
    def has_expression(self) -> bool:
        return EXPRESSION in self.shape


_SUBCOMMANDS: Final = {
    first: tuple(name for name in INTERPRETERS if name.startswith(f"{first} "))
    for first in {name.split()[0] for name in INTERPRETERS if " " in name}
}


def code_in(words: Sequence[Word]) -> Mapping[int, str]:
    """Find words with expressions that an interpreter would run as code. Return the reasons by index of the word."""
    found: dict[int, str] = {}
    for name, interpreter, start in _interpreters(words):
        found |= dict.fromkeys(_code_of(interpreter, words, start), interpreter.reason(name))
    return found


def reader_of_stdin(words: Sequence[Word]) -> str | None:
    """Return the name of the interpreter that would run standard input as code, or None."""
    for name, interpreter, start in _interpreters(words):
        if interpreter.reads_stdin and not _has_script(interpreter, words[start:]):
            return f"`{name}`"
    return None


def _interpreters(words: Sequence[Word]) -> Iterator[tuple[str, Interpreter, int]]:
    """Yield each interpreter in a command: its name, its description, and the index of its first argument."""
    specific = (
        (index, name)
        for index, word in enumerate(words)
        for name in _names(word.programs)
        if name in INTERPRETERS and INTERPRETERS[name].is_specific
    )
    for index, name in chain(_commands(words), specific):
        if (interpreter := INTERPRETERS.get(name)) is not None:
            yield name, interpreter, index + 1
        for phrase in _SUBCOMMANDS.get(name, ()):
            if (start := _index_after(phrase.split()[1:], words, index + 1)) is not None:
                yield phrase, INTERPRETERS[phrase], start


def _index_after(phrase: Sequence[str], words: Sequence[Word], start: int) -> int | None:
    """Find the words of `phrase` in this order. Return the index after the last word, or None if a word is missing."""
    for expected in phrase:
        found = next((at for at in range(start, len(words)) if words[at].shape == expected), None)
        if found is None:
            return None
        start = found + 1
    return start


def _has_script(interpreter: Interpreter, words: Sequence[Word]) -> bool:
    rest = iter(words)
    for word in rest:
        if word.shape[:1] != "-":
            if interpreter.has_no_script:
                continue
            return not word.has_expression  # the value of an expression can be absent
        names, is_code, takes_next = _option(interpreter, word.shape)
        # `python -m module`: the module reads standard input as data.
        if is_code or interpreter.operand_if in names or "m" in names:
            return True
        if takes_next:
            next(rest, None)
    return False


def started_programs(words: Sequence[Word]) -> Iterator[int]:
    """Yield the index of each program that another program starts."""
    yield from {index for index, _ in _commands(words) if index > 0}


def _names(programs: tuple[str, ...]) -> frozenset[str]:
    return frozenset(_VERSION.sub("", program.rstrip("/").rpartition("/")[2].lower()) for program in programs)


_VERSION: Final = re.compile(r"[-_]?[0-9.]+$")


def _commands(words: Sequence[Word], index: int = 0) -> Iterator[tuple[int, str]]:
    if index >= len(words):
        return
    # Yield the index for unknown names too, because `compile_argv` rejects a program that the caller chooses.
    yield index, ""
    for name in _names(words[index].programs):
        yield index, name
        starter = COMMAND_WRAPPERS.get(name)
        if starter is not None:
            for start in _started(starter, words, index + 1):
                yield from _commands(words, start)


def _started(starter: CommandWrapper, words: Sequence[Word], index: int) -> Iterator[int]:
    if starter.at:
        yield from (at + 1 for at in range(index, len(words)) if words[at].shape in starter.at)
        return
    begin = _index_after(starter.after, words, index)
    if begin is None:
        return
    index = begin
    operands = starter.operands
    while index < len(words):
        shape = words[index].shape
        # POSIX.1-2017 XBD 12.2, guideline 10: the first `--` ends the options.
        if shape == "--":
            index += 1 + operands
            break
        # `env NAME=value program` (also `sudo`).
        if _ASSIGNMENT.match(shape):
            index += 1
        elif shape.startswith("-") and len(shape) > 1:
            index += 1 + _takes_next(shape, starter)
        elif operands:
            operands -= 1
            index += 1
        else:
            break
    yield index


_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")


def _takes_next(option: str, starter: CommandWrapper) -> bool:
    if option.startswith("--"):
        # An option with an expression never consumes the next word, which could be a program.
        return EXPRESSION not in option and bool(_matching(option, starter.long_valued, exact=starter.exact))
    # In `-abc`, the first letter with a value consumes the rest of the word or the next word.
    at = next((at for at, letter in enumerate(option) if at and letter in starter.valued), None)
    return at == len(option) - 1


def _matching(name: str, listed: Sequence[str], *, exact: Sequence[str]) -> frozenset[str]:
    """Return the options in `listed` that `name` can abbreviate. A name in `exact` is not an abbreviation."""
    if name in listed:
        return frozenset({name})
    if name in exact:
        return frozenset()
    # getopt_long(3) allows abbreviations. An expression matches every option with the same beginning.
    start = name.partition(EXPRESSION)[0].lower()
    return frozenset(option for option in listed if option.startswith(start))


def _code_of(interpreter: Interpreter, words: Sequence[Word], start: int) -> Iterator[int]:
    """Yield the index of each word whose expression the interpreter runs as code. `start` is the first argument."""
    operands, seen, options_end = 0, set[str](), False
    rest = iter(range(start, len(words)))
    for index in rest:
        word = words[index]
        # A plus sign also starts an option (`sh +x`). `-` is an operand (XBD 12.2, guideline 13).
        if options_end or word.shape[:1] not in {"-", "+"} or word.shape == "-":
            is_harmless = interpreter.allows_enum_values and bool(word.programs)
            if (
                word.has_expression
                and not is_harmless
                and _is_code_operand(interpreter, word, number=operands, options=seen)
            ):
                yield index
            # Do not count a word whose value can be absent, because the next word can become this operand.
            operands += not (word.has_expression and interpreter.operand_if)
            options_end = options_end or (interpreter.stops_at_operand and not word.has_expression)
        elif word.shape == "--":
            options_end = True
        else:
            names, is_code, takes_next = _option(interpreter, word.shape)
            seen |= names
            value = next(rest, index) if takes_next else index
            if is_code and words[value].has_expression:
                yield value


def _is_code_operand(interpreter: Interpreter, word: Word, *, number: int, options: set[str]) -> bool:
    if interpreter.operand is None or options & set(interpreter.operand_unless):
        return False
    if interpreter.operand_if and interpreter.operand_if not in options:
        return False
    if number < interpreter.operand:
        return interpreter.is_rest and word.may_spread  # the second item of its list can be code
    return number == interpreter.operand or interpreter.is_rest


def _option(interpreter: Interpreter, shape: str) -> tuple[frozenset[str], bool, bool]:
    """Parse a word as an option.

    Return its names, whether its value is code, and whether its value is the next word.
    """
    name, equals, _ = shape.partition("=")
    meant = _matching(name, interpreter.long_options, exact=interpreter.exact) if len(name) > len("-c") else frozenset()
    if name in interpreter.code or meant or shape.startswith("--"):
        is_code = name in interpreter.code or not meant.isdisjoint(interpreter.code)
        is_whole = bool(equals) or EXPRESSION in name
        takes_next = not is_whole and (is_code or not meant.isdisjoint(interpreter.long_valued))
        return meant or frozenset({name}), is_code, takes_next
    for at, letter in enumerate(shape[1:], start=2):
        names, is_last = frozenset(shape[1:at]), at == len(shape)
        if letter in interpreter.code or letter == EXPRESSION:  # an expression can be any letter
            return names, True, is_last and letter != EXPRESSION
        if letter in interpreter.valued:
            return names, False, is_last
        if letter in interpreter.attached:
            return names, False, False
    return frozenset(shape[1:]), False, False
