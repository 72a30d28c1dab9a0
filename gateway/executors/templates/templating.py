"""Templates in the file: Jinja's notation over JSON values, checked when the file is read, bounded when rendered.

A caller's value is data. It is never parsed: not as a template, and not by whatever reads the rendered text, which is
the business of those who use templates (argv items, header fields, members of JSON).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, count
from typing import Final

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.parser import Parser

from gateway.config.text import Inserted, Part, parts_of
from gateway.errors import ExecutionError
from gateway.executors.invocation import ABSENT
from gateway.executors.scope import Scope
from gateway.executors.templates.expressions import Evaluate, Names, compile_expression_node, input_named_by
from gateway.executors.templates.frame import MISSING, AbsentElement, Frame
from gateway.executors.templates.statements import Run, compile_statements
from gateway.json_types import Json, JsonObject

_GRAMMAR: Final = Environment(keep_trailing_newline=True, autoescape=False)  # noqa: S701 - parses; nothing is rendered by it


EXPRESSION: Final = "\0"
"""Stands for an expression in the shape of a text; no argument, header or name can hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    text: str
    begins_with_value: bool
    """Whether the first character came from a value, and does not stand in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTemplate:
    """A text with expressions in it, or without."""

    place: str
    """Where it stands in the file, for messages."""
    literal: str | None = None
    """The text, where it has no expression."""
    run: Run | None = None
    single: Evaluate | None = None
    """The expression, where the text is that and nothing else."""
    input: str | None = None
    """The input whose value the text is, where it is that and nothing else."""
    shape: str = ""
    """The text with `EXPRESSION` where values and statements stand."""

    def render(self, variables: JsonObject) -> str:
        """Return the text; what is absent is empty.

        Raises:
            ExecutionError: the text would be too long, or a value does not fit what is done with it.
        """
        rendering = self.rendering(variables, in_element=False)
        return "" if rendering is None else rendering.text

    def render_element(self, variables: JsonObject) -> str | None:
        """Return the text, or None where something absent would be in it: the element is then left out.

        Raises:
            ExecutionError: as for `render`.
        """
        rendering = self.rendering(variables, in_element=True)
        return None if rendering is None else rendering.text

    def rendering(self, variables: JsonObject, *, in_element: bool, null: Json = MISSING) -> Rendering | None:
        if self.run is None:
            return Rendering(text=self.literal or "", begins_with_value=False)
        frame = Frame(variables, in_element=in_element, null=null)
        try:
            self.run(frame)
        except AbsentElement:
            return None
        except _MISFITS as error:
            raise _named(error, self.place) from error
        return Rendering(text=frame.text, begins_with_value=frame.begins_with_value)

    def value(self, variables: JsonObject, *, null: Json = MISSING) -> Json:
        """Return what the one expression gives, with its type, or else the text; MISSING where that is absent.

        Raises:
            ExecutionError: as for `render`.
        """
        if self.single is not None:
            try:
                return self.single(Frame(variables, in_element=True, null=null))
            except _MISFITS as error:
                raise _named(error, self.place) from error
        rendering = self.rendering(variables, in_element=True, null=null)
        return MISSING if rendering is None else rendering.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """An expression without braces: the `if:` of an argv item."""

    place: str
    evaluate: Evaluate

    def is_true(self, variables: JsonObject) -> bool:
        try:
            return bool(self.evaluate(Frame(variables)))
        except _MISFITS as error:
            raise _named(error, self.place) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonTemplate:
    """A JSON value with templates in its texts."""

    build: Callable[[JsonObject], Json]

    def render(self, variables: JsonObject) -> Json:
        """Return the value; members and items that are absent are left out, `ABSENT` stands for the whole.

        Raises:
            ExecutionError: as for `TextTemplate.render`.
        """
        value = self.build(variables)
        return ABSENT if value is MISSING else value


# Boundary: values are the caller's, and no expression may turn one that does not fit into a failure of ours.
_MISFITS: Final = (ExecutionError, TypeError, ValueError, ArithmeticError, RecursionError)


def _named(error: Exception, place: str) -> ExecutionError:
    """Name the template in what went wrong in it."""
    return ExecutionError(f"{place}: {error}")


def compile_text(source: str, scope: Scope) -> TextTemplate:
    """Compile a template of text; mistakes are reported, and a stand-in returned."""
    place = scope.problems.path
    if not has_expressions(source):
        return TextTemplate(place=place, literal=str(source), shape=str(source))
    with _reporting(scope, source):
        body, names = _parse_text(parts_of(source)), Names(scope=scope)
        run = compile_statements(body, names)
        template = TextTemplate(place=place, run=run, shape=_shape(body))
        match body:
            case [nodes.Output(nodes=[nodes.Expr() as only])] if not isinstance(only, nodes.TemplateData):
                return replace(template, single=compile_expression_node(only, names), input=input_named_by(only, names))
        return template
    return TextTemplate(place=place)


def _shape(body: list[nodes.Node]) -> str:
    parts = chain.from_iterable(each.nodes if isinstance(each, nodes.Output) else [each] for each in body)
    return "".join(part.data if isinstance(part, nodes.TemplateData) else EXPRESSION for part in parts)


def compile_expression(source: str, scope: Scope) -> Expression:
    """Compile an expression; mistakes are reported, and a stand-in returned."""
    place = scope.problems.path
    if "{{" in source:
        scope.problems.error("this is an expression already; write it without `{{ }}`")
        return Expression(place=place, evaluate=lambda _: MISSING)
    with _reporting(scope, source):
        node = _parse_expression(parts_of(source))
        return Expression(place=place, evaluate=compile_expression_node(node, Names(scope=scope)))
    return Expression(place=place, evaluate=lambda _: MISSING)


def compile_json(value: Json, scope: Scope) -> JsonTemplate:
    """Compile the texts in a JSON value; mistakes are reported, each at its place."""
    return JsonTemplate(build=_json_builder(value, scope))


def has_expressions(source: str) -> bool:
    """Whether the text is a template at all; what was interpolated never makes it one."""
    return any(mark in part for part in parts_of(source) if isinstance(part, str) for mark in ("{{", "{%", "{#"))


def _json_builder(value: Json, scope: Scope) -> Callable[[JsonObject], Json]:
    match value:
        case str():
            template = compile_text(value, scope)
            return lambda variables: template.value(variables, null=None)
        case list():
            items = [_json_builder(item, scope.at(index)) for index, item in enumerate(value)]
            return lambda variables: [item for build in items if (item := build(variables)) is not MISSING]
        case Mapping():
            members = {str(name): _json_builder(member, scope.at(str(name))) for name, member in value.items()}
            return lambda variables: {
                name: member for name, build in members.items() if (member := build(variables)) is not MISSING
            }
        case _:
            return lambda _: value


@contextmanager
def _reporting(scope: Scope, source: str) -> Iterator[None]:
    """Report what Jinja's parser refuses."""
    try:
        yield
    except TemplateSyntaxError as error:
        line = f"line {error.lineno}: " if "\n" in source.rstrip("\n") else ""
        scope.problems.error(f"not a template: {line}{_explained(error.message or '')}")
    except RecursionError:
        scope.problems.error("not a template: nested too deep")


def _explained(message: str) -> str:
    if "unexpected char '\\ue0" in message:
        return "inside `{{ }}` an interpolation must stand in quotes: `'${env:NAME}'`"
    return message.rstrip(".")


@lru_cache(maxsize=8192)
def _parse_text(parts: tuple[Part, ...]) -> list[nodes.Node]:
    """Parse once what many places say: `{{ path }}`. The tree is read only."""
    source, insert = _with_marks(parts)
    tree = _GRAMMAR.parse(source)
    insert(tree)
    return tree.body


@lru_cache(maxsize=8192)
def _parse_expression(parts: tuple[Part, ...]) -> nodes.Expr:
    source, insert = _with_marks(parts)
    parser = Parser(_GRAMMAR, source, state="variable")
    node = parser.parse_expression()
    if not parser.stream.eos:
        parser.fail("expected the end of the expression", parser.stream.current.lineno)
    insert(nodes.Output([node]))
    return node


_MARKS: Final = tuple(map(chr, range(0xE000, 0xE010)))
"""Private-use characters, one of which stands around the number of a literal while Jinja parses."""


def _with_marks(parts: tuple[Part, ...]) -> tuple[str, Callable[[nodes.Node], None]]:
    """Return a source with a mark for each literal, and what puts the literals into the parsed tree."""
    pieces = [piece for part in parts for piece in ([part] if isinstance(part, Inserted) else _sparing_returns(part))]
    literals = [piece.text for piece in pieces if isinstance(piece, Inserted)]
    mark = next(mark for mark in _MARKS if not any(mark in piece for piece in pieces if isinstance(piece, str)))
    numbers = count()
    source = "".join(f"{mark}{next(numbers)}{mark}" if isinstance(piece, Inserted) else piece for piece in pieces)
    pattern = re.compile(f"{mark}([0-9]+){mark}")

    def insert(tree: nodes.Node) -> None:
        for data in tree.find_all(nodes.TemplateData):
            data.data = pattern.sub(lambda match: literals[int(match[1])], data.data)
        for const in tree.find_all(nodes.Const):
            if isinstance(const.value, str):
                const.value = pattern.sub(lambda match: literals[int(match[1])], const.value)

    return source, insert


def _sparing_returns(text: str) -> list[Part]:
    """Treat carriage returns as literals: Jinja would turn them into newlines."""
    return [Inserted("\r", secret=False) if piece == "\r" else piece for piece in re.split("(\r)", text)]
