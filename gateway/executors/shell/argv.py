"""Builds the arguments of a command. A caller's value stays one argument, whatever is in it, and becomes no option.

Threats answered here: a value read as code by an interpreter (refused at load, see `interpreters`); a value that begins
with `-` and would be read as an option (refused at the call, unless a literal `--` stands before it); a value that
chooses the program (`command[0]` is literal, or an enum).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from gateway.config.models.backends import ArgvItem, Conditional
from gateway.config.models.interpolated_text import Part, parts_of
from gateway.errors import ExecutionError
from gateway.executors.shell.interpreters import Word, code_in, reader_of_stdin, started_programs
from gateway.json_types import JsonObject
from gateway.language.scope import Scope
from gateway.language.templates.render_state import text_of
from gateway.language.templates.templating import Expression, TextTemplate, compile_expression, compile_text

MAX_ARGUMENT_LENGTH: Final = 128 * 1024 - 1
"""Bytes: MAX_ARG_STRLEN of Linux, which counts the NUL at the end (execve(2))."""

_SOME_PROGRAM: Final = "a program"
"""Stands for those of an `enum` that is none: what can be run is not known, and reads nothing as code."""


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    source: str
    """As it is written in the file."""
    begins_with_value: bool = False
    ends_options: bool = False
    """Whether it is a `--` that stands in the file."""

    @property
    def shown(self) -> str:
        """Its source on one line, not too long, as a message shows it; literals from outside are left out."""
        text = "".join(part if isinstance(part, str) else "…" for part in parts_of(self.source))
        return " ".join(text.split())[:80]


class _Literal(msgspec.Struct, frozen=True):
    argument: Argument

    def arguments(self, _variables: JsonObject) -> Sequence[Argument] | None:
        return (self.argument,)


class _Text(msgspec.Struct, frozen=True, kw_only=True):
    template: TextTemplate
    source: str

    def arguments(self, variables: JsonObject) -> Sequence[Argument] | None:
        if (copy := self.template.copy_of(variables)) is not None:
            return [Argument(text=copy, source=self.source, begins_with_value=True)]
        if self.template.single is not None:
            value = self.template.value(variables)
            if isinstance(value, list):
                # An empty list is as absent as none: the group that it stands in goes with it.
                return [self._element(item) for item in value if item is not None] or None
        rendering = self.template.rendering(variables, in_element=True)
        if rendering is None:
            return None
        return [Argument(text=rendering.text, source=self.source, begins_with_value=rendering.begins_with_value)]

    def _element(self, value: object) -> Argument:
        return Argument(text=text_of(value), source=self.source, begins_with_value=True)


class _Group(msgspec.Struct, frozen=True, kw_only=True):
    members: "Sequence[Item]"

    def arguments(self, variables: JsonObject) -> Sequence[Argument] | None:
        made = [member.arguments(variables) for member in self.members]
        # [--since, "{{ since }}"]: an option without its value would take the next argument for it.
        if any(arguments is None for arguments in made):
            return None
        return [argument for arguments in made for argument in arguments or ()]


class _Conditional(msgspec.Struct, frozen=True, kw_only=True):
    condition: Expression
    then: "Sequence[Item]"

    def arguments(self, variables: JsonObject) -> Sequence[Argument] | None:
        if not self.condition.is_true(variables):
            return None
        return [argument for item in self.then for argument in item.arguments(variables) or ()]


Item = _Literal | _Text | _Group | _Conditional
"""An item of a command: makes some `arguments`, or none; None where something absent takes it away."""


class Argv(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled command."""

    items: Sequence[Item]
    reader_of_stdin: str | None = None
    """The interpreter that would read the command's standard input as code."""

    def build(self, variables: JsonObject) -> list[str]:
        """Return the program and its arguments.

        Raises:
            ExecutionError: an argument cannot be passed, or would be read as an option; the text names it.
        """
        program = self.items[0].arguments(variables)
        if not program:
            raise ExecutionError("the program to run is not given")
        built = [_passable(program[0]).text]
        options_end = False
        for item in self.items[1:]:
            for argument in item.arguments(variables) or ():
                if argument.begins_with_value and argument.text.startswith("-") and not options_end:
                    raise ExecutionError(
                        f"the argument {argument.shown} may not begin with `-`: {built[0]} would read it as an option"
                    )
                built.append(_passable(argument).text)
                # Only a `--` of the file ends the options: a caller's begins with `-`, and is refused above.
                options_end = options_end or argument.ends_options
        return built


def _passable(argument: Argument) -> Argument:
    if "\0" in argument.text:
        raise ExecutionError(f"the argument {argument.shown} holds a NUL character, which only `stdin` can take")
    size = len(argument.text) if argument.text.isascii() else len(argument.text.encode(errors="surrogatepass"))
    if size > MAX_ARGUMENT_LENGTH:
        raise ExecutionError(
            f"the argument {argument.shown} has {size} bytes; the system takes 128 KiB at the most, `stdin` any number"
        )
    return argument


@lru_cache(maxsize=8192)
def _literal(source: str, _parts: tuple[Part, ...]) -> Item:
    """One item for all commands that have the word.

    By its parts, too: an interpolated text equals a plain one, and is not quoted in messages.
    """
    return _Literal(Argument(text=str(source), source=source, ends_options=source == "--"))


def compile_argv(items: Sequence[ArgvItem], scope: Scope) -> Argv:
    """Compile a command, the list at whose place `scope` looks; mistakes are reported, each at its item."""
    command = _Command(scope=scope)
    if not isinstance(items[0], str):
        scope.at(0).problems.error("a command begins with the program to run, which is always there")
    compiled = [command.item(item, scope.at(index)) for index, item in enumerate(items)]
    command.check()
    return Argv(items=compiled, reader_of_stdin=reader_of_stdin(command.words))


class _Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command while it is compiled: its words in order, as though every condition held."""

    scope: Scope
    words: list[Word] = msgspec.field(default_factory=list)
    places: list[Scope] = msgspec.field(default_factory=list)

    def item(self, item: ArgvItem, place: Scope) -> Item:
        match item:
            case str():
                return self._text(item, place)
            case Conditional():
                then = [self._text(text, place.at("then", index)) for index, text in enumerate(item.then)]
                return _Conditional(condition=compile_expression(item.if_, place.at("if")), then=then)
            case _:
                return _Group(members=[self._text(text, place.at(index)) for index, text in enumerate(item)])

    def _text(self, source: str, place: Scope) -> Item:
        template = compile_text(source, place)
        if template.literal is not None:
            self.words.append(Word(shape=template.shape, programs=(template.literal,)))
        else:
            schema = self.scope.inputs.schemas.get(template.input or "", {})
            may_spread = template.input is not None and schema.get("type", "array") == "array"
            self.words.append(Word(shape=template.shape, programs=self._choices(template.input), may_spread=may_spread))
        self.places.append(place)
        if template.literal is not None:
            return _literal(source, parts_of(source))
        return _Text(template=template, source=source)

    def _choices(self, name: str | None) -> tuple[str, ...]:
        """Return what an input can be, where the file says it: texts only, and one of them in every call."""
        inputs = self.scope.inputs
        schema = inputs.schemas.get(name or "", {})
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        if not isinstance(values, list):  # no JSON Schema, which is said where it stands
            return (_SOME_PROGRAM,)
        is_certain = name in inputs.always_given and all(isinstance(value, str) for value in values)
        return tuple(values) if is_certain else ()

    def check(self) -> None:
        """Report programs that a caller could choose, and expressions that would be read as code."""
        code = code_in(self.words)
        for index in {0, *started_programs(self.words)} & set(range(len(self.words))) - set(code):
            if not all(self.words[index].programs) or not self.words[index].programs:
                self.places[index].problems.error(
                    "the program to run must be written here, or be an input that is always given and has an `enum`"
                )
        for index, why in code.items():
            self.places[index].problems.error(
                f"an expression here would be read as code by {why}; use `script:`, where inputs are in the environment"
            )
