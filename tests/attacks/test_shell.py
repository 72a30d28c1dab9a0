"""Arguments are never parsed by a shell. Each one is passed unchanged as one argument, or rejected with its name."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.json_types import Json
from tests.attacks.payloads import LEADING_DASH, SHELL, TEXTS
from tests.attacks.target import Plan, Target

PLAN = Plan(
    file=r"""
    tools:
      bare:
        description: Say the arguments, where no `--` stands before them.
        input: {text: string}
        shell: {command: [printf, '%s\0', "{{ text }}"]}
        output: {raw: true, max_size: 1MiB}
      apart:
        description: Print the arguments after a literal `--`, some behind an option's name.
        input: {text: string}
        shell:
          command: [printf, '%s\0', "--", "{{ text }}", "<{{ text }}>", "{{ text }}{{ text }}", "--name={{ text }}",
                    "-n{{ text }}"]
        output: {raw: true, max_size: 1MiB}
      listed:
        description: Spread a list.
        input:
          items: {type: array, items: {type: string}}
        shell: {command: [printf, '%s\0', "--", begin, "{{ items }}", end]}
        output: {raw: true, max_size: 4MiB}
      listed_bare:
        description: Spread a list without `--`.
        input:
          items: {type: array, items: {type: string}}
        shell: {command: [printf, '%s\0', begin, "{{ items }}", end]}
        output: {raw: true}
      grouped:
        description: A group and a condition.
        input: {name: "string?", loud: "boolean?", text: string}
        shell:
          command: [printf, '%s\0', "--", [-n, "{{ name }}"], {if: loud, then: [-v, "{{ text }}"]}, "{{ text }}"]
        output: {raw: true}
      every_way:
        description: The value is standard input, a variable that the file names, one of a script, and in a file.
        input: {text: string}
        shell:
          script: 'printf "%s\0" "$INPUT_TEXT" "$CHOSEN"; cat "$INPUTS_FILE"; printf "\0"; cat'
          stdin: "{{ text }}"
          env: {CHOSEN: "{{ text }}"}
        output: {raw: true, max_size: 8MiB}
      positional:
        description: A shell's own code, and the value as a parameter of it.
        input: {text: string}
        shell: {command: [sh, -c, 'printf "%s\0" "$@"', sh, "--", "{{ text }}"]}
        output: {raw: true}
      interpreted:
        description: Python's own code, and the value as an argument.
        input: {text: string}
        shell:
          command: ["@python@", -ISc, "import os, sys; os.write(1, os.fsencode(sys.argv[-1]))", "--", "{{ text }}"]
        output: {raw: true}
      piped:
        description: The value is standard input.
        input: {text: string}
        shell: {command: [cat], stdin: "{{ text }}"}
        output: {raw: true, max_size: 4MiB}
      scripted:
        description: The value is a variable of a script.
        input: {text: string}
        shell: {script: 'printf "%s\0" "$INPUT_TEXT"'}
        output: {raw: true}
      unquoted:
        description: A careless script; words are split, and still nothing runs.
        input: {text: string}
        shell: {script: 'set -f; printf "%s\0" $INPUT_TEXT'}
        output: {raw: true}
      filed:
        description: All inputs are in a file.
        input: {text: string}
        shell: {script: 'cat "$INPUTS_FILE"'}
        output: {raw: true, max_size: 8MiB}
      where:
        description: Print the path and mode of the inputs file.
        input: {text: string}
        shell: {script: 'echo "$INPUTS_FILE"; stat -c %a "$INPUTS_FILE" "$(dirname "$INPUTS_FILE")"'}
      environment:
        description: Print all variables of a child. The caller names the inputs.
        input_schema: {type: object}
        shell: {script: 'cat /proc/self/environ'}
        output: {raw: true, max_size: 4MiB}
      configured:
        description: The value is a variable of the file.
        input: {text: string}
        shell: {command: [sh, -c, 'printf "%s\0" "$CHOSEN"'], env: {CHOSEN: "{{ text }}"}}
        output: {raw: true}
      chosen:
        description: The program is one of two.
        input: {program: {enum: [printf, echo]}, text: string}
        shell: {command: ["{{ program }}", "--", "{{ text }}"]}
        output: {raw: true}
      placed:
        description: The directory is an input.
        input: {folder: string}
        shell: {command: [pwd], cwd: "{{ folder }}"}
    """,
    files={"folder/file.txt": "inside"},
)


NAMES = (
    *("PATH", "LD_PRELOAD", "BASH_ENV", "ENV", "IFS", "PS4", "PYTHONPATH", "TRACEPARENT", "INPUTS_FILE"),
    *("x=y", "BASH_FUNC_ls%%", "a\nLD_PRELOAD=/x", "", "=", "é", "-x", "a\0b", "a" * 200, "__proto__"),
    *("s_JSON", "S_FILE", "MCP_GATEWAY_CALL"),
)


def filled_in(target: Target, text: str) -> str:
    values = {
        "@canary@": target.canary.file,
        "@payload_file@": target.canary.payload_file,
        "@port@": target.canary.port,
    }
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text


def words(text: str) -> list[str]:
    assert text.endswith("\0"), text
    return text.split("\0")[:-1]


def arguments_of(text: str) -> list[str]:
    """Return the arguments that the tool `apart` printed."""
    return ["--", text, f"<{text}>", f"{text}{text}", f"--name={text}", f"-n{text}"]


@pytest.mark.parametrize("payload", SHELL + TEXTS + LEADING_DASH)
def test_argument_equals_the_callers_value(target: Target, payload: str) -> None:
    text = filled_in(target, payload)
    assert words(target.client.text("apart", {"text": text})) == arguments_of(text)
    assert words(target.client.text("positional", {"text": text})) == ["--", text]
    variable, chosen, inputs, stdin = target.client.text("every_way", {"text": text}).split("\0")
    assert (variable, chosen, orjson.loads(inputs), stdin) == (text, text, {"text": text}, text)


@pytest.mark.parametrize("payload", SHELL)
def test_unquoted_script_input_splits_but_never_runs(target: Target, payload: str) -> None:
    text = filled_in(target, payload)
    assert words(target.client.text("unquoted", {"text": text})) == re.split("[ \t\n]+", text.strip(" \t\n"))


@pytest.mark.parametrize("payload", LEADING_DASH)
def test_value_cannot_become_an_option(target: Target, payload: str) -> None:
    text = filled_in(target, payload)
    assert "must not start with `-`" in target.client.refusal("bare", {"text": text})
    assert "must not start with `-`" in target.client.refusal("listed_bare", {"items": ["a", text]})
    # Controls: the same value after a space, and after a literal `--`.
    assert words(target.client.text("bare", {"text": f" {text}"})) == [f" {text}"]
    assert words(target.client.text("listed", {"items": ["a", text]})) == ["--", "begin", "a", text, "end"]


def test_double_dash_of_a_caller_does_not_end_options(target: Target) -> None:
    assert "must not start with `-`" in target.client.refusal("listed_bare", {"items": ["--", "-x"]})


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200))
def test_text_is_returned_unchanged(target: Target, text: str) -> None:
    assert words(target.client.text("apart", {"text": text})) == arguments_of(text)
    assert words(target.client.text("scripted", {"text": text})) == [text]
    assert target.client.text("interpreted", {"text": text}) == text


@given(
    items=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40), max_size=12)
)
def test_list_becomes_one_argument_per_item(target: Target, items: list[str]) -> None:
    assert words(target.client.text("listed", {"items": items})) == ["--", "begin", *items, "end"]
    if any(item.startswith("-") for item in items):
        assert "must not start with `-`" in target.client.refusal("listed_bare", {"items": items})
    else:
        assert words(target.client.text("listed_bare", {"items": items})) == ["begin", *items, "end"]


@given(
    given=st.fixed_dictionaries(
        {"text": st.sampled_from(SHELL + TEXTS)},
        optional={"name": st.sampled_from(TEXTS[:40]), "loud": st.booleans()},
    )
)
def test_argument_groups_are_included_or_omitted_whole(target: Target, given: dict[str, Json]) -> None:
    named = ["-n", given["name"]] if "name" in given else []
    loud = ["-v", given["text"]] if given.get("loud") else []
    assert words(target.client.text("grouped", given)) == ["--", *named, *loud, given["text"]]


@pytest.mark.parametrize("tool", ["bare", "apart", "positional", "scripted", "configured"])
def test_nul_in_an_argument_is_rejected(target: Target, tool: str) -> None:
    assert "NUL" in target.client.refusal(tool, {"text": "before\0after"})
    assert target.client.text(tool, {"text": "before after"})


def test_nul_is_data_on_standard_input(target: Target) -> None:
    assert target.client.text("piped", {"text": "before\0after"}) == "before\0after"
    assert orjson.loads(target.client.text("filed", {"text": "before\0after"})) == {"text": "before\0after"}


def test_argument_of_any_length_is_accepted_or_named_in_an_error(target: Target) -> None:
    most = 128 * 1024 - 1
    assert words(target.client.text("bare", {"text": "a" * most})) == ["a" * most]
    assert "stdin" in target.client.refusal("bare", {"text": "a" * (most + 1)})
    assert "stdin" in target.client.refusal("bare", {"text": "é" * most})
    assert target.client.text("piped", {"text": "é" * 2**18}) == "é" * 2**18


def test_too_many_arguments_are_an_error(target: Target) -> None:
    """Linux limits all arguments together to a quarter of the stack size."""
    assert "too" in target.client.refusal("listed", {"items": ["x" * 100_000] * 30}).lower()
    assert "too" in target.client.refusal("environment", {f"n{i}": "x" * 100_000 for i in range(30)}).lower()
    assert len(words(target.client.text("listed", {"items": ["x"] * 20_000}))) == 20_003


@pytest.mark.parametrize("name", NAMES)
def test_member_name_of_a_caller_is_not_an_environment_variable(target: Target, name: str) -> None:
    def variables(arguments: dict[str, Json]) -> dict[str, str]:
        return dict(entry.split("=", 1) for entry in words(target.client.text("environment", arguments)))

    before, after = variables({}), variables({name: "/injected"})
    added = set(after) - set(before)
    assert len(added) == 1
    assert added.pop().startswith("INPUT_")
    constant = set(before) - {"INPUTS_FILE", "INPUTS_JSON"}
    assert {key: after[key] for key in constant if before[key] != after[key]}.keys() <= {"MCP_GATEWAY_CALL"}
    assert "/injected" not in {after[key] for key in constant}
    assert orjson.loads(after["INPUTS_JSON"]) == {name: "/injected"}


def test_program_is_always_one_of_the_file(target: Target) -> None:
    assert target.client.text("chosen", {"program": "echo", "text": "x"}) == "-- x\n"
    for program in ("touch", "sh", "/bin/sh", "printf ", "printf\n", "./printf", "PRINTF", ["printf"], None):
        assert "/program" in target.client.refusal(
            "chosen", {"program": program, "text": str(target.canary.payload_file)}
        )


def test_working_directory_is_only_a_name(target: Target) -> None:
    assert target.client.text("placed", {"folder": "folder"}) == f"{target.folder}/folder\n"
    for folder in (
        "$(touch @payload_file@)",
        "`pwd`",
        "folder; touch @payload_file@",
        "folder\0",
        "~",
        "a" * 5000,
        "folder/file.txt",
    ):
        target.client.refusal("placed", {"folder": filled_in(target, folder)})


def test_concurrent_calls_never_share_inputs(target: Target) -> None:
    def one(number: int) -> bool:
        text = f"{number}-" * (number % 7 + 1) * (5000 if number % 5 == 0 else 1)
        return (
            orjson.loads(target.client.text("filed", {"text": text})) == {"text": text}
            and target.client.text("piped", {"text": text}) == text
            and words(target.client.text("scripted", {"text": text[:1000]})) == [text[:1000]]
        )

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(one, range(36)))


@pytest.mark.build
def test_inputs_file_is_private_and_removed_after_the_call(target: Target) -> None:
    said = [target.client.text("where", {"text": "x"}).split() for _ in range(20)]
    assert {(file, folder) for _, file, folder in said} == {("600", "700")}
    paths = {Path(path) for path, _, _ in said}
    assert len(paths) == len({path.parent for path in paths}) == 20
    assert not any(path.parent.exists() for path in paths)
