"""Measures the structure of `gateway/`. Each measure is a list of places. `python -m tests.structure` prints counts.

The measures use syntax trees. Libraries are imported to find the private names of their classes.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, TypeVar

N = TypeVar("N", bound=ast.AST)

GATEWAY: Final = Path(__file__).parents[1] / "gateway"
FILES: Final = sorted(GATEWAY.rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(path)))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(GATEWAY.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES: Final = {module_name(path): path for path in FILES}


def imported_modules(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the modules of `gateway` that a file imports at any level, with the lines."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gateway"):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES else node.module or "", node.lineno


def lines() -> list[str]:
    return [str(path) for path in FILES for _ in path.read_text().splitlines()]


def files() -> list[str]:
    return [str(path) for path in FILES]


def classes() -> list[str]:
    return [_place(path, node, node.name) for path, node in _nodes(ast.ClassDef)]


def repeated_class_names() -> list[str]:
    """Names shared by two or more classes."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, node in _nodes(ast.ClassDef):
        if not node.name.startswith("_"):
            places[node.name].append(_place(path, node, node.name))
    return [", ".join(found) for found in places.values() if len(found) > 1]


def type_checking_files() -> list[str]:
    return [str(path.relative_to(GATEWAY)) for path in FILES if "TYPE_CHECKING" in path.read_text()]


def modules_named_in(path: Path) -> set[str]:
    """Return the strings in a file that name a module of `gateway`."""
    constants = (node.value for node in nodes_of(path) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str) and "." in value and value in MODULES}


def files_that_import_by_string() -> list[str]:
    return [str(path.relative_to(GATEWAY)) for path in FILES if modules_named_in(path)]


def import_cycles() -> list[str]:
    """Groups of files that import each other, including imports for type checkers."""
    below = {name: {module for module, _ in imported_modules(path)} - {name} for name, path in MODULES.items()}
    groups = {frozenset(group) for name in MODULES if len(group := _cycle_of(name, below)) > 1}
    return [" ".join(sorted(group)) for group in sorted(groups, key=sorted)]


def _cycle_of(name: str, below: dict[str, set[str]]) -> set[str]:
    return {other for other in _reachable(name, below) if name in _reachable(other, below)}


_REACHED: Final[dict[str, set[str]]] = {}


def _reachable(name: str, below: dict[str, set[str]]) -> set[str]:
    if name not in _REACHED:
        seen, waiting = set[str](), [name]
        while waiting:
            new = below.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        _REACHED[name] = seen
    return _REACHED[name]


def assignments_to_other_objects() -> list[str]:
    """Assignments to attributes of objects other than `self` and `cls`."""
    return [
        _place(path, node, ast.unparse(target))
        for path, node in _nodes(ast.stmt)
        for target in _targets(node)
        if isinstance(target, ast.Attribute) and not _is_self(target.value)
        if (str(path.relative_to(GATEWAY)), target.attr) not in SETTABLE_ATTRIBUTES
    ]


SETTABLE_ATTRIBUTES: Final = {
    *(("net/request_facts.py", name) for name in ("step", "steps")),  # aiohttp.TraceConfig, `trace_config_ctx`
    *(("cli/__init__.py", name) for name in ("stdin", "stdout", "stderr")),
    *(("cli/commands/bundle.py", name) for name in ("external_attr", "compress_type")),  # zipfile.ZipInfo
    ("cli/commands/test/__init__.py", "text"),  # xml.etree.ElementTree.Element
    *(("telemetry/logs.py", name) for name in ("excepthook", "unraisablehook")),
    *(("transports/listener/server_tls.py", name) for name in ("minimum_version", "options", "check_hostname")),
    *(("transports/listener/server_tls.py", name) for name in ("verify_flags", "sni_callback", "context")),  # ssl
    ("transports/sse/response_channel.py", "content_length"),  # aiohttp.web.Response
}
"""Attributes of library objects that are documented as settable."""


def patches() -> list[str]:
    """Assignments to attributes of imported modules and classes."""
    found = []
    for path in FILES:
        foreign = set(_foreign_names(path))
        for node in nodes_of(path):
            for target in _targets(node):
                if isinstance(target, ast.Attribute) and (target.attr == "__class__" or _root(target) in foreign):
                    found.append(_place(path, node, ast.unparse(target)))
                if isinstance(target, ast.Subscript) and ast.unparse(target.value) == "sys.modules":
                    found.append(_place(path, node, ast.unparse(target)))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr" and _root(node.args[0]) in foreign:
                found.append(_place(path, node, ast.unparse(node)))
    return [place for place in found if not any(allowed in place for allowed in ALLOWED_PATCHES)]


ALLOWED_PATCHES: Final = (
    "sys.stdin",  # replaced by the null device if the process was started without it
    "sys.stdout",
    "sys.stderr",
    "threading.excepthook",  # documented hooks
    "sys.unraisablehook",
    "sys.modules[name]",  # plugins, see "Importing a source file directly" in importlib's documentation
    "sys.modules[loaded",
)


def private_attributes_of_libraries() -> list[str]:
    """Accessed private attributes that neither the file itself nor the modules of `gateway` that it imports define."""
    found = []
    for path in FILES:
        known = _private_names(path).union(*(_private_names(MODULES[name]) for name, _ in imported_modules(path)))
        found += [
            _place(path, node, name)
            for node in nodes_of(path)
            for name in _private_accesses(node)
            if name.rpartition(".")[2] not in known | PUBLIC
        ]
        found += [_place(path, node, name) for node, name in private_overrides(path)]
    return found


def private_overrides(path: Path) -> Iterator[tuple[ast.ClassDef, str]]:
    """Yield private names that a class defines and its base class in a library also defines."""
    imported = dict(_imported_names(path))
    for node in nodes_of(path):
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            root = _root(base)
            if isinstance(node, ast.ClassDef) and root in imported:
                library = _object_at(imported[root], ast.unparse(base).split(".")[1:])
                yield from ((node, name) for name in sorted(_names_in_class(node)) if hasattr(library, name))


def _imported_names(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the names that a file imports from libraries, each with `module` or `module:name`."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("gateway"):
            yield from ((alias.asname or alias.name, f"{node.module}:{alias.name}") for alias in node.names)


def _object_at(imported: str, attributes: Iterable[str]) -> object:
    module, _, name = imported.partition(":")
    try:
        found: object = import_module(module)
    except ImportError:  # an optional dependency
        return None
    for each in (*([name] if name else []), *attributes):
        found = getattr(found, each, None)
    return found


def _names_in_class(node: ast.ClassDef) -> set[str]:
    """Return the private names that a class defines in its body, in `__slots__` or as attributes of `self`."""
    found = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    for each in ast.walk(node):
        for target in _targets(each):
            if isinstance(target, ast.Attribute) and _is_self(target.value):
                found.add(target.attr)
            elif isinstance(target, ast.Name) and each in node.body:
                found.add(target.id)
    return {name for name in found if _is_private(name)}


PUBLIC: Final = {"_replace", "_exit"}
"""Documented methods of named tuples and functions of `os`."""


def _private_accesses(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and _is_private(node.attr):
        yield ast.unparse(node)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"getattr", "setattr", "hasattr"}:
        name = node.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and _is_private(name.value):
            yield name.value
    elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith(("gateway", "_")):
        yield from (alias.name for alias in node.names if _is_private(alias.name))


@cache
def _private_names(path: Path) -> frozenset[str]:
    """Return the private names of functions, classes, variables, attributes and slots that a file defines."""
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        for target in _targets(node):
            if isinstance(target, ast.Name):
                found.add(target.id)
                if target.id == "__slots__" and isinstance(node, ast.Assign):
                    found |= {str(each.value) for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
            elif isinstance(target, ast.Attribute) and _is_self(target.value) and _defines(node):
                found.add(target.attr)
    found |= _attributes_of_initialisers(path)
    return frozenset(name for name in found if _is_private(name))


def _defines(node: ast.AST) -> bool:
    """Return whether an assignment to an attribute of `self` defines it: with an annotation, or of several at once."""
    return isinstance(node, ast.AnnAssign) or (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple))


def _attributes_of_initialisers(path: Path) -> set[str]:
    return {
        target.attr
        for function in nodes_of(path)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and function.name in {"__init__", "__new__", "__post_init__", "__enter__", "__aenter__"}
        for node in ast.walk(function)
        for target in _targets(node)
        if isinstance(target, ast.Attribute)
    }


MEASURES: Final[dict[str, Callable[[], list[str]]]] = {
    "lines": lines,
    "files": files,
    "classes": classes,
    "patches of libraries or the standard library": patches,
    "private attributes of libraries": private_attributes_of_libraries,
    "assignments to other objects' attributes": assignments_to_other_objects,
    "files with TYPE_CHECKING": type_checking_files,
    "files that import our modules by string": files_that_import_by_string,
    "import cycles": import_cycles,
    "class names used twice": repeated_class_names,
}


def _nodes(kind: type[N]) -> Iterator[tuple[Path, N]]:
    return ((path, node) for path in FILES for node in nodes_of(path) if isinstance(node, kind))


def _targets(node: ast.AST) -> Iterable[ast.expr]:
    match node:
        case ast.Assign(targets=targets):
            return [each for target in targets for each in _flat(target)]
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return [target]
    return []


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _flat(each)
    else:
        yield target


def _foreign_names(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Import) or (
            isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("gateway")
        ):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def _place(path: Path, node: ast.AST, text: str) -> str:
    return f"{path.relative_to(GATEWAY)}:{getattr(node, 'lineno', 0)}: {text}"


def table() -> str:
    """Return one line per measure, and the places of the measures named on the command line."""
    found = {measure: places() for measure, places in MEASURES.items()}
    return "\n".join(
        "\n".join([f"{len(places):6} {measure}", *(places if measure in sys.argv else ())])
        for measure, places in found.items()
    )


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
