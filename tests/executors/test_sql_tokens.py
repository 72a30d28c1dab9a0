"""Parameters in SQL, and text that only looks like parameters."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.executors.sql import dialects
from gateway.executors.sql.dialects import POSTGRESQL, SQLITE, StatementError, dialect_of, tokens_of
from gateway.executors.sql.query import Statement, pieces_of, statements_of
from tests.examples import examples
from tests.structure import MODULES, tree_of

DIALECTS = ("postgresql", "sqlite", "mysql", "mssql")


def parameters(text: str, dialect: str) -> list[str]:
    return [token.text for token in tokens_of(text, dialect_of(dialect)) if token.kind == "parameter"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("text", "found"),
    [
        (":a", ["a"]),
        ("x=:a+:b_2", ["a", "b_2"]),
        ("':a' :b", ["b"]),
        ("'it''s :a' :b", ["b"]),
        ('":a" :b', ["b"]),
        ("-- :a\n:b", ["b"]),
        ("/* :a */ :b", ["b"]),
        ("x::text", []),
        (":a::text", ["a"]),
        ("f(x := :a)", ["a"]),
        ("a[1:2]", []),
        (": a", []),
        ("`:a` :b", ["b"]),
    ],
)
def test_quotes_comments_and_casts_contain_no_parameters(text: str, found: list[str], dialect: str) -> None:
    assert parameters(text, dialect) == found


@pytest.mark.parametrize(
    ("dialect", "text", "found"),
    [
        ("postgresql", "$$ :a $$ :b", ["b"]),
        ("postgresql", "$x$ $$ :a $x$ :b", ["b"]),
        ("postgresql", "a$b$ :c", ["c"]),
        ("postgresql", r"E'\' :a' :b", ["b"]),
        ("postgresql", r"'\' :b", ["b"]),
        ("postgresql", "/* /* */ :a */ :b", ["b"]),
        ("sqlite", "/* /* */ :a", ["a"]),
        ("sqlite", "[:a] :b", ["b"]),
        ("postgresql", "ARRAY[:a, :b]", ["a", "b"]),
        ("mysql", r"'\' :a' :b # :c", ["b"]),
    ],
)
def test_each_dialect_has_its_own_quotes(dialect: str, text: str, found: list[str]) -> None:
    assert parameters(text, dialect) == found


@pytest.mark.parametrize("text", ["'a", '"a', "/* a", "$$ a", "$x$ a $$"])
def test_unclosed_quote_is_an_error(text: str) -> None:
    with pytest.raises(StatementError):
        list(tokens_of(text, dialect_of("postgresql")))


@examples(200)
@given(text=st.text(alphabet=st.sampled_from("ab:'\"`$[]/*-\n ;(),\\EIN1")), dialect=st.sampled_from(DIALECTS))
def test_joined_tokens_equal_the_text(text: str, dialect: str) -> None:
    try:
        tokens = list(tokens_of(text, dialect_of(dialect)))
    except StatementError:
        return
    assert "".join(text[token.start : token.end] for token in tokens) == text


def compiled(text: str, dialect: str, **schemas: object) -> Statement:
    [tokens] = statements_of(tokens_of(text, dialect_of(dialect)))
    return Statement(pieces=pieces_of(tokens), dialect=dialect_of(dialect), schemas=schemas)


def test_value_only_changes_the_number_of_placeholders() -> None:
    text = "SELECT 1 WHERE a NOT in ( :l ) AND b = :x AND c = :x -- :x"
    bound = compiled(text, "postgresql").bind({"l": ["'", 2], "x": "y"})
    assert bound.text == "SELECT 1 WHERE a NOT IN ($1, $2) AND b = $3 AND c = $3 -- :x"
    assert bound.values == ("'", "2", "y")
    assert bound.names == ("l", "l", "x")
    assert text[bound.written_offset(bound.text.index("b =")) :].startswith("b = :x")
    bound = compiled(text, "sqlite").bind({"l": [], "x": None})
    assert bound.text == "SELECT 1 WHERE a NOT IN () AND b = ? AND c = ? -- :x"
    assert bound.values == (None, None)


def test_format_is_cast_to_its_type() -> None:
    statement = compiled(
        "SELECT :d, :t, :j", "postgresql", d={"format": "date"}, t={"type": "string"}, j={"type": "object"}
    )
    assert statement.bind({"d": "2026-01-02", "t": "x", "j": {"a": 1}}).text == (
        "SELECT CAST(CAST($1 AS text) AS date), $2, CAST(CAST($3 AS text) AS jsonb)"
    )
    assert {POSTGRESQL.reads_only, SQLITE.reads_only} == {True}
    assert dialect_of("mssql").reads_only is False


def test_only_the_module_of_a_dialect_refers_to_it() -> None:
    single = {each.name.upper(): each.module for each in dialects.DIALECTS.values()}
    for module, path in MODULES.items():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and node.module == dialects.__name__:
                owners = {single.get(alias.name, module) for alias in node.names}
                assert owners == {module}, f"{module}: add a field to `Dialect` instead"
