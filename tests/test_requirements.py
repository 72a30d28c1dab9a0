"""Every requirement of the specification has a test, and behaviour tests name existing requirements."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.requirements import REQUIREMENTS

TESTS: Final = Path(__file__).parent


def functions_of(path: Path) -> dict[str, set[str]]:
    """Return the requirements that each test of a file names."""
    return {
        f"{path.name}:{node.lineno} {node.name}": set(_requirements_of(node.decorator_list))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_every_requirement_has_a_test_that_names_it() -> None:
    # Parsing only the files that name a requirement takes a tenth of the time.
    paths = [path for path in sorted(TESTS.rglob("test_*.py")) if "@requirement(" in path.read_text()]
    files = [functions_of(path) for path in paths]
    tests = {name: ids for file in files if any(file.values()) for name, ids in file.items()}
    assert [name for name, ids in tests.items() if not ids] == []
    assert set().union(*tests.values()) == REQUIREMENTS.keys()


def _requirements_of(decorators: list[ast.expr]) -> Iterator[str]:
    for decorator in decorators:
        match decorator:
            case ast.Call(func=ast.Name(id="requirement"), args=arguments):
                yield from (ast.literal_eval(argument) for argument in arguments)
