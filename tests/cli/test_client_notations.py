"""Edits of client files change one value, and keep everything else including comments."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.client_configs.notation import JSON, TOML, YAML, Notation, NotEditableError

ENTRY: dict[str, Any] = {"command": "/bin/x", "args": ["a b", "c"]}

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x85\u2028\u2029\ufeff"), max_size=8)
keys = st.text(st.characters(codec="ascii", exclude_categories=["C"]), min_size=1, max_size=6)
entries = st.fixed_dictionaries(
    {"command": texts, "args": st.lists(texts, max_size=2)},
    optional={"env": st.dictionaries(keys, texts, min_size=1, max_size=2), "enabled": st.booleans()},
)


@pytest.mark.parametrize("notation", [JSON, TOML, YAML], ids=["json", "toml", "yaml"])
@given(
    sections=st.dictionaries(keys, st.dictionaries(keys, entries, min_size=1, max_size=3), max_size=3), data=st.data()
)
def test_edit_changes_only_the_entry(notation: Notation, sections: dict[str, Any], data: st.DataObject) -> None:
    text = notation.render(sections) if sections else ""
    section = data.draw(st.sampled_from([*sections, "servers"]))
    name = data.draw(st.sampled_from([*sections.get(section, {}), "ops"]))
    entry = data.draw(entries)
    edited = notation.put(text, (section, name), entry)
    assert notation.parse(edited) == {**sections, section: {**sections.get(section, {}), name: entry}}
    assert notation.put(edited, (section, name), entry) == edited


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{\n  "s": {\n    "ops": 1\n  }\n}'),
        (
            '// mine\n{\n\t"s": {\n\t\t"a": {"b": "}"}, // why\n\t},\n\t"t": [1,], /* { */\n}\n',
            '// mine\n{\n\t"s": {\n\t\t"a": {"b": "}"},\n\t\t"ops": 1, // why\n\t},\n\t"t": [1,], /* { */\n}\n',
        ),
        ('{"s": {"ops": {"x": [1]}, "z": 0}}', '{"s": {"ops": 1, "z": 0}}'),
        ("// mine\n", '// mine\n{\n  "s": {\n    "ops": 1\n  }\n}\n'),
        ('\ufeff{"s": {"a": 1/* {"ops": 2} */}}', '\ufeff{"s": {"a": 1,\n"ops": 1/* {"ops": 2} */}}'),
        ('{"s": {"ops": 0}, "t": {"a": 1, "a": 2}}', '{"s": {"ops": 1}, "t": {"a": 1, "a": 2}}'),
        ('{"a": "\\"s\\": {}"}', '{"a": "\\"s\\": {}",\n"s": {\n  "ops": 1\n}}'),
    ],
)
def test_json_keeps_comments_and_indentation(before: str, after: str) -> None:
    assert JSON.put(before, ("s", "ops"), 1) == after


def test_toml_keeps_comments_and_replaces_a_table_with_those_within_it() -> None:
    before = (
        '# mine\nmodel = "x"\n\n[s.a]\ncommand = "a"\n\n[s.ops]\nurl = "u"\n\n[s.ops.env]\nA = "1"\n\n'
        "# of t\n\n# too\n[t]\nu = 1 #\n"
    )
    after = TOML.put(before, ("s", "ops"), ENTRY)
    assert after.startswith('# mine\nmodel = "x"\n\n[s.a]\ncommand = "a"\n\n[s.ops]\ncommand = "/bin/x"\n')
    assert after.endswith("\n\n# of t\n\n# too\n[t]\nu = 1 #\n")
    parsed = TOML.parse(after)
    assert isinstance(parsed, dict)
    assert parsed["s"] == {"a": {"command": "a"}, "ops": ENTRY}


def test_yaml_keeps_other_values() -> None:
    before = "model: x\ns:\n    a: {cmd: a#b, since: 2026-01-31}\nt: |\n  one\n  two\n"
    after = YAML.parse(YAML.put(before, ("s", "ops"), {"cmd": "o"}))
    expected = YAML.parse(before)
    assert isinstance(expected, dict)
    expected["s"]["ops"] = {"cmd": "o"}
    assert after == expected


def test_yaml_keeps_the_text_of_other_scalars() -> None:
    # YAML 1.1 reads these scalars as booleans and numbers, and YAML 1.2 reads them as text or other numbers.
    before = "mode: off\nzip: 0123\nat: 1:30\nsum: 1_000\nname: 'no'\ns:\n  a: &a {cmd: yes}\n  b: *a\nmode: on\n"
    after = YAML.put(before, ("s", "ops"), {"cmd": "no"})
    # Anchors have new names.
    assert after.replace("id001", "a") == before.replace("  b: *a\n", "  b: *a\n  ops:\n    cmd: 'no'\n")


@pytest.mark.parametrize("value", ["s:\n", "s: ~\n", "s: null\nt: 1\n", ""])
def test_yaml_with_an_empty_section_is_filled(value: str) -> None:
    found = YAML.parse(YAML.put(value, ("s", "ops"), {"cmd": "o"}))
    assert isinstance(found, dict)
    assert found["s"] == {"ops": {"cmd": "o"}}


@pytest.mark.parametrize(
    ("notation", "text"),
    [
        (JSON, '{"s": 1}'),
        (JSON, '{"s": {"a": 1 "b": 2}}'),
        (JSON, '{"s": {"a": 1'),
        (JSON, '{"s": {"a": 1, "a": 2}}'),
        (JSON, '{"s": {}, "t": 1, "s": {}}'),
        (TOML, "s = {a = {}}\n["),
        (TOML, "s = {a = {}}\n"),
        (TOML, '[s.a]\nurl = """\n[s.ops]\n"""\n'),
        (YAML, "s: {a: 1} # why\n"),
        (YAML, "s:\n  a: | # why\n    b\n"),
        (YAML, "s: a\n"),
        (YAML, "s: [a]\n"),
        (YAML, "s: [\n"),
        (YAML, "- s\n"),
    ],
)
def test_unsafe_edit_is_rejected(notation: Notation, text: str) -> None:
    with pytest.raises(NotEditableError):
        notation.parse(notation.put(text, ("s", "ops"), ENTRY))


def test_toml_strings_are_escaped() -> None:
    entry = {"command": '\x7f\x00"\\\n', "args": ["é😀"]}
    assert TOML.parse(TOML.put("", ("s", "a b"), entry)) == {"s": {"a b": entry}}
    assert json.loads(JSON.render({"a": "é"})) == {"a": "é"}
