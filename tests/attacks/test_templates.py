"""Templates treat caller input as data. It is never parsed or used as an attribute name, and rendering is bounded."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.json_types import Json
from tests.attacks.payloads import SHELL, TEXTS
from tests.attacks.target import Plan, Target
from tests.messages import MODERN, modern_request

PLAN = Plan(
    file=r"""
    tools:
      say:
        description: Say a text.
        input: {text: string}
        content: [{text: "<{{ text }}>"}]
      say_all:
        description: Print every input.
        input_schema: {type: object}
        content: [{text: "{% for name, value in inputs | items %}{{ name }}={{ value }};{% endfor %}"}]
      member:
        description: Print a member by name.
        input: {value: {}, name: string}
        content: [{text: "{{ value[name] | default('nothing') }}"}]
      filtered:
        description: Print a text with filters.
        input: {text: string}
        content: [{text: "{{ text | upper | lower | title | trim | replace('a', 'a') | truncate(50) | tojson }}"}]
      looped:
        description: An item of each of two lists.
        input: {xs: {type: array}, ns: {type: array, items: {type: integer}}}
        content: [{text: "{% for x in xs %}{{ x }}{{ ns[loop.index0] }}{% endfor %}"}]
      crossed:
        description: Every pair.
        input: {xs: {type: array}}
        content: [{text: "{% for x in xs %}{% for y in xs %}{{ x == y }}{% endfor %}{% endfor %}"}]
      replaced:
        description: Replace a text by another one.
        input: {text: string, old: string, new: string}
        content: [{text: "{{ text | replace(old, new) }}"}]
      joined:
        description: Join a list.
        input: {xs: {type: array}, between: string}
        content: [{text: "{{ xs | join(between) }}"}]
      sorted:
        description: Sort a list by a member that the caller chooses.
        input: {xs: {type: array}, by: string}
        content: [{text: "{{ xs | sort(attribute=by) | tojson }}"}]
      padded:
        description: Indent, truncate and round by the caller's numbers.
        input: {text: string, n: number}
        content: [{text: "{{ text | indent(n) }}{{ text | truncate(n) }}{{ n | round(n) }}{{ text[::n] }}"}]
      reckoned:
        description: Reckon.
        input: {a: number, b: number}
        content: [{text: "{{ a + b }} {{ a - b }} {{ a / b }} {{ a // b }} {{ a % b }} {{ a < b }}"}]
      result:
        description: The output is data for its template, too.
        input: {text: string}
        shell: {command: [cat], stdin: "{{ text }}"}
        output: {template: "[{{ result }}]"}
      confirmed:
        description: Print an interpolated text, and one that was given.
        input: {text: string}
        content: [{text: "${env:HOSTILE} {{ text }}"}]
    prompts:
      say:
        description: A prompt.
        arguments: {text: {required: true}}
        messages: [{user: "<{{ text }}>"}, {user: {text: "{{ text }}"}}, {user: {resource: "x:///{text}"}}]
    resources:
      any:
        uri: "x:///{text}"
        text: "<{{ text }}>"
    """,
    environment={"HOSTILE": "{{ 7 * 7 }}{% for x in y %}${env:HOME}"},
)

INJECTIONS = (
    "{{ 7 * 7 }}",
    "{{7*'7'}}",
    "${7*7}",
    "#{7*7}",
    "<%= 7*7 %>",
    "{% print(7*7) %}",
    "{% for x in range(10**9) %}{% endfor %}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{% set x = cycler.__init__.__globals__.os.popen('touch @payload_file@').read() %}{{ x }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ self.__init__.__globals__.__builtins__.__import__('os').system('touch @payload_file@') }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ inputs | attr('__class__') }}",
    "{{ 'x' * 10 ** 9 }}",
    "{{ '%s' % x }}{{ '{0.__class__}'.format(x) }}",
    "{0.__class__}",
    "{text.__class__}",
    "%(text)s",
    "%1000000000d",
    "{:>1000000000}",
    "}}{{ 1 }}",
    "-%}{{ 1 }}",
    "\ue0000\ue000",
    "\ue0010\ue001",
    "${env:SEEDED_HEADER}",
    "${file:plain.secret}",
    "$${env:SEEDED_HEADER}",
)


READABLE = tuple(text for text in TEXTS + SHELL if not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text))


@pytest.mark.parametrize("text", INJECTIONS + READABLE)
def test_value_is_never_a_template(target: Target, text: str) -> None:
    assert target.client.call("say", {"text": text})["content"][0]["text"] == f"<{text}>"
    prompt = target.client.modern("prompts/get", {"name": "say", "arguments": {"text": text}})
    if prompt.code is None:  # the resource's URI does not accept dot segments or empty text
        messages = prompt.json["result"]["messages"]
        assert [message["content"]["text"] for message in messages[:2]] == [f"<{text}>", text]
        assert messages[2]["content"]["resource"]["text"] == f"<{text}>"


@pytest.mark.parametrize("text", INJECTIONS)
def test_output_of_a_command_is_never_a_template(target: Target, text: str) -> None:
    assert target.client.text("result", {"text": text}) == f"[{text}]"


def test_interpolated_value_is_never_a_template(target: Target) -> None:
    assert target.client.text("confirmed", {"text": "x"}) == "{{ 7 * 7 }}{% for x in y %}${env:HOME} x"


@given(text=st.text(alphabet=st.sampled_from("{}%#$_.|[]()'\"ab\ue000\ue00101 \n"), max_size=60))
def test_text_of_brackets_and_marks_is_never_a_template(target: Target, text: str) -> None:
    assert target.client.text("say", {"text": text}) == f"<{text}>"
    assert target.client.text("result", {"text": text}) == f"[{text}]"


@pytest.mark.parametrize(
    "name",
    [
        *("__class__", "__init__", "__dict__", "__globals__", "keys", "items", "get", "upper", "format", "append"),
        *("pop", "__proto__", "constructor", "toString", "0", "-1"),
    ],
)
def test_member_name_of_a_caller_is_data_and_not_an_attribute(target: Target, name: str) -> None:
    for value in ({}, {"other": 1}, [], [1, 2], "text", 1, 1.5, True):
        assert target.client.text("member", {"value": value, "name": name}) == "nothing"
    assert target.client.text("member", {"value": {name: "found"}, "name": name}) == "found"


def test_names_of_inputs_are_data(target: Target) -> None:
    for name in ("__class__", "inputs", "loop", "self", "{{ 1 }}", "items", "", "a b", "result"):
        assert target.client.text("say_all", {name: "x"}) == f"{name}=x;"


LARGE: dict[str, tuple[str, dict[str, Json]]] = {
    "a number per iteration": ("looped", {"xs": [""] * 100_000, "ns": [1.0] * 400_000}),
    "every pair": ("crossed", {"xs": [0] * 20_000}),
    "every pair of large items": ("crossed", {"xs": ["x" * 1000] * 1000}),
    "growing text": ("replaced", {"text": "x" * 200_000, "old": "x", "new": "y" * 200_000}),
    "a separator between all characters": ("replaced", {"text": "x" * 400_000, "old": "", "new": "y" * 400_000}),
    "a long separator": ("joined", {"xs": [""] * 100_000, "between": "x" * 100_000}),
    "a deeply nested member": ("sorted", {"xs": [{}] * 50_000, "by": "a." * 400_000}),
    "an indent for every line": ("padded", {"text": "\n" * 500_000, "n": 100}),
    "many names": ("say_all", {str(number): "x" * 10 for number in range(100_000)}),
}


@pytest.mark.parametrize(("tool", "arguments"), LARGE.values(), ids=list(LARGE))
def test_rendering_time_is_bounded(target: Target, tool: str, arguments: dict[str, Json]) -> None:
    """Without limits, each of these would take minutes or gigabytes."""
    assert "content" in target.client.call(tool, arguments)
    assert target.client.text("say", {"text": "still here"}) == "<still here>"


ODD_NUMBERS = (0, -0.0, 1, -1, 1e308, -1e308, 5e-324, 2**53 + 1, 2**63, -(2**63), 2**64, 10**400, 0.1)


@pytest.mark.parametrize("number", ODD_NUMBERS)
@pytest.mark.build
def test_numbers_of_any_size_are_computed_or_rejected(target: Target, number: float) -> None:
    for tool, arguments in (
        ("reckoned", {"a": number, "b": 0}),
        ("reckoned", {"a": number, "b": number}),
        ("reckoned", {"a": 1, "b": number}),
        ("padded", {"text": "some text\nof two lines", "n": number}),
    ):
        message = json.dumps(modern_request("tools/call", {"name": tool, "arguments": arguments})).encode()
        fields = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", tool)]
        assert target.client.post(message, fields=fields).status in {200, 400}
    assert target.client.text("reckoned", {"a": 7, "b": 2}) == "9 5 3.5 3 1 false"
