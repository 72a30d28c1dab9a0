"""Warnings about variables of inputs in shell scripts."""

import pytest

from gateway.config.diagnostics.problems import Problems
from gateway.executors.shell.script import warn_of_variables
from gateway.json_types import JsonObject
from gateway.language.scope import Inputs, Scope

UNQUOTED = '`$INPUT_PATH` is not quoted, so the shell splits it at spaces and expands `*`. Write "$INPUT_PATH"'
SCHEMAS: dict[str, JsonObject] = {
    "path": {"type": "string"},
    "count": {"type": "integer"},
    "level": {"enum": ["low", "high"]},
}
VARIABLES = {name: f"INPUT_{name.upper()}" for name in SCHEMAS}


def warnings_of(script: str, *interpreter: str, environment: tuple[str, ...] = ()) -> list[str]:
    problems = Problems()
    scope = Scope(inputs=Inputs(schemas=SCHEMAS), problems=problems)
    warn_of_variables(script, interpreter or ("sh", "-e"), VARIABLES, environment=environment, scope=scope)
    return [problem.message for problem in problems]


@pytest.mark.parametrize(
    "script",
    [
        "ls $INPUT_PATH",
        "ls ${INPUT_PATH}",
        "ls ${INPUT_PATH:-/}/x",
        'echo "a" $INPUT_PATH "b"',
        "LANG=C ls $INPUT_PATH",
        "echo a\\ $INPUT_PATH",
        "if true; then rm $INPUT_PATH; fi",
    ],
)
def test_unquoted_input_causes_a_warning(script: str) -> None:
    assert warnings_of(script) == [UNQUOTED]


@pytest.mark.parametrize(
    "script",
    [
        'ls "$INPUT_PATH"',
        'ls "a ${INPUT_PATH}/b"',
        "awk '{print $INPUT_PATH}'",
        "# ls $INPUT_PATH",
        "cat <<EOF\n$INPUT_PATH isn't quoted\nEOF",
        "path=$INPUT_PATH",
        "A=1 path=${INPUT_PATH}",
        "case $INPUT_PATH in a) ;; esac",
        "for each in $INPUT_PATH; do true; done",
        "[[ $INPUT_PATH == a ]]",
        "ls ${INPUT_PATH:+-l} ${#INPUT_PATH}",
        "head -n $INPUT_COUNT; echo $((INPUT_COUNT + 1)) $INPUT_LEVEL",
        "echo \\$INPUT_PATH",
    ],
)
def test_value_that_is_not_split_causes_no_warning(script: str) -> None:
    assert warnings_of(script) == []


@pytest.mark.parametrize("interpreter", ["python3", "zsh", "node"])
def test_other_interpreters_cause_no_warning(interpreter: str) -> None:
    assert warnings_of("ls $INPUT_PATH $INPUT_NONE", interpreter) == []


@pytest.mark.parametrize("interpreter", [("bash",), ("/usr/bin/env", "bash"), ("/bin/dash", "-e")])
def test_shells_are_recognised_by_name(interpreter: tuple[str, ...]) -> None:
    assert warnings_of("ls $INPUT_PATH", *interpreter) == [UNQUOTED]


def test_unknown_input_causes_a_warning() -> None:
    assert warnings_of('ls "$INPUT_PTH"') == ["`$INPUT_PTH` is not an input; did you mean `$INPUT_PATH`?"]
    assert warnings_of('ls "$INPUT_Q"') == ["`$INPUT_Q` is not an input"]


def test_variable_that_is_set_elsewhere_causes_no_warning() -> None:
    assert warnings_of('INPUT_Q=1; ls "$INPUT_Q"') == []
    assert warnings_of('read -r INPUT_Q; ls "$INPUT_Q"') == []
    assert warnings_of('ls "$INPUT_Q"', environment=("INPUT_Q",)) == []
