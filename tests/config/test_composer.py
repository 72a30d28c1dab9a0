"""The YAML composer: values by the core schema of YAML 1.2, positions, and errors."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.reading.composer import MAX_DEPTH, compose
from gateway.config.reading.nodes import Diagnostic, Mapping, Node, Sequence, find, place_of, plain
from gateway.config.reading.source_file import SourceFile
from gateway.json_types import Json
from tests.examples import examples

FILE = Path("/etc/config.yaml")


def composed(text: str) -> tuple[Node | None, list[Diagnostic]]:
    return compose(SourceFile(FILE, text))


def value_of(text: str) -> Json:
    root, diagnostics = composed(text)
    assert diagnostics == []
    assert root is not None
    return plain(root)


def messages_of(text: str) -> list[str]:
    places = [(diagnostic.place, diagnostic.message) for diagnostic in composed(text)[1]]
    return [f"{place.line}:{place.column}: {message}" if place else message for place, message in places]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("12:30", "12:30"),
        ("12:30:45", "12:30:45"),
        ("2026-07-28", "2026-07-28"),
        ("0755", 755),
        ("0o755", 493),
        ("0x1F", 31),
        ("-12", -12),
        ("1_000", "1_000"),
        ("1.10", 1.1),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("~", None),
        ("null", None),
        ("", None),
        ("'5'", "5"),
        ('"true"', "true"),
        ("1.2.3", "1.2.3"),
        ("=", "="),
        ("18446744073709551615", 2**64 - 1),
    ],
)
def test_plain_scalars_follow_the_core_schema(text: str, value: Json) -> None:
    found = value_of(f"a: {text}\n")["a"]
    assert found == value
    assert type(found) is type(value)


def test_entries_keep_file_order() -> None:
    assert list(value_of("b: 1\na: 2\nc: 3\n")) == ["b", "a", "c"]


def test_alias_has_the_value_of_its_anchor() -> None:
    assert value_of("a: &x [1, {b: 2}]\nc: *x\n")["c"] == [1, {"b": 2}]


def test_own_keys_override_merged_keys() -> None:
    text = "x: &x {a: 1, b: 1, c: 1}\ny: &y {b: 2, d: 2}\nz: {<<: [*y, *x], c: 3}\n"
    assert value_of(text)["z"] == {"a": 1, "b": 2, "c": 3, "d": 2}


def test_quoted_merge_key_is_an_ordinary_key() -> None:
    assert value_of('a: {"<<": 1}\n') == {"a": {"<<": 1}}


def test_keys_and_values_have_positions() -> None:
    root = composed("a:\n  b: [x,\n      y]\n  c:\n    - d: 1\n")[0]
    assert isinstance(root, Mapping)

    def position(*path: str | int) -> tuple[int, int]:
        entry, node, taken = find(root, path)
        assert taken == len(path)
        place = place_of(entry, node)
        return place.line, place.column

    assert position("a") == (1, 1)
    assert position("a", "b") == (2, 6)
    assert position("a", "b", 1) == (3, 7)
    assert position("a", "c") == (4, 3)
    assert position("a", "c", 0) == (5, 7)
    assert position("a", "c", 0, "d") == (5, 10)


def test_merged_key_keeps_its_position() -> None:
    root = composed("x: &x {a: 1}\ny:\n  <<: *x\n")[0]
    assert isinstance(root, Mapping)
    entry, _, _ = find(root, ("y", "a"))
    assert entry is not None
    assert (entry.place.line, entry.place.column) == (1, 8)


def test_control_characters_are_rejected() -> None:
    assert messages_of("a: b\nc: d\x07e\n") == [
        "2:5: YAML syntax: the control character U+0007 is not allowed. Write it as an escape"
    ]


def test_several_errors_in_a_file_are_reported_together() -> None:
    assert messages_of("a: 1\na: 2\n3: x\nb: !!int 5\nc: *d\n") == [
        "2:1: duplicate key `a`, first at config.yaml:1:1",
        '3:1: a key must be text; quote it: "3"',
        "4:4: the tag `!!int` is not allowed; values are plain YAML",
        "5:4: `*d` has no anchor before it",
    ]


def test_deep_nesting_is_an_error() -> None:
    assert value_of("a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)) is not None
    # PyYAML 6.0.4 and later stop at 1,000 levels themselves, some of them before the first event.
    for text in ("a: " + "[" * (MAX_DEPTH + 1), "a: " + "[" * 100_000, '{"a":' * 100_000, "- " * 100_000):
        [message] = messages_of(text)
        assert re.fullmatch(rf"1:\d+: nested deeper than {MAX_DEPTH} levels", message)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [1, 2, 3]\n", "more than 4 values; remove some"),
        ("a: &a [1]\nb: *a\n", "more than 4 values once aliases are expanded. Check for nested aliases"),
        ("a: &a 1\nb: *a\nc: [1, 2]", "more than 4 values once aliases are expanded. Check for nested aliases"),
    ],
)
def test_error_for_too_many_values_mentions_aliases_only_if_there_are_any(text: str, reason: str) -> None:
    [diagnostic] = compose(SourceFile(FILE, text), max_nodes=4)[1]
    assert diagnostic.message == reason


def test_unquoted_template_is_reported() -> None:
    assert messages_of("a: {{ b }}\n") == ['1:5: a template needs quotes: "{{ … }}"']


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "---\n...\n", "null\n"])
def test_empty_file_has_no_root_and_no_errors(text: str) -> None:
    assert composed(text) == (None, [])


def test_line_breaks_match_those_of_yaml() -> None:
    root = composed("a: 1\r\nb: 2\rc: 3\x85d: 4\n")[0]
    assert isinstance(root, Mapping)
    assert [entry.place.line for entry in root.entries.values()] == [1, 2, 3, 4]
    assert SourceFile(FILE, "a: 1\r\nb: 2\rc: 3\x85d: 4\n").lines == ("a: 1", "b: 2", "c: 3", "d: 4", "")


def test_embedded_text_has_positions_in_its_file() -> None:
    root, _ = compose(SourceFile(FILE, "---\na: [b]\n---\n"), "a: [b]\n", first_line=1)
    assert isinstance(root, Mapping)
    node = root.entries["a"].node
    assert isinstance(node, Sequence)
    assert place_of(None, node.items[0]).line == 2


_NUMBERS_ONLY_IN_1_2 = re.compile(r"[-+]?[0-9.]+[eE][-+]?[0-9]+|0o[0-7]+|[-+]?[0-9]+\.?[0-9]*")
_words = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=20).filter(
    lambda word: _NUMBERS_ONLY_IN_1_2.fullmatch(word) is None
)
_scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | _words
_documents = st.dictionaries(
    _words,
    st.recursive(_scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_words, inner, max_size=4)),
    min_size=1,
    max_size=4,
)


@given(document=_documents, flow=st.sampled_from([True, False, None]))
def test_dumped_yaml_is_read_like_safe_load(document: Json, *, flow: bool | None) -> None:
    text = yaml.safe_dump(document, default_flow_style=flow, allow_unicode=True)
    assert value_of(text) == yaml.safe_load(text) == document


@examples(300)
@given(text=st.text() | st.text(alphabet="ab:-?,[]{}&*!|>'\"%@`<~ \n\t#0.$"))
def test_any_text_yields_a_tree_or_a_located_error(text: str) -> None:
    root, diagnostics = composed(text)
    if root is None:
        assert all(diagnostic.place is not None for diagnostic in diagnostics)
    else:
        plain(root)
