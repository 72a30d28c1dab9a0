"""Compiles the statements of templates: text, `{{ … }}`, `if`, `for` and `set`."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from jinja2 import nodes

from gateway.errors import ExecutionError
from gateway.json_types import ABSENT, Json
from gateway.language.templates.expressions import Bindings, Evaluate, compile_expression_node, is_from_file
from gateway.language.templates.render_state import LOOP_TURN, OmitElement, RenderState, kind_of, text_of

Run = Callable[[RenderState], None]

DEEPEST_LOOPS: Final = 2


def compile_statements(statements: Sequence[nodes.Node], names: Bindings) -> Run:
    return _in_sequence([_statement(statement, names) for statement in statements])


def _in_sequence(runs: Sequence[Run]) -> Run:
    if len(runs) == 1:
        return runs[0]

    def run(frame: RenderState) -> None:
        for each in runs:
            each(frame)

    return run


def _statement(statement: nodes.Node, names: Bindings) -> Run:
    rule = _RULES.get(type(statement))
    if rule is None:
        tag = _TAGS.get(type(statement), type(statement).__name__.lower())
        names.error(f"`{{% {tag} %}}` is not allowed in a template. Use if, for or set")
        return _in_sequence(())
    return rule(statement, names)


def _output(node: nodes.Output, names: Bindings) -> Run:
    return _in_sequence(
        [_data(part) if isinstance(part, nodes.TemplateData) else _value(part, names) for part in node.nodes]
    )


def _data(node: nodes.TemplateData) -> Run:
    text = node.data
    return lambda frame: frame.write(text, is_value=False)


def _value(node: nodes.Node, names: Bindings) -> Run:
    return writing(compile_expression_node(node, names), is_value=not is_from_file(node))


@lru_cache(maxsize=1024)  # many templates consist of the same input
def writing(evaluate: Evaluate, *, is_value: bool) -> Run:
    def run(frame: RenderState) -> None:
        value = evaluate(frame)
        if value is ABSENT and frame.in_element:
            raise OmitElement
        frame.write(text_of(value), is_value=is_value)

    return run


def _if(node: nodes.If, names: Bindings) -> Run:
    branches = [
        (compile_expression_node(branch.test, names), compile_statements(branch.body, names))
        for branch in (node, *node.elif_)
    ]
    otherwise = compile_statements(node.else_, names)

    def run(frame: RenderState) -> None:
        for test, body in branches:
            if test(frame):
                body(frame)
                return
        otherwise(frame)

    return run


def _for(node: nodes.For, names: Bindings) -> Run:
    targets = _targets(node.target)
    if node.recursive:
        names.error("a recursive `for` is not allowed in a template")
    if names.loops == DEEPEST_LOOPS:
        names.error(f"`for` can be nested at most {DEEPEST_LOOPS} levels deep")
    inside = names.inside_loop(targets)
    find = compile_expression_node(node.iter, names)
    wanted = None if node.test is None else compile_expression_node(node.test, inside)
    body, otherwise = compile_statements(node.body, inside), compile_statements(node.else_, names)
    bind = _bind_one(targets[0]) if isinstance(node.target, nodes.Name) else _bind_each(targets)

    def run(frame: RenderState) -> None:
        outside = frame.locals
        turns = []
        # Filter all items first: in Jinja, `loop.length` and `loop.last` ignore items that fail the `if`.
        for item in _items(find(frame)):
            frame.charge(LOOP_TURN)
            frame.locals = {**outside, **bind(frame, item)}
            if wanted is None or wanted(frame):
                turns.append(frame.locals)
        for index, bound in enumerate(turns):
            # As in Jinja, names bound by `set` are local to the iteration.
            frame.locals = {**bound, "loop": _loop(index, len(turns))}
            body(frame)
        frame.locals = outside
        if not turns:
            otherwise(frame)

    return run


def _targets(target: nodes.Node) -> list[str]:
    return [name.name for name in target.find_all(nodes.Name)] if not isinstance(target, nodes.Name) else [target.name]


def _items(value: Json) -> Sequence[Json]:
    if value is ABSENT:
        return ()
    if isinstance(value, Mapping):
        return list(value)
    if isinstance(value, list):
        return value
    raise ExecutionError(f"`for` needs a list or an object, not {kind_of(value)}")


def _bind_one(name: str) -> Callable[[RenderState, Json], Mapping[str, Json]]:
    return lambda frame, item: {name: frame.value(item)}


def _bind_each(names: Sequence[str]) -> Callable[[RenderState, Json], Mapping[str, Json]]:
    def bind(frame: RenderState, item: Json) -> Mapping[str, Json]:
        if not isinstance(item, list) or len(item) != len(names):
            raise ExecutionError(f"`for {', '.join(names)}` needs lists with {len(names)} items each")
        return {name: frame.value(part) for name, part in zip(names, item, strict=True)}

    return bind


def _loop(index: int, length: int) -> Mapping[str, Json]:
    return {
        "index": index + 1,
        "index0": index,
        "revindex": length - index,
        "first": index == 0,
        "last": index == length - 1,
        "length": length,
    }


def _assign(node: nodes.Assign, names: Bindings) -> Run:
    if not isinstance(node.target, nodes.Name):
        names.error("`set` takes one name")
        return _in_sequence(())
    name, evaluate = node.target.name, compile_expression_node(node.node, names)
    names.bound.add(name)

    def run(frame: RenderState) -> None:
        frame.locals[name] = evaluate(frame)

    return run


_RULES: Final[Mapping[type[nodes.Node], Callable[[Any, Bindings], Run]]] = {
    nodes.Assign: _assign,
    nodes.For: _for,
    nodes.If: _if,
    nodes.Output: _output,
}

_TAGS: Final[Mapping[type[nodes.Node], str]] = {
    nodes.AssignBlock: "set … endset",
    nodes.CallBlock: "call",
    nodes.FilterBlock: "filter",
    nodes.FromImport: "from",
    nodes.Scope: "autoescape",
}
"""Maps Jinja's node classes to the names of their tags, for classes whose name differs from the tag."""
