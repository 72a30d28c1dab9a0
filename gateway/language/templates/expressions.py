"""Compiles Jinja expressions into closures over JSON values.

Jinja only parses. Its compiler generates Python code, and its sandbox does not limit time or memory. Here each allowed
type of node has a row in `_RULES`, and `a.b` can only be a member of data.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from jinja2 import nodes
from msgspec.structs import replace

from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.json_types import Json
from gateway.language.scope import Scope
from gateway.language.templates.caller import CALLER, CLAIMS, claim_named_by, missing_claim, use_fact
from gateway.language.templates.filters import FILTERS, TESTS, member
from gateway.language.templates.operators import COMPARISONS, add, arithmetic, signed
from gateway.language.templates.render_state import UNDEFINED, RenderState, text_of

Evaluate = Callable[[RenderState], Json]

ALL_INPUTS: Final = "inputs"
"""Name of the mapping of all inputs."""


class Bindings(msgspec.Struct, frozen=True, kw_only=True):
    """Names that are known at one point of a template."""

    scope: Scope
    bound: set[str] = msgspec.field(default_factory=set)
    """Names bound by `set` and `for` so far."""
    loops: int = 0
    """Number of enclosing loops."""
    has_default: bool = False
    """Whether a missing claim of the caller is undefined here, and not an error."""

    def inside_loop(self, targets: Sequence[str]) -> "Bindings":
        return replace(self, bound=self.bound | {*targets, "loop"}, loops=self.loops + 1)

    def with_default(self) -> "Bindings":
        return replace(self, has_default=True)

    def is_caller(self, node: nodes.Node) -> bool:
        """Whether `node` is the name `caller`, and not a local variable."""
        return isinstance(node, nodes.Name) and node.name == CALLER and CALLER not in self.bound

    def error(self, message: str) -> None:
        self.scope.problems.error(message)

    def report_unknown(self, name: str, known: Sequence[str]) -> None:
        """Report a name that is not an input, with a similar name or all known names."""
        hint = did_you_mean(name, known)
        if not hint and self.scope.inputs.is_open:
            hint = f"; an input that the schema does not list is `{ALL_INPUTS}['{name}']`"
        listed = ", ".join(known) or "none"
        self.error(f"`{name}` is not an input{hint or '; available: ' + listed}")


def compile_expression_node(node: nodes.Node, names: Bindings) -> Evaluate:
    """Return a closure that evaluates `node`. Errors are reported, and the closure then returns UNDEFINED."""
    rule = _RULES.get(type(node))
    if rule is None:
        names.error(_REFUSED.get(type(node), f"`{type(node).__name__}` expressions are not allowed in a template"))
        return _nothing
    return rule(node, names)


def is_from_file(node: nodes.Node) -> bool:
    """Whether the first character of the result always comes from the file."""
    match node:
        case nodes.Const():
            return isinstance(node.value, str) and bool(node.value)
        case nodes.CondExpr(expr1=first, expr2=second):
            return is_from_file(first) and (second is None or is_from_file(second))
        case nodes.Concat(nodes=parts):
            return is_from_file(parts[0])
        case _:
            return False


def input_named_by(node: nodes.Node, names: Bindings) -> str | None:
    """Return the name of the input if `node` is an input and nothing else."""
    match node:
        case nodes.Name(name=str(name)):
            is_free = name not in names.bound and name not in names.scope.names
            return name if is_free and name in names.scope.inputs.schemas else None
        case (
            nodes.Getattr(node=nodes.Name(name="inputs"), attr=str(name))
            | nodes.Getitem(node=nodes.Name(name="inputs"), arg=nodes.Const(value=str(name)))
        ):
            return name if ALL_INPUTS not in names.bound else None
        case _:
            return None


def _nothing(_frame: RenderState) -> Json:
    return UNDEFINED


def _const(node: nodes.Const, _names: Bindings) -> Evaluate:
    # Like a null from a caller: empty in text, null in JSON.
    value = node.value
    return (lambda frame: frame.null) if value is None else (lambda _: value)


def _name(node: nodes.Name, names: Bindings) -> Evaluate:
    name, scope = node.name, names.scope
    if name in names.bound:
        return _bound_name(name, _free_name(name, scope) if _is_known(name, scope) else _nothing)
    if name == CALLER:
        use_fact(None, scope)
        return _nothing
    if not _is_known(name, scope):
        names.report_unknown(name, [*scope.inputs.schemas, *sorted(scope.names), *sorted(names.bound)])
        return _nothing
    return _free_name(name, scope)


def _is_known(name: str, scope: Scope) -> bool:
    return name == ALL_INPUTS or name in scope.names or name in scope.inputs.schemas


def _bound_name(name: str, otherwise: Evaluate) -> Evaluate:
    def evaluate(frame: RenderState) -> Json:
        # A `set` in a branch that did not run has bound nothing. Use the input of that name, if there is one.
        return frame.locals[name] if name in frame.locals else otherwise(frame)

    return evaluate


def _free_name(name: str, scope: Scope) -> Evaluate:
    if name == ALL_INPUTS:
        scope.use_all()
        return _all_inputs(scope)
    if name in scope.names:
        return lambda frame: frame.value(frame.variables.get(name, UNDEFINED))
    return _input(name, scope)


def _all_inputs(scope: Scope) -> Evaluate:
    inputs, hidden = (_nested_inputs, {CALLER}) if ALL_INPUTS in scope.names else (_variables, {CALLER, *scope.names})

    def evaluate(frame: RenderState) -> Json:
        values = inputs(frame)
        return values if hidden.isdisjoint(values) else {name: values[name] for name in values if name not in hidden}

    return evaluate


def _input(name: str, scope: Scope) -> Evaluate:
    scope.used.add(name)
    return _value_of(name, is_nested=ALL_INPUTS in scope.names)


@lru_cache(maxsize=4096)
def _value_of(name: str, *, is_nested: bool) -> Evaluate:
    """Return one closure for all templates that read an input, because many tools have the same input names."""
    inputs = _nested_inputs if is_nested else _variables
    return lambda frame: frame.value(inputs(frame).get(name, UNDEFINED))


def _variables(frame: RenderState) -> Json:
    return frame.variables


def _nested_inputs(frame: RenderState) -> Json:
    return frame.variables[ALL_INPUTS]


def _getattr(node: nodes.Getattr, names: Bindings) -> Evaluate:
    return _member(node.node, nodes.Const(node.attr), names)


def _getitem(node: nodes.Getitem, names: Bindings) -> Evaluate:
    if isinstance(node.arg, nodes.Slice):
        return _slice(node.node, node.arg, names)
    return _member(node.node, node.arg, names)


def _member(owner: nodes.Node, key: nodes.Node, names: Bindings) -> Evaluate:
    match owner, key:
        case nodes.Name(name="inputs"), nodes.Const(value=str(name)) if ALL_INPUTS not in names.bound:
            return _listed_input(name, names)
    if names.is_caller(owner):
        return _caller_fact(key, names)
    find_key = compile_expression_node(key, names)
    claim = claim_named_by(nodes.Getitem(owner, key, "load")) if CALLER not in names.bound else None
    if claim is None:
        find_owner = compile_expression_node(owner, names)
        return lambda frame: frame.value(member(find_owner(frame), find_key(frame)))
    is_nested = claim_named_by(owner) is not None
    find_owner = compile_expression_node(owner, names) if is_nested else _caller_fact(nodes.Const(CLAIMS), names, claim)

    def evaluate(frame: RenderState) -> Json:
        value = member(find_owner(frame), find_key(frame))
        if value is UNDEFINED and not names.has_default:
            raise missing_claim(claim)
        return frame.value(value)

    return evaluate


def _caller_fact(key: nodes.Node, names: Bindings, claim: str | None = None) -> Evaluate:
    fact = key.value if isinstance(key, nodes.Const) else None
    if not use_fact(fact, names.scope, claim=claim):
        return _nothing
    inputs = _nested_inputs if ALL_INPUTS in names.scope.names else _variables
    return lambda frame: inputs(frame)[CALLER][fact]


def _listed_input(name: str, names: Bindings) -> Evaluate:
    inputs = names.scope.inputs
    if name == CALLER:
        names.error(f"an input cannot be named `{CALLER}`: it is the verified identity of the caller")
        return _nothing
    if name not in inputs.schemas and not inputs.is_open:
        names.report_unknown(name, list(inputs.schemas))
    return _input(name, names.scope)


def _slice(owner: nodes.Node, bounds: nodes.Slice, names: Bindings) -> Evaluate:
    find = compile_expression_node(owner, names)
    start, stop, step = (
        _nothing if bound is None else compile_expression_node(bound, names)
        for bound in (bounds.start, bounds.stop, bounds.step)
    )

    def evaluate(frame: RenderState) -> Json:
        value = find(frame)
        if not isinstance(value, str | list):
            return UNDEFINED
        # A slice is at most as long as the whole.
        frame.charge(len(value))
        return value[
            slice(*(None if bound is UNDEFINED else bound for bound in (start(frame), stop(frame), step(frame))))
        ]

    return evaluate


def _filter(node: nodes.Filter, names: Bindings) -> Evaluate:
    row = FILTERS.get(node.name)
    if row is None or node.node is None:
        names.error(f"there is no filter `{node.name}`{did_you_mean(node.name, list(FILTERS))}")
        return _nothing
    kwargs = {str(keyword.key): compile_expression_node(keyword.value, names) for keyword in node.kwargs}
    is_spread = node.dyn_args is not None or node.dyn_kwargs is not None
    wrong = "`*` and `**` are not allowed" if is_spread else row.refuses(len(node.args), tuple(kwargs))
    if wrong:
        names.error(f"the filter `{node.name}` cannot be used like this: {wrong}")
        return _nothing
    value = compile_expression_node(node.node, names.with_default() if node.name in {"default", "d"} else names)
    args = [compile_expression_node(arg, names) for arg in node.args]

    def evaluate(frame: RenderState) -> Json:
        given = {name: argument(frame) for name, argument in kwargs.items()}
        return frame.value(row.apply(frame, value(frame), *[argument(frame) for argument in args], **given))

    return evaluate


def _test(node: nodes.Test, names: Bindings) -> Evaluate:
    row = TESTS.get(node.name)
    if row is None or node.kwargs or node.dyn_args or node.dyn_kwargs or not row.takes(len(node.args)):
        names.error(f"there is no test `is {node.name}`{did_you_mean(node.name, list(TESTS))}")
        return _nothing
    is_about_presence = node.name in {"defined", "undefined"}
    value = compile_expression_node(node.node, names.with_default() if is_about_presence else names)
    args = [compile_expression_node(arg, names) for arg in node.args]
    return lambda frame: row.function(value(frame), *[argument(frame) for argument in args])


def _list(node: nodes.List | nodes.Tuple, names: Bindings) -> Evaluate:
    items = [compile_expression_node(item, names) for item in node.items]
    return lambda frame: [_present(item(frame)) for item in items]


def _dict(node: nodes.Dict, names: Bindings) -> Evaluate:
    pairs = [(compile_expression_node(p.key, names), compile_expression_node(p.value, names)) for p in node.items]
    return lambda frame: {_paid_for(frame, text_of(key(frame))): _present(value(frame)) for key, value in pairs}


def _paid_for(frame: RenderState, text: str) -> str:
    frame.charge(len(text))
    return text


def _present(value: Json) -> Json:
    """Return null for UNDEFINED, which JSON does not have."""
    return None if value is UNDEFINED else value


def _cond_expr(node: nodes.CondExpr, names: Bindings) -> Evaluate:
    test, first = compile_expression_node(node.test, names), compile_expression_node(node.expr1, names)
    second = _nothing if node.expr2 is None else compile_expression_node(node.expr2, names)
    return lambda frame: first(frame) if test(frame) else second(frame)


def _and(node: nodes.And, names: Bindings) -> Evaluate:
    left, right = compile_expression_node(node.left, names), compile_expression_node(node.right, names)
    return lambda frame: left(frame) and right(frame)


def _or(node: nodes.Or, names: Bindings) -> Evaluate:
    left = compile_expression_node(node.left, names.with_default())
    right = compile_expression_node(node.right, names)
    return lambda frame: left(frame) or right(frame)


def _not(node: nodes.Not, names: Bindings) -> Evaluate:
    value = compile_expression_node(node.node, names)
    return lambda frame: not value(frame)


def _concat(node: nodes.Concat, names: Bindings) -> Evaluate:
    parts = [compile_expression_node(part, names) for part in node.nodes]

    def evaluate(frame: RenderState) -> Json:
        values = [part(frame) for part in parts]
        if UNDEFINED in values:
            return UNDEFINED
        texts = [text_of(value) for value in values]
        frame.charge(sum(map(len, texts)))
        return "".join(texts)

    return evaluate


def _compare(node: nodes.Compare, names: Bindings) -> Evaluate:
    first = compile_expression_node(node.expr, names)
    rest = [(COMPARISONS[operand.op], compile_expression_node(operand.expr, names)) for operand in node.ops]

    def evaluate(frame: RenderState) -> Json:
        # Chained as in Python: evaluation of `1 < x < 9` stops at the first false comparison.
        left = first(frame)
        for holds, operand in rest:
            right = operand(frame)
            if not holds(frame, left, right):
                return False
            left = right
        return True

    return evaluate


def _binary(calculate: Callable[[RenderState, Json, Json], Json]) -> "Rule":
    def rule(node: nodes.BinExpr, names: Bindings) -> Evaluate:
        left, right = compile_expression_node(node.left, names), compile_expression_node(node.right, names)
        return lambda frame: calculate(frame, left(frame), right(frame))

    return rule


def _unary(calculate: Callable[[Json], Json]) -> "Rule":
    def rule(node: nodes.UnaryExpr, names: Bindings) -> Evaluate:
        operand = compile_expression_node(node.node, names)
        return lambda frame: calculate(operand(frame))

    return rule


Rule = Callable[[Any, Bindings], Evaluate]

_RULES: Final[Mapping[type[nodes.Node], Rule]] = {
    nodes.Add: _binary(add),
    nodes.And: _and,
    nodes.Compare: _compare,
    nodes.Concat: _concat,
    nodes.CondExpr: _cond_expr,
    nodes.Const: _const,
    nodes.Dict: _dict,
    nodes.Div: _binary(arithmetic("/", operator.truediv)),
    nodes.Filter: _filter,
    nodes.FloorDiv: _binary(arithmetic("//", operator.floordiv)),
    nodes.Getattr: _getattr,
    nodes.Getitem: _getitem,
    nodes.List: _list,
    nodes.Mod: _binary(arithmetic("%", operator.mod)),
    nodes.Name: _name,
    nodes.Neg: _unary(signed(operator.neg)),
    nodes.Not: _not,
    nodes.Or: _or,
    nodes.Pos: _unary(signed(operator.pos)),
    nodes.Sub: _binary(arithmetic("-", operator.sub)),
    nodes.Test: _test,
    nodes.Tuple: _list,
}
"""All expressions that templates can contain."""

_REFUSED: Final[Mapping[type[nodes.Node], str]] = {
    nodes.Call: "a template cannot call functions; write filters as `{{ value | upper }}`",
    # These make texts and numbers of any size from small values.
    nodes.Mul: "`*` is not allowed in a template",
    nodes.Pow: "`**` is not allowed in a template",
}
"""Error messages for expressions of Jinja that are not supported."""
