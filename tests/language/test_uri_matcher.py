"""Matching of URIs against templates."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.language.uris.matcher import UriMatcher, compile_matcher
from gateway.language.uris.templates import compile_uri_template
from tests.executors.recording import make_scope, messages_of


def matcher(template: str) -> UriMatcher:
    scope = make_scope()
    compiled = compile_matcher(template, scope)
    assert messages_of(scope) == []
    return compiled


@pytest.mark.parametrize(
    ("template", "uri", "variables"),
    [
        ("a://x", "a://x", {}),
        ("a://x", "a://y", None),
        ("a://{id}", "a://1", {"id": "1"}),
        ("a://{id}", "a://", {"id": ""}),
        ("a://{id}", "a://1/2", None),
        ("a://{id}", "a://1?x=2", None),
        ("a://{id}", "a://my file", {"id": "my file"}),
        ("a://{id}.json", "a://b.json.json", {"id": "b.json"}),
        ("a://{id}.json", "a://b.xml", None),
        ("a://{a}-{b}", "a://1-2-3", {"a": "1", "b": "2-3"}),
        ("a:///{+path}", "a:///x/y%20z", {"path": "x/y z"}),
        ("a:///{+path}/{name}", "a:///x/y/z", {"path": "x/y", "name": "z"}),
        ("a:///{+path}.md", "a:///x.md/y.md", {"path": "x.md/y"}),
        ("a://x{/p}", "a://x", {}),
        ("a://x{/p}", "a://x/1", {"p": "1"}),
        ("a://x{/p,q}", "a://x/1/2", {"p": "1", "q": "2"}),
        ("a://x{/p,q}", "a://x/1/2/3", None),
        ("a://x{?a,b}", "a://x", {}),
        ("a://x{?a,b}", "a://x?b=2&a=1", {"a": "1", "b": "2"}),
        ("a://x{?a,b}", "a://x?c=2", None),
        ("a://x{?a,b}", "a://x?a=1&a=2", None),
        ("proxy://{+url}", "proxy://https://h/p?q=1", {"url": "https://h/p?q=1"}),
    ],
)
def test_uri_is_matched(template: str, uri: str, variables: dict[str, str] | None) -> None:
    assert matcher(template).match(uri) == variables


@pytest.mark.parametrize(
    ("encoded", "value"),
    [("%252e", "%2e"), ("a%2Fb", "a/b"), ("%C3%BC", "ü"), ("a+b", "a+b"), ("%ff", None), ("%4", None), ("100%", None)],
)
def test_values_are_percent_decoded_exactly_once(encoded: str, value: str | None) -> None:
    assert matcher("a://{v}").match(f"a://{encoded}") == (None if value is None else {"v": value})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a://{x}{y}", "`{x}` and `{y}` need literal text between them"),
        ("a://{+x}{/y}", "`{+x}` and `{/y}` need literal text between them"),
        ("a://h{?x}b", "`{?x}` can only be matched at the end, not before `b`"),
        ("a://h{/x}/b", "`{/x}` can only be matched at the end, not before `/b`"),
        ("a://{x}/{x}", "`x` is used twice. Each variable must be unique"),
        ("{x}", "a resource's URI must start with a scheme, such as `incident://{id}`"),
        ("a://{x*}", "`{x*}` cannot be matched; a resource's URI takes {var}, {+var}, {/var}, {?a,b}"),
        ("a://{#x}", "`{#x}` cannot be matched; a resource's URI takes {var}, {+var}, {/var}, {?a,b}"),
        ("a://{x", "character 5: `{` without `}`; write a literal brace as %7B"),
    ],
)
def test_ambiguous_template_is_a_load_error(template: str, message: str) -> None:
    scope = make_scope()
    compile_matcher(template, scope)
    assert messages_of(scope) == [message]


def test_variables_of_optional_expressions_are_optional() -> None:
    compiled = matcher("a://{x}{/y}{?z}")
    assert compiled.variables == ("x", "y", "z")
    assert compiled.optional == {"y", "z"}


TEMPLATES = st.sampled_from(
    ["a://{x}/{y}", "a://{x}:{y}", "a://h/{x}{/y}", "a://{x}{?y}", "a:///{+x}?{y}", "a://{x}{/y,z}", "a://h{?x,y,z}"]
)


@given(template=TEMPLATES, values=st.fixed_dictionaries(dict.fromkeys("xyz", st.text())))
def test_expanded_uri_matches_its_values(template: str, values: dict[str, str]) -> None:
    if "{+x}" in template:
        values["x"] = values["x"].replace("?", "").replace("%", "")  # not encoded by reserved expansion
    compiled = matcher(template)
    scope = make_scope({name: {} for name in compiled.variables})
    uri = compile_uri_template(template, scope)(values)
    assert compiled.match(uri) == {name: values[name] for name in compiled.variables}


@given(template=st.sampled_from(["a://{x}-{y}", "a:///{+x}/{y}.md", "a://{x}.{y}"]), uri=st.text(max_size=30))
def test_matched_variables_expand_to_an_equivalent_uri(template: str, uri: str) -> None:
    compiled = matcher(template)
    found = compiled.match(f"a:///{uri}") or compiled.match(f"a://{uri}")
    if found is not None:
        scope = make_scope({name: {} for name in compiled.variables})
        again = compile_uri_template(template, scope)(found)
        if "%" not in "".join(found.values()):
            assert matcher(template).match(again) is not None


def test_matching_takes_linear_time() -> None:
    compiled = matcher("a:///{+a}-{b}-{+c}-{d}-{+e}-{f}!")
    began = time.process_time()
    assert compiled.match("a:///" + "-" * 200_000) is None
    assert compiled.match("a:///" + "-a%20" * 40_000 + "!") is not None
    assert time.process_time() - began < 10
