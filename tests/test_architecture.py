"""The structure of `gateway/`: allowed imports, and upper bounds of the measures."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from inspect import iscoroutinefunction, isfunction
from pathlib import Path
from typing import Final

import pytest

from gateway.cli import COMMANDS, EXECUTION, load
from tests.structure import FILES, GATEWAY, MEASURES, modules_named_in, private_overrides, table, tree_of

LEAVES: Final = {
    *("background_tasks", "bounded_map", "control_characters", "rfc3339", "atomic_write", "events"),
    *("json_types", "exact_json", "errors", "deadline", "threads", "plugin", "distribution", "repeated_warnings"),
    "platform_facilities",
    "__init__",
}
"""Modules that every package can import."""

MAY_IMPORT: Final[dict[str, set[str]]] = {
    "background_tasks": set(),
    "bounded_map": set(),
    "control_characters": set(),
    "rfc3339": set(),
    "atomic_write": set(),
    "distribution": set(),
    "platform_facilities": set(),
    "repeated_warnings": set(),
    "json_types": set(),
    "exact_json": {"json_types"},
    "errors": {"json_types"},
    "events": set(),
    "deadline": {"errors", "json_types"},
    "threads": {"background_tasks", "deadline", "errors", "json_types"},
    "plugin": {"errors", "json_types"},
    "__init__": set(),
    "wire": LEAVES,
    "config": LEAVES,
    "client_configs": LEAVES | {"config"},
    "language": LEAVES | {"config", "wire"},
    "telemetry": LEAVES | {"config", "wire"},
    "state": LEAVES | {"config", "telemetry"},
    "processes": LEAVES,
    "access": LEAVES | {"config", "state"},
    "limits": LEAVES | {"config", "state"},
    "net": LEAVES | {"config", "language", "telemetry", "access", "state"},
    "executors": LEAVES | {"config", "language", "telemetry", "access", "processes", "net"},
    "openapi": LEAVES | {"config", "language", "executors", "access", "net"},
    "catalog": LEAVES | {"config", "language", "executors", "wire", "net"},
    "upstreams": LEAVES
    | {
        "config",
        "language",
        "executors",
        "catalog",
        "access",
        "state",
        "telemetry",
        "wire",
        "limits",
        "processes",
        "net",
    },
    "tasks": LEAVES | {"config", "access", "state"},
    "audit": LEAVES | {"config", "access", "language", "tasks", "telemetry", "wire"},
    "protocol": LEAVES
    | {"config", "language", "executors", "catalog", "access", "limits", "state", "tasks", "telemetry", "wire"},
    "transports": LEAVES | {"config", "catalog", "protocol", "access", "limits", "state", "telemetry", "wire"},
    "reload": LEAVES | {"config", "language", "executors", "catalog", "access", "audit", "transports"},
    "console": LEAVES
    | {"config", "language", "executors", "catalog", "access", "telemetry", "state", "wire"}
    | {"protocol", "transports", "tasks", "upstreams", "reload", "client_configs"},
    "signin": LEAVES | {"access", "config", "net", "console", "transports"},
    "held_signals": set(),
    "app": LEAVES
    | {"config", "language", "executors", "catalog", "access", "audit", "telemetry", "protocol", "transports", "reload"}
    | {"tasks", "upstreams", "openapi", "wire", "held_signals", "state", "console", "net", "signin"},
    "cli": LEAVES
    | {"config", "language", "executors", "catalog", "audit", "telemetry", "protocol", "transports", "reload", "app"}
    | {"access", "upstreams", "openapi", "state", "wire", "client_configs", "processes", "net"},
    "__main__": {"held_signals", "cli"},
}

MAY_NOT_IMPORT: Final[dict[str, set[str]]] = {
    "protocol": {"aiohttp", "yaml", "subprocess"},
    "config": {"aiohttp"},
    "catalog": {"aiohttp", "subprocess"},
}
"""Libraries that a package must not import, so that tests can call its pure functions with plain dictionaries."""


@cache
def package_of(path: Path) -> str:
    return path.relative_to(GATEWAY).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            if node.module == "gateway":
                yield from ((f"gateway.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield node.module or "", node.lineno


@cache
def is_allowed(package: str, module: str) -> bool:
    top, _, rest = module.partition(".")
    if top == "gateway" and rest:
        imported = rest.partition(".")[0]
        if not (GATEWAY / imported).is_dir() and not (GATEWAY / f"{imported}.py").is_file():
            imported = "__init__"  # a name of the package itself, such as __version__
        return imported == package or imported in MAY_IMPORT[package]
    return top not in MAY_NOT_IMPORT.get(package, set())


def test_each_file_imports_only_allowed_packages() -> None:
    problems = [
        f"{path}:{line}: {package_of(path)} may not import {module}"
        for path in FILES
        for module, line in imports_of(path)
        if not is_allowed(package_of(path), module)
    ]
    assert not problems, "\n".join(problems)


def test_own_imports_are_at_module_level() -> None:
    indented = re.compile(r"^[ \t]+from\s+gateway", re.MULTILINE)
    problems = [
        f"{path}:{node.lineno}: import inside a function"
        for path in FILES
        if indented.search(path.read_text())  # avoids parsing most files
        for function in ast.walk(tree_of(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gateway")
    ]
    assert not problems, "\n".join(problems)


IMPORTED_BY_NAME: Final[dict[str, set[str]]] = {
    "cli/__init__.py": {EXECUTION},
    "executors/sql/dialects.py": {
        f"gateway.executors.sql.{name}" for name in ("connections", "sqlite", "postgresql", "mysql", "duckdb")
    },
    "telemetry/tracing.py": {"gateway.telemetry.spans"},
}
"""Files that import modules of `gateway` by a string, to start faster or because a module needs an extra. Modules of
commands are not listed."""


def test_modules_are_only_imported_by_string_in_the_listed_files() -> None:
    importers = {path for path in FILES if re.search("import_module", path.read_text())}
    named = {str(path.relative_to(GATEWAY)): modules_named_in(path) for path in importers}
    assert {name: modules for name, modules in named.items() if modules} == IMPORTED_BY_NAME
    for path in importers:
        packages = {package_of(GATEWAY.parent.joinpath(*name.split("."))) for name in modules_named_in(path)}
        assert packages <= MAY_IMPORT[package_of(path)] | {package_of(path)}, path
    assert [path for path in FILES if "__import__" in path.read_text()] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_command_module_has_a_parser_and_run(command: str) -> None:
    module = load(command)
    assert isfunction(module.parser)
    assert iscoroutinefunction(module.run)


def test_packages_form_no_cycle() -> None:
    seen: dict[str, int] = {}

    def depth(package: str, path: tuple[str, ...] = ()) -> int:
        assert package not in path, f"cycle: {' → '.join((*path, package))}"
        if package not in seen:
            seen[package] = 1 + max((depth(below, (*path, package)) for below in MAY_IMPORT[package]), default=0)
        return seen[package]

    for package in MAY_IMPORT:
        depth(package)


def part_of(module: str) -> str:
    """Return the file or the inner package directly below a package of `gateway/`."""
    return ".".join(module.split(".")[1:3])


def test_modules_of_a_package_form_no_cycle() -> None:
    below: dict[str, set[str]] = {}
    for path in FILES:
        name = ".".join(path.relative_to(GATEWAY.parent).with_suffix("").parts)
        own = part_of(name)
        modules = {module for module, _ in imports_of(path) if module.startswith("gateway.")}
        below.setdefault(own, set()).update({part_of(module) for module in modules} - {own})
    assert {"app.workers"} <= below["app.build"]
    for part, beneath in below.items():
        seen, waiting = set(beneath), list(beneath)
        while waiting:
            new = below.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        assert part not in seen, f"{part} imports itself through other parts"


def test_every_package_is_in_the_table() -> None:
    assert {package_of(path) for path in FILES} <= set(MAY_IMPORT)


AT_MOST: Final[dict[str, int]] = {
    "lines": 72_116,
    "files": 450,
    "classes": 716,
    "patches of libraries or the standard library": 0,
    "private attributes of libraries": 0,
    "assignments to other objects' attributes": 34,
    "files with TYPE_CHECKING": 2,
    "files that import our modules by string": 4,
    "import cycles": 0,
    "class names used twice": 12,
}
"""Upper bounds of the measures of `tests/structure.py`. Lower a bound when a change allows it."""


@pytest.mark.parametrize("measure", AT_MOST)
def test_structure_does_not_grow(measure: str) -> None:
    places = MEASURES[measure]()
    assert len(places) <= AT_MOST[measure], "\n".join(places[-100:])


def test_override_of_a_private_name_of_a_library_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("""
from aiohttp import web

class Unframed(web.StreamResponse):
    _length_check = False
    _own = 1

    def _start(self): ...

    def prepare(self): self._headers = {}
""")
    assert [name for _, name in private_overrides(path)] == ["_length_check", "_start"]


def test_measures_of_the_structure_are_printed() -> None:
    assert set(AT_MOST) == set(MEASURES)
    print(table())  # noqa: T201 - shown by `pytest -s` and `pytest -rP`
