"""`output.format: lines | jsonl | csv | yaml`: parsed results, and errors that name format and line."""

import pytest

from gateway.executors.invocation import Failure, RawOutput, Value
from gateway.executors.output.output_store import MAX_OUTPUT_BYTES
from gateway.json_types import ABSENT, Json
from tests.executors.test_output import SECRET, error_of, raw, shape, text_of

PODS = """\
# pods
items:
- name: web   # a comment
  started: 2026-11-28
  at: 12:30:45
  replicas: 3
  ready: yes
  200: OK
- {name: db, base: &b {ratio: 0.5, on: true}, copy: *b, merged: {<<: *b, on: null}}
"""


@pytest.mark.parametrize(
    ("text_format", "output", "value"),
    [
        ("lines", "a\nb\n", ["a", "b"]),
        ("lines", "a\r\n\r\nb", ["a", "", "b"]),
        ("lines", "\x1b[31mred\x1b[0m\n a \n", ["red", " a "]),
        ("lines", "a\x0cb\u2028c\n", ["ab\u2028c"]),
        ("lines", "", []),
        ("jsonl", '{"a": 1}\r\n\r\n  \n[2]\nnull', [{"a": 1}, [2], None]),
        ("jsonl", "18446744073709551617\n", [18446744073709551617]),
        ("jsonl", "", []),
        ("jsonl", " \n\n", []),
        ("csv", "name,size\r\na,1\r\n\r\nb,2\r\n", [{"name": "a", "size": "1"}, {"name": "b", "size": "2"}]),
        ("csv", 'name,note\n"a,b","one\r\n""two"""\n', [{"name": "a,b", "note": 'one\n"two"'}]),
        ("csv", "name,size\nshort\n,\n", [{"name": "short", "size": None}, {"name": "", "size": ""}]),
        ("csv", "\ufeffname\na\n", [{"name": "a"}]),
        ("csv", "name,size\n", []),
        ("csv", "", []),
        ("yaml", "- 1\r\n- a: b\r\n", [1, {"a": "b"}]),
        ("yaml", "", []),
        ("yaml", "# nothing\n", []),
        ("yaml", "---\na: 1\n...\n", {"a": 1}),
        (
            "yaml",
            PODS,
            {
                "items": [
                    {
                        "name": "web",
                        "started": "2026-11-28",
                        "at": "12:30:45",
                        "replicas": 3,
                        "ready": "yes",
                        "200": "OK",
                    },
                    {
                        "name": "db",
                        "base": {"ratio": 0.5, "on": True},
                        "copy": {"ratio": 0.5, "on": True},
                        "merged": {"ratio": 0.5, "on": None},
                    },
                ]
            },
        ),
    ],
)
@pytest.mark.parametrize("backend", ["shell", "http", "upstream"])
async def test_output_is_parsed(backend: str, text_format: str, output: str, value: Json) -> None:
    result = await shape(raw(output, "text/plain; charset=utf-8"), backend=backend, format=text_format)
    assert not result.is_error, text_of(result)
    assert result.structured == value
    assert text_of(result).startswith(("[", "{"))


@pytest.mark.parametrize(
    ("text_format", "output", "message"),
    [
        ("jsonl", '{"a": 1}\n\n{"a": }', "The output is not valid JSONL (line 3): "),
        ("jsonl", "[1] [2]", "The output is not valid JSONL (line 1): "),
        (
            "csv",
            "a,b\n1,2\n1,2,3\n",
            "The output is not valid CSV (line 3): the row has 3 values, but the header has 2",
        ),
        ("csv", "a,a\n1,2\n", "The output is not valid CSV (line 1): the header has two columns named `a`"),
        ("csv", 'a\n1\n"open', "The output is not valid CSV (line 3): "),
        ("csv", "a\n" + "x" * 200_000, "The output is not valid CSV (line 2): field larger than field limit"),
        ("yaml", "a: 1\nb: [1,\n", "The output is not valid YAML (line "),
        ("yaml", "a: 1\nb: 2\na: 3\n", "The output is not valid YAML (line 3): duplicate key `a`"),
        ("yaml", "a: .inf\n", "The output is not valid YAML (line 1): "),
        ("yaml", "a: 1\n---\nb: 2\n", "The output is not valid YAML (line 2): a second document starts here"),
    ],
)
async def test_malformed_output_is_an_error_with_format_and_line(text_format: str, output: str, message: str) -> None:
    assert error_of(await shape(raw(output), backend="shell", format=text_format)).startswith(message)


@pytest.mark.parametrize(
    "attack",
    [
        "!!python/object/apply:os.system [touch hacked]",
        "a: !!python/name:os.system",
        "!<tag:yaml.org,2002:python/module:os> x",
        "a: !Ref x",
    ],
)
async def test_yaml_tags_are_errors_and_run_nothing(attack: str) -> None:
    text = error_of(await shape(raw(f"b: 1\n\nc: {attack}\n" if attack[0] == "a" else attack), format="yaml"))
    assert text.startswith("The output is not valid YAML (line "), text
    assert (await shape(raw("a: '!!python/name:os.system'"), format="yaml")).structured == {
        "a": "!!python/name:os.system"
    }


LAUGHS = "a0: &a0 [lol, lol]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))


@pytest.mark.parametrize(
    "attack",
    [
        LAUGHS,
        "a: &a [*a]",
        "[" * 5000 + "]" * 5000,
        f"- &a {'x' * 2**20}\n" + "- *a\n" * 100,
        f"- &a {'9' * 4000}\n" + "- *a\n" * 20_000,
        f"- &a {{{'k' * 900}: 1}}\n" + "- *a\n" * 80_000,
    ],
    ids=["laughs", "own anchor", "nesting", "long text", "long number", "long key"],
)
async def test_yaml_bombs_are_errors(attack: str) -> None:
    assert error_of(await shape(raw(attack), format="yaml")).startswith("The output is not valid YAML (line ")


async def test_yaml_aliases_are_expanded() -> None:
    result = await shape(raw("- &a {x: 1}\n" + "- *a\n" * 100), format="yaml")
    assert result.structured == [{"x": 1}] * 101


async def test_csv_with_a_long_header_and_many_rows_is_an_error() -> None:
    header = ",".join(f"{n:064}" for n in range(1000))
    rows = "x\n" * (MAX_OUTPUT_BYTES // len(header) + 1)
    assert "too many rows for such long column names" in error_of(await shape(raw(f"{header}\n{rows}"), format="csv"))
    assert not (await shape(raw(f"{header}\nx\n"), format="csv")).is_error


@pytest.mark.parametrize(
    ("text_format", "output"),
    [("lines", "a\nb\n"), ("jsonl", '"a"\n"b"'), ("csv", "v\na\nb\n"), ("yaml", "[a, b]")],
)
async def test_select_template_and_schema_use_the_parsed_value(text_format: str, output: str) -> None:
    selected = await shape(raw(output), backend="shell", format=text_format, select="length(@)")
    assert selected.structured == 2
    rendered = await shape(raw(output), backend="shell", format=text_format, template="{{ result | length }} found")
    assert text_of(rendered) == "2 found"
    schema: Json = {"type": "array", "maxItems": 2}
    assert not (await shape(raw(output), backend="shell", format=text_format, schema=schema)).is_error
    schema = {"type": "array", "maxItems": 1}
    mismatch = await shape(raw(output), backend="shell", format=text_format, schema=schema)
    assert error_of(mismatch).startswith("The output does not match the tool's output schema")


@pytest.mark.parametrize("text_format", ["lines", "jsonl", "csv", "yaml"])
async def test_failed_command_keeps_its_own_error(text_format: str) -> None:
    result = await shape(Failure(text="exit code 3\n{"), backend="shell", format=text_format)
    assert error_of(result) == "exit code 3\n{"


async def test_secrets_are_masked_in_values_and_errors() -> None:
    assert (await shape(raw(f"key: {SECRET}"), format="yaml")).structured == {"key": "***"}
    assert SECRET not in error_of(await shape(raw(f"{SECRET},{SECRET}\n1,2\n"), format="csv"))


async def test_omitted_output_is_an_error() -> None:
    result = await shape(RawOutput(data=b"a\nb\n", omitted=5), backend="shell", format="lines")
    assert "is too large" in error_of(result)


async def test_text_of_a_function_is_parsed_and_other_values_are_kept() -> None:
    assert (await shape(Value(value="a\nb\n"), backend="python", format="lines")).structured == ["a", "b"]
    assert (await shape(Value(value=[1]), backend="python", format="lines")).structured == [1]


async def test_long_result_has_no_structured_content() -> None:
    result = await shape(raw("line\n" * 100), backend="shell", format="lines", max_size=200)
    assert result.structured is ABSENT
    assert "bytes omitted" in text_of(result)
