"""The import table of the house, as data. A room may import itself, and what stands behind it here."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

GATEWAY: Final = Path(__file__).parents[1] / "gateway"

LEAVES: Final = {"errors", "json_types", "plugin", "__init__"}
"""Importable by all; among themselves in this order: json_types, errors, plugin."""

MAY_IMPORT: Final[dict[str, set[str]]] = {
    "json_types": set(),
    "errors": {"json_types"},
    "plugin": {"errors", "json_types"},
    "__init__": set(),
    "config": LEAVES,
    "executors": LEAVES | {"config"},
    "catalog": LEAVES | {"config", "executors"},
    "access": LEAVES | {"config"},
    "telemetry": LEAVES | {"executors", "protocol"},
    "protocol": LEAVES | {"config", "executors", "catalog", "access"},
    "transports": LEAVES | {"config", "protocol", "access"},
    "reloader": LEAVES | {"config", "executors", "catalog"},
    "app": LEAVES | {"config", "executors", "catalog", "access", "telemetry", "protocol", "transports", "reloader"},
    "cli": LEAVES | {"config", "app"},
    "__main__": {"cli"},
}

MAY_NOT_IMPORT: Final[dict[str, set[str]]] = {
    "protocol": {"aiohttp", "yaml", "subprocess"},
    "config": {"aiohttp"},
    "catalog": {"aiohttp", "subprocess"},
}
"""Libraries that a room has no business with: its pure parts are tested with dictionaries alone."""


def room_of(path: Path) -> str:
    return path.relative_to(GATEWAY).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            if node.module == "gateway":
                yield from ((f"gateway.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield node.module or "", node.lineno


FILES: Final = sorted(GATEWAY.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(GATEWAY)))
def test_a_file_imports_only_what_its_room_may(path: Path) -> None:
    room = room_of(path)
    for module, line in imports_of(path):
        top, _, rest = module.partition(".")
        if top == "gateway" and rest:
            imported = rest.partition(".")[0]
            if not (GATEWAY / imported).is_dir() and not (GATEWAY / f"{imported}.py").is_file():
                imported = "__init__"  # a name of the package itself, such as __version__
            assert imported == room or imported in MAY_IMPORT[room], f"{path}:{line}: {room} may not import {module}"
        assert top not in MAY_NOT_IMPORT.get(room, set()), f"{path}:{line}: {room} may not import {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(GATEWAY)))
def test_no_import_of_our_own_hides_inside_a_function(path: Path) -> None:
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gateway"):
                    pytest.fail(f"{path}:{node.lineno}: import inside a function")


def test_rooms_form_no_cycle() -> None:
    seen: dict[str, int] = {}

    def depth(room: str, path: tuple[str, ...] = ()) -> int:
        assert room not in path, f"cycle: {' → '.join((*path, room))}"
        if room not in seen:
            seen[room] = 1 + max((depth(below, (*path, room)) for below in MAY_IMPORT[room]), default=0)
        return seen[room]

    for room in MAY_IMPORT:
        depth(room)


LENT: Final = "executors.services"
"""Made of what the rooms beside it bring, and lent to those rooms."""


def part_of(module: str) -> str:
    """Of a room: the room within it that a file lies in, or the file itself."""
    return ".".join(module.split(".")[1:3])


def test_the_parts_of_a_room_form_no_cycle() -> None:
    below: dict[str, set[str]] = {}
    for path in FILES:
        own = part_of(".".join(path.relative_to(GATEWAY.parent).with_suffix("").parts))
        modules = {module for module, _ in imports_of(path) if module.startswith("gateway.")}
        below.setdefault(own, set()).update({part_of(module) for module in modules} - {own, LENT})
    assert {"app.offer", "app.listening"} <= below["app.reports"]
    for part, beneath in below.items():
        seen, waiting = set(beneath), list(beneath)
        while waiting:
            new = below.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        assert part not in seen, f"{part} leads back to itself"


def test_every_room_stands_in_the_table() -> None:
    assert {room_of(path) for path in FILES} <= set(MAY_IMPORT)
