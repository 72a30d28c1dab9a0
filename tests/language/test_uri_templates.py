"""URI templates: errors at load, and expansion."""

import pytest

from gateway.config.models.interpolated_text import InterpolatedText, Interpolation
from gateway.json_types import Json
from gateway.language.uris.templates import compile_uri_template
from tests.executors.recording import make_scope, messages_of


def expand(template: str, **values: Json) -> str:
    scope = make_scope({name: {} for name in values})
    compiled = compile_uri_template(template, scope)
    assert messages_of(scope) == []
    return compiled(values)


RFC_VALUES: dict[str, Json] = {
    "count": ["one", "two", "three"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "v": "6",
    "x": "1024",
    "y": "768",
    "empty": "",
    "undef": None,
}


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("{hello}", "Hello%20World%21"),
        ("{half}", "50%25"),
        ("{+base}index", "http://example.com/home/index"),
        ("{+half}", "50%25"),
        ("{+path}/here", "/foo/bar/here"),
        ("{#path,x}/here", "#/foo/bar,1024/here"),
        ("{#hello}", "#Hello%20World!"),
        ("{/var:1,var}", "/v/value"),
        ("{/list*}", "/red/green/blue"),
        ("{;x,y,empty}", ";x=1024;y=768;empty"),
        ("{?x,y,undef}", "?x=1024&y=768"),
        ("{?list*}", "?list=red&list=green&list=blue"),
        ("{?list}", "?list=red,green,blue"),
        ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
        ("X{.list*}", "X.red.green.blue"),
        ("{+keys}", "comma,,,dot,.,semi,;"),
        ("{x,empty,y}", "1024,,768"),
    ],
)
def test_expansion_follows_rfc_6570(template: str, uri: str) -> None:
    assert expand(template, **RFC_VALUES) == uri


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (False, "false"), (7, "7"), (3.0, "3"), (2.5, "2.5"), ({"a": [1]}, "a,%5B1%5D")],
)
def test_values_are_formatted_as_json(value: Json, text: str) -> None:
    assert expand("{v}", v=value) == text


def test_reserved_expansion_keeps_encoded_octets() -> None:
    assert expand("{+uri}", uri="docs:///a%20b c%zz") == "docs:///a%20b%20c%25zz"


def test_literals_outside_ascii_are_percent_encoded() -> None:
    assert expand("/ü/{x}", x="ü") == "/%C3%BC/%C3%BC"


def test_interpolated_text_is_never_an_expression() -> None:
    source = InterpolatedText(("/", Interpolation("{id} 5%", secret=False), "/{id}"))
    scope = make_scope({"id": {}})
    assert compile_uri_template(source, scope)({"id": "1"}) == "/%7Bid%7D%205%25/1"
    assert messages_of(scope) == []


def test_interpolation_cannot_build_an_expression() -> None:
    scope = make_scope({"id": {}})
    compile_uri_template(InterpolatedText(("/{", Interpolation("id", secret=False), "}")), scope)
    assert messages_of(scope) == ["character 2: `{` without `}`; write a literal brace as %7B"]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("/{{ id }}", "character 2: URLs cannot contain Jinja. Write `{id}` here"),
        ("/{% if id %}", "character 2: URLs cannot contain Jinja. Write `{if}` here"),
        ("/{id", "character 2: `{` without `}`; write a literal brace as %7B"),
        ("/id}", "character 4: `}` without `{`; write a literal brace as %7D"),
        ("/{=id}", "character 2: `=id` is not a variable; expected a name of letters, digits and `_`, such as {id}"),
        (
            "/{a-b}",
            "character 2: `a-b` is not a variable; expected a name of letters, digits and `_`, such as {id}",
        ),
        ("/{}", "character 2: `` is not a variable; expected a name of letters, digits and `_`, such as {id}"),
        ("/a b", "character 3: ` ` is not allowed in a URI. Write %20"),
        ("/100%", "character 5: `%` is not allowed in a URI. Write %25"),
        ("/{idd}", "`idd` is not an input; did you mean `id`?"),
        ("/{other}", "`other` is not an input; available: id"),
    ],
)
def test_invalid_uri_template_is_a_load_error(template: str, message: str) -> None:
    scope = make_scope({"id": {}})
    compile_uri_template(template, scope)
    assert messages_of(scope) == [message]


def test_inputs_of_a_uri_template_are_recorded() -> None:
    scope = make_scope({"a": {}, "b": {}, "c": {}})
    compile_uri_template("/{a}{?b}", scope)
    assert scope.used == {"a", "b"}
