"""Builds the arguments and the environment of a command. A single value never becomes more than one argument.

Threats: a value that an interpreter runs as code (rejected at load, see `interpreters`), a value with a leading `-`
that is read as an option (rejected unless it follows a literal `--`), and a value that selects the program (its
input must have an `enum`).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from gateway.config.models.backends import ArgvItem, Conditional
from gateway.config.models.interpolated_text import parts_of
from gateway.errors import ExecutionError
from gateway.executors.shell.interpreters import Word, code_in, reader_of_stdin, started_programs
from gateway.json_types import JsonObject
from gateway.language.scope import Scope
from gateway.language.templates.render_state import text_of
from gateway.language.templates.templating import Condition, TextTemplate, compile_condition, compile_text
from gateway.telemetry.trace import TraceContext

MAX_ARGUMENT_LENGTH: Final = 128 * 1024 - 1
"""The limit in bytes for an argument, and for an environment variable as `NAME=value`.

Linux allows MAX_ARG_STRLEN bytes (execve(2)), including the trailing NUL.
"""
INHERITED: Final = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR"})
"""Variables that every child process inherits, in addition to `LC_*`."""


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    source: str
    begins_with_value: bool = False
    ends_options: bool = False

    @property
    def shown(self) -> str:
        text = "".join(part if isinstance(part, str) else "…" for part in parts_of(self.source))
        return " ".join(text.split())[:80]


Item = Callable[[JsonObject], Sequence[Argument] | None]
"""Returns the arguments of an item, or None to omit the item because a value is absent."""


def _text_arguments(template: TextTemplate, source: str, variables: JsonObject) -> Sequence[Argument] | None:
    if template.single is not None:
        value = template.value(variables)
        if isinstance(value, list):
            # An empty list counts as absent, so that the group of the list is omitted.
            texts = [text_of(item) for item in value if item is not None]
            return [Argument(text=text, source=source, begins_with_value=True) for text in texts] or None
    rendering = template.rendering(variables, in_element=True)
    if rendering is None:
        return None
    return [Argument(text=rendering.text, source=source, begins_with_value=rendering.begins_with_value)]


def _group(members: Sequence[Item]) -> Item:
    def arguments(variables: JsonObject) -> Sequence[Argument] | None:
        made = [member(variables) for member in members]
        # In [--since, "{{ since }}"], an option without its value would consume the next argument.
        return None if None in made else [argument for arguments in made for argument in arguments or ()]

    return arguments


def _conditional(condition: Condition, then: Sequence[Item]) -> Item:
    def arguments(variables: JsonObject) -> Sequence[Argument] | None:
        if not condition(variables):
            return None
        return [argument for item in then for argument in item(variables) or ()]

    return arguments


class Argv(msgspec.Struct, frozen=True, kw_only=True):
    items: Sequence[Item]
    reader_of_stdin: str | None = None
    """The interpreter that would run standard input as code, if any."""

    def build(self, variables: JsonObject) -> list[str]:
        """Return the program and its arguments.

        Raises:
            ExecutionError: an argument cannot be passed or would be read as an option.
        """
        program = self.items[0](variables)
        if not program:
            raise ExecutionError("the program to run is missing")
        built = [_passable(program[0])]
        options_end = False
        for item in self.items[1:]:
            for argument in item(variables) or ():
                if argument.begins_with_value and argument.text.startswith("-") and not options_end:
                    raise ExecutionError(
                        f"the argument {argument.shown} must not start with `-`: {built[0]} would read it as an option"
                    )
                built.append(_passable(argument))
                # A `--` from the caller has been rejected above.
                options_end = options_end or argument.ends_options
        return built


def _passable(argument: Argument) -> str:
    if "\0" in argument.text:
        raise ExecutionError(f"the argument {argument.shown} contains a NUL character. Only `stdin` can contain one")
    size = len(argument.text) if argument.text.isascii() else len(argument.text.encode(errors="surrogatepass"))
    if size > MAX_ARGUMENT_LENGTH:
        raise ExecutionError(
            f"the argument {argument.shown} has {size} bytes, but the limit is 128 KiB. Use `stdin` for long values"
        )
    return argument.text


def compile_argv(items: Sequence[ArgvItem], scope: Scope) -> Argv:
    if not isinstance(items[0], str):
        scope.at(0).problems.error("the first item is the program, so it cannot be a list or a conditional argument")
    found: list[tuple[Word, Scope]] = []
    compiled = [_compile_item(item, scope.at(index), found) for index, item in enumerate(items)]
    words = [word for word, _ in found]
    code = code_in(words)
    for index in {0, *started_programs(words)} & set(range(len(words))) - set(code):
        if not all(words[index].programs) or not words[index].programs:
            found[index][1].problems.error(
                "the program must be a literal, or an input that is always given and has an `enum`"
            )
    for index, why in code.items():
        found[index][1].problems.error(
            f"an expression here would be read as code by {why}. Use `script:`, where inputs are variables"
        )
    return Argv(items=compiled, reader_of_stdin=reader_of_stdin(words))


def _compile_item(item: ArgvItem, place: Scope, found: list[tuple[Word, Scope]]) -> Item:
    """Compile an item of `command`. Add all words of the item to `found`, even words that a condition can omit."""
    match item:
        case str():
            return _compile_word(item, place, found)
        case Conditional():
            then = [_compile_word(text, place.at("then", index), found) for index, text in enumerate(item.then)]
            return _conditional(compile_condition(item.if_, place.at("if")), then)
        case _:
            return _group([_compile_word(text, place.at(index), found) for index, text in enumerate(item)])


def _compile_word(source: str, place: Scope, found: list[tuple[Word, Scope]]) -> Item:
    template = compile_text(source, place)
    if template.literal is not None:
        found.append((Word(shape=template.shape, programs=(template.literal,)), place))
        literal = Argument(text=str(source), source=source, ends_options=source == "--")
        return lambda _: (literal,)
    schema = place.inputs.schemas.get(template.input or "", {})
    may_spread = template.input is not None and schema.get("type", "array") == "array"
    programs = _choices(template.input, place)
    found.append((Word(shape=template.shape, programs=programs, may_spread=may_spread), place))
    return partial(_text_arguments, template, source)


def _choices(name: str | None, place: Scope) -> tuple[str, ...]:
    """Return the `enum` values of an input that always has a string value. Return an empty tuple for other inputs."""
    schema = place.inputs.schemas.get(name or "", {})
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if not isinstance(values, list):
        return ("a program",)  # a placeholder, because the invalid `enum` is reported elsewhere
    is_certain = name in place.inputs.always_given and all(isinstance(value, str) for value in values)
    return tuple(values) if is_certain else ()


EnvironmentTemplate = Callable[[JsonObject, TraceContext | None], dict[str, str]]
"""Returns the environment of a call. Raises `ExecutionError` for a value that is too long or contains NUL."""


def inherited_environment(names: Sequence[str] = ()) -> Mapping[str, str]:
    wanted = INHERITED.union(names)
    return {name: value for name, value in os.environ.items() if name in wanted or name.startswith("LC_")}


def compile_environment(added: Mapping[str, str], *, inherit: Sequence[str], scope: Scope) -> EnvironmentTemplate:
    for name in added:
        if not name or "=" in name or "\0" in name:
            scope.at(name).problems.error("the name of an environment variable must not be empty or contain `=`")
    inherited = inherited_environment(inherit)
    templates = {name: compile_text(value, scope.at(name)) for name, value in added.items()}

    def environment(variables: JsonObject, trace: TraceContext | None) -> dict[str, str]:
        # Trace context: OpenTelemetry "Environment Variables as Context Propagation Carriers".
        fields = {} if trace is None else {name.upper(): value for name, value in trace.fields.items()}
        found = {**inherited, **fields}
        for name, template in templates.items():
            value = template.render_element(variables)
            if value is None:  # absent
                continue
            if not fits(name, value):
                raise ExecutionError(f"the environment variable {name} contains a NUL character or exceeds 128 KiB")
            found[name] = value
        return found

    return environment


def fits(name: str, value: str) -> bool:
    """Return whether an environment variable is short enough and contains no NUL character."""
    return "\0" not in value and len(name) + 1 + len(value.encode(errors="surrogatepass")) <= MAX_ARGUMENT_LENGTH
