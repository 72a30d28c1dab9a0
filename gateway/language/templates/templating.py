"""Compiles templates. Values from callers and interpolated text are data, and are never parsed as templates."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain, count
from typing import Final

import msgspec
from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.parser import Parser

from gateway.config.models.interpolated_text import Interpolation, Part, parts_of
from gateway.errors import ExecutionError
from gateway.json_types import ABSENT, Json, JsonObject
from gateway.language.files.file_inputs import accepts_only_files
from gateway.language.scope import Scope
from gateway.language.templates.expressions import (
    Bindings,
    Evaluate,
    compile_expression_node,
    input_named_by,
    is_from_file,
)
from gateway.language.templates.render_state import OmitElement, RenderState
from gateway.language.templates.statements import Run, compile_statements, writing

EXPRESSION: Final = "\0"
"""Placeholder for an expression in `TextTemplate.shape`. Arguments, headers and names cannot contain it."""


_START: Final = re.compile(r"\{[{%#]")


class TextTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled text. `literal` is set for plain text, `single` for one expression, and `input` for one input."""

    place: str = ""
    literal: str | None = None
    run: Run | None = None
    single: Evaluate | None = None
    input: str | None = None
    shape: str = ""
    """The text with `EXPRESSION` for each expression and statement."""

    def render(self, variables: JsonObject) -> str:
        """Return the rendered text, in which missing values are empty.

        Raises:
            ExecutionError: the text is too long, or a value has the wrong type for an operation.
        """
        if self.run is None:
            return self.literal or ""
        rendering = self.rendering(variables, in_element=False)
        return "" if rendering is None else rendering.text

    def render_element(self, variables: JsonObject) -> str | None:
        """Return the rendered text, or None if the element must be omitted because a value is missing.

        Raises:
            ExecutionError: as for `render`.
        """
        if self.run is None:
            return self.literal or ""
        rendering = self.rendering(variables, in_element=True)
        return None if rendering is None else rendering.text

    def rendering(self, variables: JsonObject, *, in_element: bool, null: Json = ABSENT) -> RenderState | None:
        """Return the state after rendering, or None if the element must be omitted because a value is missing."""
        frame = RenderState(variables, in_element=in_element, null=null)
        try:
            if self.run is not None:
                self.run(frame)
            else:
                frame.write(self.literal or "", is_value=False)
        except OmitElement:
            return None
        except _MISFITS as error:
            raise _named(error, self.place) from error
        return frame

    def value(self, variables: JsonObject, *, null: Json = ABSENT) -> Json:
        """Return the value of a single expression, or the text of another template. Return ABSENT for a missing value.

        Raises:
            ExecutionError: as for `render`.
        """
        if self.single is not None:
            try:
                return self.single(RenderState(variables, in_element=True, null=null))
            except _MISFITS as error:
                raise _named(error, self.place) from error
        if self.run is None:
            return self.literal or ""
        rendering = self.rendering(variables, in_element=True, null=null)
        return ABSENT if rendering is None else rendering.text


Condition = Callable[[JsonObject], bool]
"""Evaluates an expression without braces, such as the `if:` of an argv item.

Raises:
    ExecutionError: as for `TextTemplate.render`.
"""

JsonTemplate = Callable[[JsonObject], Json]
"""Returns a JSON value without missing members and items, or ABSENT if the whole value is missing.

Raises:
    ExecutionError: as for `TextTemplate.render`.
"""


# Values of a wrong type must not cause internal errors.
_MISFITS: Final = (ExecutionError, TypeError, ValueError, ArithmeticError, RecursionError)


def _named(error: Exception, place: str) -> ExecutionError:
    return ExecutionError(f"{place}: {error}")


def compile_text(source: str, scope: Scope) -> TextTemplate:
    """Compile a string. If the string has syntax errors, report them and return an empty template."""
    if not has_expressions(source):
        return TextTemplate(literal=str(source), shape=str(source))
    place = scope.problems.path
    try:
        body = _parse_text(parts_of(source))
        return _compiled(body, Bindings(scope=scope), place)
    except _UNPARSABLE as error:
        _report(error, source, scope)
        return TextTemplate(place=place)


def _compiled(body: list[nodes.Node], names: Bindings, place: str) -> TextTemplate:
    _check_files(body, names)
    if (only := _only_expression(body)) is not None:
        single, named = compile_expression_node(only, names), input_named_by(only, names)
        run = writing(single, is_value=not is_from_file(only))
        return TextTemplate(place=place, run=run, single=single, input=named, shape=EXPRESSION)
    parts = chain.from_iterable(each.nodes if isinstance(each, nodes.Output) else [each] for each in body)
    shape = "".join(part.data if isinstance(part, nodes.TemplateData) else EXPRESSION for part in parts)
    return TextTemplate(place=place, run=compile_statements(body, names), shape=shape)


def _check_files(body: list[nodes.Node], names: Bindings) -> None:
    if not names.scope.inputs.has_files or (names.scope.takes_files and _only_expression(body) is not None):
        return
    for output in nodes.Template(body).find_all(nodes.Output):
        for each in output.nodes:
            name = input_named_by(each, names)
            if name is not None and accepts_only_files(names.scope.inputs.schemas.get(name, {})):
                members = f"`{name}.name`, `{name}.type` and `{name}.size`"
                names.error(f"`{name}` is a file and cannot be inserted into text. Use {members}")


def _only_expression(body: list[nodes.Node]) -> nodes.Expr | None:
    """Return the expression of a string that consists of a single expression, or None for other strings."""
    match body:
        case [nodes.Output(nodes=[nodes.Expr() as only])] if not isinstance(only, nodes.TemplateData):
            return only
        case _:
            return None


def compile_condition(source: str, scope: Scope) -> Condition:
    """Compile an expression. If it has syntax errors, report them and return a condition that is always false."""
    place = scope.problems.path
    if "{{" in source:
        scope.problems.error("this is already an expression. Write it without `{{ }}`")
        return lambda _: False
    try:
        node = _parse_expression(parts_of(source))
        evaluate = compile_expression_node(node, Bindings(scope=scope))
    except _UNPARSABLE as error:
        _report(error, source, scope)
        return lambda _: False

    def is_true(variables: JsonObject) -> bool:
        try:
            return bool(evaluate(RenderState(variables)))
        except _MISFITS as error:
            raise _named(error, place) from error

    return is_true


def compile_json(value: Json, scope: Scope, *, null: Json = None) -> JsonTemplate:
    """Compile the strings in a JSON value. `null` replaces each null that an expression returns."""
    match value:
        case str():
            template = compile_text(value, scope)
            return lambda variables: template.value(variables, null=null)
        case list():
            items = [compile_json(item, scope.at(index), null=null) for index, item in enumerate(value)]
            return lambda variables: [item for build in items if (item := build(variables)) is not ABSENT]
        case Mapping():
            members = {str(name): compile_json(each, scope.at(str(name)), null=null) for name, each in value.items()}
            return lambda variables: {
                name: member for name, build in members.items() if (member := build(variables)) is not ABSENT
            }
        case _:
            return lambda _: value


def has_expressions(source: str) -> bool:
    """Whether a string contains template syntax, ignoring interpolated text."""
    return "{" in source and any(isinstance(part, str) and _START.search(part) for part in parts_of(source))


_UNPARSABLE: Final = (TemplateSyntaxError, RecursionError)


def _report(error: Exception, source: str, scope: Scope) -> None:
    if isinstance(error, TemplateSyntaxError):
        line = f" (line {error.lineno})" if "\n" in source.rstrip("\n") else ""
        scope.problems.error(f"invalid template{line}: {_explained(error.message or '')}")
    else:
        scope.problems.error("invalid template: nested too deeply")


def _explained(message: str) -> str:
    # Jinja has found one of `_MARKS` where it expects an expression.
    if "unexpected char '\\ue0" in message:
        return "quote interpolations inside `{{ }}`: `'${env:NAME}'`"
    return message.rstrip(".")


_GRAMMAR: Final = Environment(keep_trailing_newline=True, autoescape=False)  # noqa: S701 - only used to parse


@lru_cache(maxsize=8192)
def _parse_text(parts: tuple[Part, ...]) -> list[nodes.Node]:
    """Parse a template. The cached tree must not be changed.

    Raises:
        TemplateSyntaxError: the text is not a template.
    """
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
    # Wrap the node, because `find_all` only searches below a node.
    insert(nodes.Output([node]))
    return node


_MARKS: Final = tuple(map(chr, range(0xE000, 0xE010)))
"""Private-use characters that represent literals while Jinja parses a template."""


def _with_marks(parts: tuple[Part, ...]) -> tuple[str, Callable[[nodes.Node], None]]:
    """Replace interpolated values with numbered marks. Return the source, and a function to reverse this in a tree."""
    pieces = [
        piece for part in parts for piece in ([part] if isinstance(part, Interpolation) else _sparing_returns(part))
    ]
    literals = [piece.text for piece in pieces if isinstance(piece, Interpolation)]
    free = (mark for mark in _MARKS if not any(mark in piece for piece in pieces if isinstance(piece, str)))
    if (mark := next(free, None)) is None:
        raise TemplateSyntaxError("a template cannot contain all characters from U+E000 to U+E00F", lineno=1)
    numbers = count()
    source = "".join(f"{mark}{next(numbers)}{mark}" if isinstance(piece, Interpolation) else piece for piece in pieces)
    # Insert literals after parsing, because in the source they could end a quote or an expression.
    pattern = re.compile(f"{mark}([0-9]+){mark}")

    def insert(tree: nodes.Node) -> None:
        for data in tree.find_all(nodes.TemplateData):
            data.data = pattern.sub(lambda match: literals[int(match[1])], data.data)
        for const in tree.find_all(nodes.Const):
            if isinstance(const.value, str):
                const.value = pattern.sub(lambda match: literals[int(match[1])], const.value)

    return source, insert


def _sparing_returns(text: str) -> list[Part]:
    # Jinja converts carriage returns to newlines, except in literals.
    return [Interpolation("\r", secret=False) if piece == "\r" else piece for piece in re.split("(\r)", text)]
