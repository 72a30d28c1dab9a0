"""Compiles templates: Jinja's notation over JSON values, checked when the file is read, bounded when rendered.

A caller's value is data. It is never parsed: not as a template, and not by whatever reads the rendered text, which is
the business of those who use templates (argv items, header fields, members of JSON).
"""

import re
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Final

import msgspec
from jinja2 import TemplateSyntaxError, nodes

from gateway.config.models.interpolated_text import parts_of
from gateway.errors import ExecutionError
from gateway.json_types import ABSENT, Json, JsonObject
from gateway.language.files.file_inputs import holds_files_alone
from gateway.language.scope import Scope
from gateway.language.templates.expressions import (
    ALL_INPUTS,
    Bindings,
    Evaluate,
    compile_expression_node,
    input_named_by,
    is_from_file,
)
from gateway.language.templates.parsing import parse_expression, parse_text
from gateway.language.templates.render_state import MAX_TEXT_BYTES, UNDEFINED, OmitElement, RenderState
from gateway.language.templates.statements import Run, compile_statements, writing

EXPRESSION: Final = "\0"
"""Replaces an expression in the shape of a text; no argument, header or name can hold it."""


_START: Final = re.compile(r"\{[{%#]")
"""Begins an expression, a statement or a comment of a template."""
_MAX_COPIED: Final = MAX_TEXT_BYTES // 4
"""Characters that are no more than `MAX_TEXT_BYTES`, whichever they are (RFC 3629 §3)."""


class Rendering(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    begins_with_value: bool
    """Whether the first character came from a value, and does not stand in the file."""


class TextTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A text with expressions in it, or without."""

    place: str = ""
    """Where it stands in the file, for messages; not said of a text without expressions, which cannot fail."""
    literal: str | None = None
    """The text, where it has no expression."""
    run: Run | None = None
    single: Evaluate | None = None
    """The expression, where the text is that and nothing else."""
    input: str | None = None
    """The input whose value the text is, where it is that and nothing else."""
    copied: str | None = None
    """The variable whose value the text is, where it is that and nothing else."""
    shape: str = ""
    """The text with `EXPRESSION` where values and statements stand."""

    @property
    def only_copies(self) -> bool:
        """Whether the text is one of the file, or one value, as it is."""
        return self.run is None or self.copied is not None

    def render(self, variables: JsonObject) -> str:
        """Return the text; what is absent is empty.

        Raises:
            ExecutionError: the text would be too long, or a value does not fit what is done with it.
        """
        if (copy := self.copy_of(variables)) is not None:
            return copy
        if self.run is None:
            return self.literal or ""
        rendering = self.rendering(variables, in_element=False)
        return "" if rendering is None else rendering.text

    def copy_of(self, variables: JsonObject) -> str | None:
        """Return the value that the text is, if that is a text as it stands; None says nothing."""
        if self.copied is None:
            return None
        value = variables.get(self.copied)
        return value if isinstance(value, str) and len(value) <= _MAX_COPIED else None

    def render_element(self, variables: JsonObject) -> str | None:
        """Return the text, or None where something absent would be in it: the element is then left out.

        Raises:
            ExecutionError: as for `render`.
        """
        rendering = self.rendering(variables, in_element=True)
        return None if rendering is None else rendering.text

    def rendering(self, variables: JsonObject, *, in_element: bool, null: Json = UNDEFINED) -> Rendering | None:
        if self.run is None:
            return Rendering(text=self.literal or "", begins_with_value=False)
        frame = RenderState(variables, in_element=in_element, null=null)
        try:
            self.run(frame)
        except OmitElement:
            return None
        except _MISFITS as error:
            raise _named(error, self.place) from error
        return Rendering(text=frame.text, begins_with_value=frame.begins_with_value)

    def value(self, variables: JsonObject, *, null: Json = UNDEFINED) -> Json:
        """Return what the one expression gives, with its type, or else the text; MISSING where that is absent.

        Raises:
            ExecutionError: as for `render`.
        """
        if self.single is not None:
            try:
                return self.single(RenderState(variables, in_element=True, null=null))
            except _MISFITS as error:
                raise _named(error, self.place) from error
        rendering = self.rendering(variables, in_element=True, null=null)
        return UNDEFINED if rendering is None else rendering.text


class Expression(msgspec.Struct, frozen=True, kw_only=True):
    """An expression without braces: the `if:` of an argv item."""

    place: str
    evaluate: Evaluate

    def is_true(self, variables: JsonObject) -> bool:
        try:
            return bool(self.evaluate(RenderState(variables)))
        except _MISFITS as error:
            raise _named(error, self.place) from error


class JsonTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON value with templates in its texts."""

    build: Callable[[JsonObject], Json]

    def render(self, variables: JsonObject) -> Json:
        """Return the value; members and items that are absent are left out, `ABSENT` stands for the whole.

        Raises:
            ExecutionError: as for `TextTemplate.render`.
        """
        value = self.build(variables)
        return ABSENT if value is UNDEFINED else value


# Boundary: values are the caller's, and no expression may turn one that does not fit into a failure of ours.
_MISFITS: Final = (ExecutionError, TypeError, ValueError, ArithmeticError, RecursionError)


def _named(error: Exception, place: str) -> ExecutionError:
    """Name the template in what went wrong in it."""
    return ExecutionError(f"{place}: {error}")


def compile_text(source: str, scope: Scope) -> TextTemplate:
    """Compile a template of text; one with errors, which are reported, renders nothing."""
    if not has_expressions(source):
        return TextTemplate(literal=str(source), shape=str(source))
    place = scope.problems.path
    try:
        body = parse_text(parts_of(source))
        return _compiled(body, Bindings(scope=scope), place)
    except _UNPARSABLE as error:
        _report(error, source, scope)
        return TextTemplate(place=place)


def _compiled(body: list[nodes.Node], names: Bindings, place: str) -> TextTemplate:
    _check_files(body, names)
    match body:
        case [nodes.Output(nodes=[nodes.Expr() as only])] if _is_one_expression(body):
            single, named = compile_expression_node(only, names), input_named_by(only, names)
            has_names_of_its_own = ALL_INPUTS in names.scope.names or named in names.scope.names
            return TextTemplate(
                place=place,
                run=writing(single, is_value=not is_from_file(only)),
                single=single,
                input=named,
                # There the variables have the inputs one level down, or something else by this name.
                copied=None if has_names_of_its_own else named,
                shape=EXPRESSION,
            )
        case _:
            return TextTemplate(place=place, run=compile_statements(body, names), shape=_shape(body))


def _check_files(body: list[nodes.Node], names: Bindings) -> None:
    """Report an input of `type: file` that would become text: what it has is bytes."""
    if not names.scope.inputs.has_files or (names.scope.takes_files and _is_one_expression(body)):
        return
    for output in nodes.Template(body).find_all(nodes.Output):
        for each in output.nodes:
            name = input_named_by(each, names)
            if name is not None and holds_files_alone(names.scope.inputs.schemas.get(name, {})):
                members = f"`{name}.name`, `{name}.type` and `{name}.size`"
                names.error(f"`{name}` is a file, which cannot stand in a text; {members} can")


def _is_one_expression(body: list[nodes.Node]) -> bool:
    match body:
        case [nodes.Output(nodes=[nodes.Expr() as only])]:
            return not isinstance(only, nodes.TemplateData)
        case _:
            return False


def _shape(body: list[nodes.Node]) -> str:
    parts = chain.from_iterable(each.nodes if isinstance(each, nodes.Output) else [each] for each in body)
    return "".join(part.data if isinstance(part, nodes.TemplateData) else EXPRESSION for part in parts)


def compile_expression(source: str, scope: Scope) -> Expression:
    """Compile an expression; one with errors, which are reported, gives nothing."""
    place = scope.problems.path
    if "{{" in source:
        scope.problems.error("this is an expression already; write it without `{{ }}`")
        return Expression(place=place, evaluate=lambda _: UNDEFINED)
    try:
        node = parse_expression(parts_of(source))
        return Expression(place=place, evaluate=compile_expression_node(node, Bindings(scope=scope)))
    except _UNPARSABLE as error:
        _report(error, source, scope)
        return Expression(place=place, evaluate=lambda _: UNDEFINED)


def compile_json(value: Json, scope: Scope, *, null: Json = None) -> JsonTemplate:
    """Compile the texts in a JSON value; errors are reported, each at its place.

    `null` is what a given null counts as.
    """
    return JsonTemplate(build=_json_builder(value, scope, null))


def has_expressions(source: str) -> bool:
    """Whether the text is a template at all; what was interpolated never makes it one."""
    return "{" in source and any(isinstance(part, str) and _START.search(part) for part in parts_of(source))


def _json_builder(value: Json, scope: Scope, null: Json) -> Callable[[JsonObject], Json]:
    match value:
        case str():
            template = compile_text(value, scope)
            return lambda variables: template.value(variables, null=null)
        case list():
            items = [_json_builder(item, scope.at(index), null) for index, item in enumerate(value)]
            return lambda variables: [item for build in items if (item := build(variables)) is not UNDEFINED]
        case Mapping():
            members = {str(name): _json_builder(member, scope.at(str(name)), null) for name, member in value.items()}
            return lambda variables: {
                name: member for name, build in members.items() if (member := build(variables)) is not UNDEFINED
            }
        case _:
            return lambda _: value


_UNPARSABLE: Final = (TemplateSyntaxError, RecursionError)


def _report(error: Exception, source: str, scope: Scope) -> None:
    """Report what Jinja's parser refuses."""
    if isinstance(error, TemplateSyntaxError):
        line = f"line {error.lineno}: " if "\n" in source.rstrip("\n") else ""
        scope.problems.error(f"not a template: {line}{_explained(error.message or '')}")
    else:
        scope.problems.error("not a template: nested too deep")


def _explained(message: str) -> str:
    # A mark of `parsing` (U+E000 to U+E00F), where Jinja expects an expression.
    if "unexpected char '\\ue0" in message:
        return "inside `{{ }}` an interpolation must stand in quotes: `'${env:NAME}'`"
    return message.rstrip(".")
