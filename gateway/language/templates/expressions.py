"""Compiles Jinja expressions into closures over JSON values.

Only Jinja's parser is used, because Jinja's compiler generates Python code, and Jinja's sandbox does not limit time or
memory. `_RULES` lists all allowed nodes, and `a.b` never reads an attribute of a Python object.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from inspect import signature
from typing import Any, Final

import msgspec
from jinja2 import nodes
from msgspec.structs import replace

from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.errors import ExecutionError
from gateway.json_types import ABSENT, Json
from gateway.language.scope import Scope
from gateway.language.templates.caller import CALLER, CLAIMS, claim_named_by, missing_claim, use_fact
from gateway.language.templates.filters import FILTERS, TESTS, member
from gateway.language.templates.render_state import RenderState, cost_of, kind_of, text_of

Evaluate = Callable[[RenderState], Json]

ALL_INPUTS: Final = "inputs"


class Bindings(msgspec.Struct, frozen=True, kw_only=True):
    scope: Scope
    bound: set[str] = msgspec.field(default_factory=set)
    loops: int = 0
    has_default: bool = False
    """Whether a missing claim of the caller is undefined instead of an error."""

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
        hint = did_you_mean(name, known)
        if not hint and self.scope.inputs.is_open:
            hint = f"; for an input that the schema does not list, write `{ALL_INPUTS}['{name}']`"
        listed = ", ".join(known) or "none"
        self.error(f"`{name}` is not an input{hint or '; available: ' + listed}")


def compile_expression_node(node: nodes.Node, names: Bindings) -> Evaluate:
    """Return a function that evaluates `node`. Errors are reported, and the function then returns ABSENT."""
    rule = _RULES.get(type(node))
    if rule is None:
        names.error(_REFUSED.get(type(node), f"`{type(node).__name__}` expressions are not allowed in a template"))
        return _nothing
    return rule(node, names)


def is_from_file(node: nodes.Node) -> bool:
    """Whether the value of `node` always starts with text from the configuration file."""
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
    """Return the name of the input if an expression only reads one input, otherwise None."""
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
    return ABSENT


def _const(node: nodes.Const, _names: Bindings) -> Evaluate:
    # Treat null like a null from a caller: empty in text, null in JSON.
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
        # If the branch with the `set` has not run, the name can still be an input.
        return frame.locals[name] if name in frame.locals else otherwise(frame)

    return evaluate


def _free_name(name: str, scope: Scope) -> Evaluate:
    if name == ALL_INPUTS:
        scope.use_all()
        return _all_inputs(scope)
    if name in scope.names:
        return lambda frame: frame.value(frame.variables.get(name, ABSENT))
    return _input(name, scope)


def _all_inputs(scope: Scope) -> Evaluate:
    inputs, hidden = (_nested_inputs, {CALLER}) if ALL_INPUTS in scope.names else (_variables, {CALLER, *scope.names})

    def evaluate(frame: RenderState) -> Json:
        values = inputs(frame)
        return values if hidden.isdisjoint(values) else {name: values[name] for name in values if name not in hidden}

    return evaluate


def _input(name: str, scope: Scope) -> Evaluate:
    scope.used.add(name)
    return _reading(name, _nested_inputs if ALL_INPUTS in scope.names else _variables)


@lru_cache(maxsize=1024)  # many templates read inputs of the same name
def _reading(name: str, inputs: Evaluate) -> Evaluate:
    return lambda frame: frame.value(inputs(frame).get(name, ABSENT))


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
    is_nested, has_default = claim_named_by(owner) is not None, names.has_default
    find_owner = compile_expression_node(owner, names) if is_nested else _caller_fact(nodes.Const(CLAIMS), names, claim)

    def evaluate(frame: RenderState) -> Json:
        value = member(find_owner(frame), find_key(frame))
        if value is ABSENT and not has_default:
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
            return ABSENT
        frame.charge(len(value))
        return value[slice(*(None if bound is ABSENT else bound for bound in (start(frame), stop(frame), step(frame))))]

    return evaluate


def _filter(node: nodes.Filter, names: Bindings) -> Evaluate:
    row = FILTERS.get(node.name)
    if row is None or node.node is None:
        names.error(f"unknown filter `{node.name}`{did_you_mean(node.name, list(FILTERS))}")
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
    function, _ = TESTS.get(node.name, (None, ""))
    is_simple = not (node.kwargs or node.dyn_args or node.dyn_kwargs)
    if function is None or not is_simple or len(signature(function).parameters) != 1 + len(node.args):
        names.error(f"unknown test `is {node.name}`{did_you_mean(node.name, list(TESTS))}")
        return _nothing
    is_about_presence = node.name in {"defined", "undefined"}
    value = compile_expression_node(node.node, names.with_default() if is_about_presence else names)
    args = [compile_expression_node(arg, names) for arg in node.args]
    return lambda frame: function(value(frame), *[argument(frame) for argument in args])


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
    # JSON has no undefined values.
    return None if value is ABSENT else value


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
        if ABSENT in values:
            return ABSENT
        texts = [text_of(value) for value in values]
        frame.charge(sum(map(len, texts)))
        return "".join(texts)

    return evaluate


def _compare(node: nodes.Compare, names: Bindings) -> Evaluate:
    first = compile_expression_node(node.expr, names)
    rest = [(_COMPARISONS[operand.op], compile_expression_node(operand.expr, names)) for operand in node.ops]

    def evaluate(frame: RenderState) -> Json:
        # Chained as in Python: `1 < x < 9` stops at the first false comparison.
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


def _signed(calculate: Callable[[Any], Json]) -> "Rule":
    def rule(node: nodes.UnaryExpr, names: Bindings) -> Evaluate:
        operand = compile_expression_node(node.node, names)

        def evaluate(frame: RenderState) -> Json:
            value = operand(frame)
            if value is not ABSENT and kind_of(value) != "a number":
                raise ExecutionError(f"the operand of `+` or `-` must be a number, not {kind_of(value)}")
            return value if value is ABSENT else calculate(value)

        return evaluate

    return rule


def _equal(frame: RenderState, left: Json, right: Json) -> bool:
    frame.charge(cost_of(left))
    return bool(left == right)


def _contains(frame: RenderState, item: Json, container: Json) -> bool:
    if container is ABSENT or item is ABSENT:
        return False
    if not isinstance(container, str | list | Mapping):
        raise ExecutionError(f"`in` needs text, a list or an object, not {kind_of(container)}")
    if isinstance(container, str):
        frame.charge(len(container))
        return isinstance(item, str) and item in container
    if isinstance(container, Mapping):
        return isinstance(item, str) and item in container
    frame.charge(cost_of(container))
    return item in container


def _ordered(holds: Callable[[Any, Any], bool]) -> Callable[[RenderState, Json, Json], bool]:
    def compare(frame: RenderState, left: Json, right: Json) -> bool:
        if left is ABSENT or right is ABSENT:
            return False
        if kind_of(left) != kind_of(right) or not isinstance(left, str | int | float):
            raise ExecutionError(f"{kind_of(left)} cannot be compared with {kind_of(right)}")
        frame.charge(cost_of(left))
        return holds(left, right)

    return compare


_COMPARISONS: Final[Mapping[str, Callable[[RenderState, Json, Json], bool]]] = {
    "eq": _equal,
    "ne": lambda frame, left, right: not _equal(frame, left, right),
    "lt": _ordered(operator.lt),
    "lteq": _ordered(operator.le),
    "gt": _ordered(operator.gt),
    "gteq": _ordered(operator.ge),
    "in": _contains,
    "notin": lambda frame, item, container: not _contains(frame, item, container),
}


def _add(frame: RenderState, left: Json, right: Json) -> Json:
    if left is ABSENT or right is ABSENT:
        return ABSENT
    if kind_of(left) != kind_of(right) or kind_of(left) not in {"a number", "text", "a list"}:
        raise ExecutionError(f"`+` cannot add {kind_of(right)} to {kind_of(left)}. Use `~` to join text")
    if isinstance(left, str | list):
        frame.charge(len(left) + len(right))
    return left + right


def _arithmetic(sign: str, calculate: Callable[[Any, Any], Json]) -> Callable[[RenderState, Json, Json], Json]:
    def evaluate(_frame: RenderState, left: Json, right: Json) -> Json:
        if left is ABSENT or right is ABSENT:
            return ABSENT
        # For text, `%` would be formatting, and `%1000000000d` would create a gigabyte.
        if {kind_of(left), kind_of(right)} != {"a number"}:
            raise ExecutionError(f"`{sign}` needs two numbers, not {kind_of(left)} and {kind_of(right)}")
        return calculate(left, right)

    return evaluate


Rule = Callable[[Any, Bindings], Evaluate]

_RULES: Final[Mapping[type[nodes.Node], Rule]] = {
    nodes.Add: _binary(_add),
    nodes.And: _and,
    nodes.Compare: _compare,
    nodes.Concat: _concat,
    nodes.CondExpr: _cond_expr,
    nodes.Const: _const,
    nodes.Dict: _dict,
    nodes.Div: _binary(_arithmetic("/", operator.truediv)),
    nodes.Filter: _filter,
    nodes.FloorDiv: _binary(_arithmetic("//", operator.floordiv)),
    nodes.Getattr: _getattr,
    nodes.Getitem: _getitem,
    nodes.List: _list,
    nodes.Mod: _binary(_arithmetic("%", operator.mod)),
    nodes.Name: _name,
    nodes.Neg: _signed(operator.neg),
    nodes.Not: _not,
    nodes.Or: _or,
    nodes.Pos: _signed(operator.pos),
    nodes.Sub: _binary(_arithmetic("-", operator.sub)),
    nodes.Test: _test,
    nodes.Tuple: _list,
}

_REFUSED: Final[Mapping[type[nodes.Node], str]] = {
    nodes.Call: "a template cannot call functions. Write filters as `{{ value | upper }}`",
    # These create large values from small ones.
    nodes.Mul: "`*` is not allowed in a template",
    nodes.Pow: "`**` is not allowed in a template",
}
