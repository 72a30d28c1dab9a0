"""Templates: errors at load, rendering, and limits."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import SandboxedEnvironment

from gateway.config.models.interpolated_text import InterpolatedText, Interpolation
from gateway.errors import ExecutionError
from gateway.json_types import ABSENT, Json, JsonObject
from gateway.language.templates.filters import FILTERS, TESTS
from gateway.language.templates.templating import compile_condition, compile_json, compile_text
from tests.executors.recording import make_scope, messages_of

ANY: JsonObject = {}
DECLARED: dict[str, JsonObject] = dict.fromkeys(("a", "b", "items", "name", "rows", "xs"), ANY)


def render(source: str, **variables: Json) -> str:
    scope = make_scope(DECLARED)
    template = compile_text(source, scope.at("text"))
    assert messages_of(scope) == []
    return template.render(variables)


def problems_in(source: str) -> list[str]:
    scope = make_scope(DECLARED)
    compile_text(source, scope)
    return messages_of(scope)


@pytest.mark.parametrize(
    ("source", "variables", "text"),
    [
        ("plain", {}, "plain"),
        ("last newline stays\n", {}, "last newline stays\n"),
        ("{{ a }}\n", {"a": "x"}, "x\n"),
        ("{{ a }}\r\n", {"a": "x"}, "x\r\n"),
        ("{{ a }}", {"a": True}, "true"),
        ("{{ a }}", {"a": False}, "false"),
        ("{{ a }}", {"a": 3.5}, "3.5"),
        ("{{ a }}", {"a": [1, {"b": None}]}, '[1,{"b":null}]'),
        ("{{ a }}", {"a": {"ü": "é"}}, '{"ü":"é"}'),
        ("{{ a }}", {"a": "{{ b }}"}, "{{ b }}"),
        ("{{ a | float | int(7) }}", {"a": "1e400"}, "7"),
        ("{{ a | float(7) }}", {"a": 10**400}, "7"),
        ("{{ a.keys }}", {"a": {"keys": "data"}}, "data"),
        ("{{ a.keys }}", {"a": {}}, ""),
        ("{{ a['x'].y[0] }}", {"a": {"x": {"y": ["deep"]}}}, "deep"),
        ("{{ a.__class__ }}{{ a.upper }}{{ xs.append }}", {"a": "x", "xs": []}, ""),
        ("{{ items }}", {"items": [1]}, "[1]"),
        ("{{ inputs.items }}", {"items": "here"}, "here"),
        ("{{ inputs | tojson }}", {"a": 1}, '{"a":1}'),
        ("{{ xs[1:] }}{{ xs[-1] }}{{ xs[7] }}", {"xs": [1, 2, 3]}, "[2,3]3"),
        ("{% if a %}yes{% elif b %}b{% else %}no{% endif %}", {"b": 1}, "b"),
        (
            "{% for x in xs %}{{ loop.index }}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}",
            {"xs": "ab"[:0]},
            None,
        ),
        (
            "{% for x in xs %}{{ loop.index }}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}",
            {"xs": [7, 8]},
            "17,28",
        ),
        ("{% for x in xs if x > 1 %}{{ x }}{% else %}none{% endfor %}", {"xs": [1]}, "none"),
        ("{% for k, v in a | items %}{{ k }}={{ v }};{% endfor %}", {"a": {"p": 1, "q": 2}}, "p=1;q=2;"),
        ("{% for x in xs %}{% set y = x %}{% endfor %}{% set y = 'out' %}{{ y }}", {"xs": [1]}, "out"),
        ("{% set a = a | default('d') %}{{ a }}", {}, "d"),
        ("{{ a | default('d') }}", {"a": None}, "d"),
        ("{{ a | upper | default('d') }}", {}, "d"),
        ("[{{ a }}{{ a ~ 'x' }}{{ a + 1 }}{{ a / 2 }}{{ -a }}{{ a.b.c }}]", {}, "[]"),
        ("[{{ b[1:] }}{% for x in a %}{{ x }}{% endfor %}]", {"b": 7}, "[]"),
        ("{% for k in a %}{{ k }}{{ k in a }}{% endfor %}{{ a == b }}", {"a": {"p": [1]}, "b": {}}, "ptruefalse"),
        ("{{ a | base64 }}{{ rows | selectattr('n') | length }}", {"a": "x", "rows": [{"n": 1}, {}]}, "eA==1"),
        (
            "{{ 'y' if a else 'n' }}{{ 'y' if a is defined else 'n' }}{{ a == b }}{{ a > 3 }}{{ a in xs }}",
            {},
            "nntruefalsefalse",
        ),
        ("{{ a is none }}", {"a": None}, "true"),
        ("{{ 7 // 2 + 7 % 4 - 1 }}{{ 7 / 2 }}", {}, "53.5"),
        ("{{ rows | map(attribute='n') | join(', ') }}", {"rows": [{"n": 1}, {"n": "x"}]}, "1, x"),
        ("{{ rows | sum(attribute='n') }}", {"rows": [{"n": 1}, {"n": 2}]}, "3"),
        ("{{ xs | sort | first }}{{ xs | unique | length }}", {"xs": ["b", 2, "a", 2]}, "23"),
        ("{{ xs | unique }}", {"xs": ["1", 1, "[1]", [1], "A", "a"]}, '["1",1,"[1]",[1],"A"]'),
        ("{{ a | truncate(9) }}", {"a": "one two three four"}, "one..."),
        ("{% raw %}{{ a }}{% endraw %}{# nothing #}", {}, "{{ a }}"),
    ],
)
def test_text_is_rendered(source: str, variables: JsonObject, text: str | None) -> None:
    if text is None:
        with pytest.raises(ExecutionError, match="`for` needs a list"):
            render(source, **variables)
    else:
        assert render(source, **variables) == text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ nmae }}", "`nmae` is not an input; did you mean `name`?"),
        ("{{ zzzzzz }}", "`zzzzzz` is not an input; available: a, b, items, name, rows, xs"),
        ("{{ inputs.nmae }}", "`nmae` is not an input; did you mean `name`?"),
        ("{{ inputs['nmae'] }}", "`nmae` is not an input; did you mean `name`?"),
        ("{{ inputs.caller }}", "an input cannot be named `caller`: it is the verified identity of the caller"),
        ("{{ loop.index }}", "`loop` is not an input"),
        ("{{ range(9) }}", "a template cannot call functions"),
        ("{{ a.upper() }}", "a template cannot call functions"),
        ("{{ cycler.__init__.__globals__ }}", "`cycler` is not an input"),
        ("{{ 'x' * 1000000000 }}", "`*` is not allowed in a template"),
        ("{{ 9 ** 9 ** 9 }}", "`**` is not allowed in a template"),
        ("{{ a | attr('x') }}", "unknown filter `attr`"),
        ("{{ a | uper }}", "unknown filter `uper`; did you mean `upper`?"),
        ("{{ a | replace('x') }}", "the filter `replace` cannot be used like this: missing a required argument: 'new'"),
        ("{{ a | join(*xs) }}", "the filter `join` cannot be used like this"),
        ("{{ a is callable }}", "unknown test `is callable`"),
        ("{% macro m() %}{% endmacro %}", "`{% macro %}` is not allowed in a template. Use if, for or set"),
        ("{% include 'x' %}", "`{% include %}` is not allowed"),
        ("{% import 'x' as y %}", "`{% import %}` is not allowed"),
        ("{% from 'x' import y %}", "`{% from %}` is not allowed"),
        ("{% extends 'x' %}", "`{% extends %}` is not allowed"),
        ("{% block x %}{% endblock %}", "`{% block %}` is not allowed"),
        ("{% filter upper %}x{% endfilter %}", "`{% filter %}` is not allowed"),
        ("{% set x %}y{% endset %}", "`{% set … endset %}` is not allowed"),
        ("{% with x = 1 %}{% endwith %}", "`{% with %}` is not allowed"),
        ("{% call x() %}{% endcall %}", "`{% call %}` is not allowed"),
        ("{% autoescape true %}{% endautoescape %}", "`{% autoescape %}` is not allowed"),
        ("{% for x in xs recursive %}{% endfor %}", "a recursive `for` is not allowed"),
        (
            "{% for a in xs %}{% for b in xs %}{% for c in xs %}{% endfor %}{% endfor %}{% endfor %}",
            "`for` can be nested at most 2 levels deep",
        ),
        ("{% set x, y = a %}", "`set` takes one name"),
        ("{{ a ", "invalid template: unexpected end of template"),
        ("x\n{{ a b }}\nx", "invalid template (line 2): expected token"),
        ("{{ " + "(" * 9000 + "a" + ")" * 9000 + " }}", "invalid template: nested too deeply"),
        ("{{ a" + " + a" * 9000 + " }}", "invalid template: nested too deeply"),
        (
            "".join(map(chr, range(0xE000, 0xE010))) + "{{ a | upper }}",
            "cannot contain all characters from U+E000 to U+E00F",
        ),
    ],
)
def test_invalid_template_is_a_load_error(source: str, message: str) -> None:
    assert any(message in problem for problem in problems_in(source)), problems_in(source)


def test_all_errors_of_a_template_are_reported() -> None:
    assert len(problems_in("{{ zzzzzz }}{{ b() }}{% do x %}")) == 1  # Jinja itself stops at an unknown tag
    assert len(problems_in("{{ zzzzzz }}{{ b() }}{{ 2 * 3 }}")) == 3


def test_names_are_only_known_in_their_scope() -> None:
    scope = make_scope({"path": {}})
    compile_text("{{ result }}", scope)
    assert messages_of(scope) == ["`result` is not an input; available: path"]
    elsewhere = make_scope({"path": {}}).naming("result", "inputs", "exit_code")
    template = compile_text("{{ result.x }} {{ exit_code }} {{ path }} {{ inputs }}", elsewhere)
    assert messages_of(elsewhere) == []
    assert template.render({"result": {"x": 1}, "exit_code": 0, "inputs": {"path": "/"}}) == '1 0 / {"path":"/"}'


def test_unlisted_inputs_are_read_from_the_mapping() -> None:
    scope = make_scope({"a": {}}, is_open=True)
    assert compile_text("{{ inputs['user-id'] }}", scope).render({"user-id": "u"}) == "u"
    compile_text("{{ other }}", scope)
    assert messages_of(scope) == [
        "`other` is not an input; for an input that the schema does not list, write `inputs['other']`"
    ]


def test_used_inputs_are_recorded() -> None:
    scope = make_scope(DECLARED)
    compile_text("{{ a }}{{ inputs.b }}", scope)
    compile_condition("name and xs", scope)
    assert scope.used == {"a", "b", "name", "xs"}
    compile_text("{{ inputs | tojson }}", scope)
    assert scope.used == set(DECLARED)


def test_interpolated_text_is_literal() -> None:
    scope = make_scope(DECLARED)
    secret = Interpolation("{{ a }}{% if %}\\' \ue0000\ue000", secret=True)
    whole = InterpolatedText((secret,))
    beside = InterpolatedText(("Bearer ", secret, " {{ a }} {{ b | default('", secret, "') }}{# ", secret, " #}"))
    assert compile_text(whole, scope).render({}) == secret.text
    assert compile_text(beside, scope).render({"a": "A"}) == f"Bearer {secret.text} A {secret.text}"
    assert compile_json([whole], scope)({}) == [secret.text]
    assert messages_of(scope) == []


def test_interpolation_in_an_expression_must_be_quoted() -> None:
    scope = make_scope(DECLARED)
    compile_text(InterpolatedText(("{{ ", Interpolation("a", secret=False), " }}")), scope)
    assert messages_of(scope) == ["invalid template: quote interpolations inside `{{ }}`: `'${env:NAME}'`"]


def test_missing_value_omits_the_element() -> None:
    scope = make_scope(DECLARED)
    template = compile_text("--name={{ name }}", scope)
    assert template.render_element({"name": ""}) == "--name="
    assert template.render_element({"name": None}) is None
    assert template.render_element({}) is None
    assert template.render({}) == "--name="
    assert compile_text("{% if name %}{{ name }}{% endif %}", scope).render_element({}) == ""
    assert compile_text("{{ name | default('x') }}", scope).render_element({}) == "x"


@pytest.mark.parametrize(
    ("source", "variables", "from_value"),
    [
        ("{{ a }}", {"a": "-x"}, True),
        ("-{{ a }}", {"a": "x"}, False),
        ("{{ a }}{{ b }}", {"a": "", "b": "-"}, True),
        ("{% if a %}-v{% endif %}", {"a": True}, False),
        ("{{ '-v' if a else '-q' }}", {}, False),
        ("{{ '-v' if a else b }}", {"b": "-"}, True),
        ("{{ '-' ~ a }}", {"a": "x"}, False),
        ("{{ a ~ '-' }}", {"a": ""}, True),
        ("{{ '' ~ a }}", {"a": "-"}, True),
    ],
)
def test_begins_with_value(source: str, variables: JsonObject, from_value: Json) -> None:
    rendering = compile_text(source, make_scope(DECLARED)).rendering(variables, in_element=True)
    assert rendering is not None
    assert rendering.begins_with_value is from_value


@pytest.mark.parametrize(
    ("value", "variables", "rendered"),
    [
        ({"n": "{{ a }}"}, {"a": 3}, {"n": 3}),
        ({"n": "{{ a }}"}, {"a": None}, {"n": None}),
        ({"n": "{{ a }}", "m": 1}, {}, {"m": 1}),
        (["{{ a }}", "x{{ a }}", {"k": ["{{ b }}"]}], {"b": [1, None]}, [{"k": [[1, None]]}]),
        (["x{{ a }}y"], {"a": None}, ["xnully"]),
        (
            {"deep": {"if": "{{ a | default(true) }}"}, "no": None, "t": True},
            {},
            {"deep": {"if": True}, "no": None, "t": True},
        ),
        ("{{ xs }}", {"xs": {"a": 1}}, {"a": 1}),
        ("{{ a }}", {}, ABSENT),
        ("{{ inputs }}", {"a": 1}, {"a": 1}),
    ],
)
def test_json_keeps_the_types_of_its_expressions(value: Json, variables: JsonObject, rendered: Json) -> None:
    scope = make_scope(DECLARED)
    template = compile_json(value, scope)
    assert messages_of(scope) == []
    assert template(variables) == rendered


def test_errors_in_json_are_reported_at_their_place() -> None:
    scope = make_scope(DECLARED)
    compile_json({"list": [{"x": "{{ nope_no }}"}]}, scope.at("json"))
    assert messages_of(scope) == ["json.list.0.x: `nope_no` is not an input; available: a, b, items, name, rows, xs"]


@pytest.mark.parametrize(
    ("source", "variables", "truth"),
    [("a", {"a": 1}, True), ("a", {}, False), ("a > 2 and not b", {"a": 3}, True), ("a == 'x'", {"a": "x"}, True)],
)
def test_expression_is_evaluated(source: str, variables: JsonObject, truth: Json) -> None:
    scope = make_scope(DECLARED)
    assert compile_condition(source, scope)(variables) is truth
    assert messages_of(scope) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ a }}", "this is already an expression. Write it without `{{ }}`"),
        ("a b", "invalid template: expected the end of the expression"),
        ("nmae", "`nmae` is not an input; did you mean `name`?"),
        ("", "invalid template: unexpected 'end of template'"),
    ],
)
def test_invalid_expression_is_a_load_error(source: str, message: str) -> None:
    scope = make_scope(DECLARED)
    compile_condition(source, scope)
    assert messages_of(scope) == [message]


@pytest.mark.parametrize(("source", "text"), [("{{ inputs.result }}", "the input"), ("{{ result }}", "the output")])
def test_input_and_scope_name_are_distinct(source: str, text: str) -> None:
    scope = make_scope({"result": ANY}, names=("result", "inputs"))
    template = compile_text(source, scope.at("text"))
    assert template.render({"result": "the output", "inputs": {"result": "the input"}}) == text


@pytest.mark.parametrize(
    ("source", "variables"),
    [
        ("{{ a }}", {"a": "x" * (2**20 + 1)}),
        ("{{ a }}{{ a }}", {"a": "x" * (2**20 // 2 + 1)}),
        ("{{ a }}", {"a": "ü" * (2**19 + 1)}),
        ("{% for x in xs %}{{ a }}{% endfor %}", {"xs": [0] * 2000, "a": "x" * 1000}),
    ],
)
def test_text_over_one_mebibyte_is_an_error(source: str, variables: JsonObject) -> None:
    with pytest.raises(ExecutionError, match=r"^text: the text would exceed 1 MiB$"):
        render(source, **variables)


@pytest.mark.parametrize(
    ("source", "variables"),
    [
        ("{% for x in xs %}{% for y in xs %}{% endfor %}{% endfor %}", {"xs": [0] * 10_000}),
        (
            "{% for x in xs %}{{ a | upper | truncate(1, true, '') }}{% endfor %}",
            {"xs": [0] * 50_000, "a": "x" * 10_000},
        ),
        ("{{ a | replace('x', a) | length }}", {"a": "x" * 100_000}),
        ("{{ xs | join(a) | length }}", {"xs": [0] * 100_000, "a": "x" * 10_000}),
        ("{{ a | indent(a) | length }}", {"a": "\n" * 100_000}),
        ("{% set b = a %}" + "{% set b = b ~ b %}" * 40 + "{{ b | length }}", {"a": "x" * 100}),
        ("{% set b = a %}" + "{% set b = b + b %}" * 40 + "{{ b | length }}", {"a": [0] * 100}),
        (
            "{% for x in xs %}{% if a in rows %}{% endif %}{% endfor %}",
            {"xs": [0] * 9999, "rows": [[[0] * 999] * 9] * 99, "a": 1},
        ),
        ("{{ xs | map(attribute=a) | length }}", {"xs": [{}] * 10_000, "a": "a." * 500_000}),
        ("{{ xs | sort(attribute=a) | length }}", {"xs": [{}] * 10_000, "a": "a." * 500_000}),
        ("{{ xs | selectattr(a) | length }}", {"xs": [{}] * 10_000, "a": "a." * 500_000}),
        (
            "{% for x in xs %}{% if rows | max %}{% endif %}{% endfor %}",
            {"xs": [0] * 9999, "rows": [[[0] * 1000] * 100]},
        ),
        ("{% for x in xs %}{% if {rows: 1} %}{% endif %}{% endfor %}", {"xs": [0] * 9999, "rows": [[0] * 100_000]}),
    ],
)
def test_rendering_work_is_bounded(source: str, variables: JsonObject) -> None:
    with pytest.raises(ExecutionError, match=r"^text: the template is too expensive for these arguments"):
        render(source, **variables)


@pytest.mark.parametrize(
    ("source", "variables", "message"),
    [
        ("{{ a + b }}", {"a": 1, "b": "x"}, "`\\+` cannot add text to a number. Use `~` to join text"),
        ("{{ a - b }}", {"a": 1, "b": "x"}, "`-` needs two numbers"),
        ("{{ '%s' % a }}", {"a": 1}, "`%` needs two numbers, not text and a number"),
        ("{{ -a }}", {"a": "x"}, "the operand of `\\+` or `-` must be a number, not text"),
        ("{{ a / 0 }}", {"a": 1}, "division by zero"),
        ("{{ a < b }}", {"a": 1, "b": "x"}, "a number cannot be compared with text"),
        ("{{ a in b }}", {"a": 1, "b": 1}, "`in` needs text, a list or an object, not a number"),
        ("{{ a | join }}", {"a": 1}, "expected a list, not a number"),
        ("{{ a | abs }}", {"a": "x"}, "expected a number, not text"),
        ("{{ a | items }}", {"a": 1}, "expected an object, not a number"),
        ("{% for x, y in xs %}{% endfor %}", {"xs": [1]}, "`for x, y` needs lists with 2 items each"),
        ("{{ xs[::a] }}", {"xs": [1], "a": 0}, "slice step cannot be zero"),
        ("{{ xs[b:] }}", {"xs": [1], "b": "x"}, "slice indices must be integers"),
    ],
)
def test_value_of_a_wrong_type_is_an_execution_error(source: str, variables: JsonObject, message: str) -> None:
    with pytest.raises(ExecutionError, match=f"^text: .*{message}"):
        render(source, **variables)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)


@given(name=st.sampled_from(sorted(FILTERS)), value=JSON, arguments=st.lists(JSON, max_size=2))
def test_filters_only_raise_execution_errors(name: str, value: Json, arguments: list[Json]) -> None:
    if FILTERS[name].refuses(len(arguments), ()):
        return
    listed = ", ".join(f"xs[{index}]" for index in range(len(arguments)))
    with suppress(ExecutionError):
        assert len(render(f"{{{{ a | {name}({listed}) }}}}", a=value, xs=arguments)) < 2**20


@given(name=st.sampled_from(sorted(TESTS)), value=JSON)
def test_template_tests_never_raise(name: str, value: Json) -> None:
    if name != "divisibleby":
        assert render(f"{{{{ a is {name} }}}}", a=value) in {"true", "false"}


WORDS = st.text("ab -\n", max_size=6)
NUMBERS = st.integers(-9, 9)


@pytest.mark.parametrize(
    "source",
    [
        "{{ a }}|{{ xs | join('-') }}|{{ xs | length }}",
        "{% for x in xs %}{{ loop.index0 }}/{{ loop.revindex }}{{ ', ' if not loop.last }}{% else %}-{% endfor %}",
        "{% if a and xs %}{{ a | upper | replace('A', b) }}{% elif b or n %}{{ n // 2 - n % 3 }}{% endif %}",
        "{% set t = a ~ b %}{% for x in xs if x in t %}{% set t = x %}{{ t }}{% endfor %}{{ t }}",
        "{{ a | title }}|{{ a | capitalize }}|{{ a | trim }}|{{ a | indent(2) }}|{{ a | truncate(4, true, '.') }}",
        "{{ n < 3 <= n + 3 }}".replace("{{", "{{ 'y' if").replace("}}", "else 'n' }}"),
        "{{ xs | first | default('none') }}{{ xs | last | d('none') }}{{ xs | reverse | join }}{{ xs[1:3] | join }}",
        "{{ a | int(4) }}{{ n | abs }}{{ -n }}{{ 'yes' if n is even else 'no' }}{{ 1 if a == b else 2 }}",
        "{%- if a -%} {{ b }} {%- endif %} {{ xs | sort | join(',') }}{{ xs | unique | join(',') }}{{ a | urlencode }}",
        "{{ 'x' if 'b' not in a }}{{ not a and 1 or 2 }}",
        "{{ n | round }}{{ n | round(-1) }} {{ (n / 4) | round(1) }} {{ (n ~ '.7') | int }} {{ (a ~ '1e2') | int(7) }}",
    ],
)
@given(a=WORDS, b=WORDS, n=NUMBERS, xs=st.lists(st.text("ab", min_size=1, max_size=3), max_size=5))
def test_rendering_equals_jinja(source: str, a: str, b: str, n: int, xs: list[str]) -> None:
    variables: dict[str, Any] = {"a": a, "b": b, "n": n, "xs": xs}
    scope = make_scope(dict.fromkeys(variables, ANY))
    ours = compile_text(source, scope).render(variables)
    theirs = SandboxedEnvironment(keep_trailing_newline=True).from_string(source).render(variables)
    assert messages_of(scope) == []
    assert ours == theirs


def test_value_of_a_single_expression_keeps_its_type() -> None:
    scope = make_scope(DECLARED)
    assert compile_text("{{ xs }}", scope).value({"xs": [1]}) == [1]
    assert compile_text(" {{ xs }}", scope).value({"xs": [1]}) == " [1]"
    assert compile_text("{{ xs }}", scope).value({}) is ABSENT
