"""Imports a plugin directory from memory as a package whose name contains a digest of the directory's content.

Running calls keep their code after a reload, even for late imports. Python's cache of compiled files is not used,
because that cache detects changes only by size and whole seconds. `sys.path` and the directory are not modified.
"""

import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

import msgspec

PREFIX: Final = "mcp_gateway_plugins_"

_MAX_FILES: Final = 2000
_MAX_DEPTH: Final = 8


PluginFile = tuple[Path, bytes]
"""The path of a file, and the code in that file."""


class PluginPackage(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Name of the package, derived from the directory's path and content."""
    directory: Path
    sources: Mapping[str, PluginFile]
    """Files by module name within the package. The name of the package itself is ""."""
    content: str
    """Digest of the contents of all Python files. The path of the directory is not included."""

    @property
    def imported(self) -> list[ModuleType]:
        """Modules of the package that have been imported so far, in order."""
        # Copy `sys.modules`, because other threads can import modules.
        return [module for name, module in tuple(sys.modules.items()) if _belongs(name, self.name)]

    def forget(self, *, but: Sequence[str] = ()) -> None:
        """Remove the package's modules from `sys.modules`, except for `but`. Running functions are not affected."""
        for name in [name for name in tuple(sys.modules) if _belongs(name, self.name) and name not in but]:
            del sys.modules[name]


def read_package(directory: Path) -> PluginPackage:
    """Read all Python files below `directory`.

    Raises:
        OSError: a file cannot be read, or there are too many files.
    """
    files = list(_python_files(directory, depth=_MAX_DEPTH))
    if len(files) > _MAX_FILES:
        raise OSError(f"more than {_MAX_FILES} Python files")
    sources = {
        ".".join(path.relative_to(directory).with_suffix("").parts).removesuffix("__init__").removesuffix("."): (
            path,
            path.read_bytes(),
        )
        for path in files
    }
    # PEP 420: directories without `__init__.py` are packages too.
    for module in tuple(sources):
        for parent in _parents(module):
            sources.setdefault(parent, (Path(directory, *parent.split("."), "__init__.py"), b""))
    digest = hashlib.sha256()
    for module, (_, code) in sorted(sources.items()):
        digest.update(b"\0".join([b"", module.encode(), hashlib.sha256(code).digest()]))
    content = digest.hexdigest()
    # Two directories with equal code need separate globals.
    name = hashlib.sha256(f"{directory} {content}".encode()).hexdigest()[:16]
    return PluginPackage(name=PREFIX + name, directory=directory, sources=sources, content=content)


class PackageFinder(importlib.abc.MetaPathFinder):
    """Finder for `sys.meta_path` that finds the modules of plugin packages."""

    def __init__(self) -> None:
        self.packages: dict[str, PluginPackage] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the import system's method
        target: ModuleType | None = None,  # noqa: ARG002 - the import system's method
    ) -> importlib.machinery.ModuleSpec | None:
        name, _, module = fullname.partition(".")
        package = self.packages.get(name)
        source = package.sources.get(module) if package else None
        if source is None:
            return None
        loader = _SourceLoader(*source)
        spec = importlib.util.spec_from_loader(fullname, loader, is_package=loader.is_package(fullname))
        if spec is not None and spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(str(source[0].parent))  # for compiled extensions
        return spec


class _SourceLoader(importlib.abc.ExecutionLoader):
    def __init__(self, path: Path, code: bytes) -> None:
        self._path, self._code = path, code

    def is_package(self, fullname: str) -> bool:  # noqa: ARG002 - the import system's method
        return self._path.name == "__init__.py"

    def get_filename(self, fullname: str) -> str:  # noqa: ARG002 - the import system's method
        return str(self._path)

    def get_source(self, fullname: str) -> str:  # noqa: ARG002 - the import system's method
        return importlib.util.decode_source(self._code)


def _belongs(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _parents(module: str) -> Iterator[str]:
    while module:
        module = module.rpartition(".")[0]
        yield module


def _python_files(directory: Path, *, depth: int) -> Iterator[Path]:
    """Yield importable files. Hidden and cached files are skipped."""
    for path in sorted(directory.iterdir()):
        if path.suffix == ".py" and path.stem.isidentifier() and path.is_file():
            yield path
        # Follow links. The depth limit ends cycles of links.
        elif path.name.isidentifier() and path.name != "__pycache__" and depth > 0 and path.is_dir():
            yield from _python_files(path, depth=depth - 1)


IMPORT_SECONDS: Final = 30.0


class ImportFailedError(Exception):
    pass


class NoSuchModuleError(ImportFailedError):
    pass


def import_bounded(name: str, *, seconds: float, beneath: Path | None = None) -> ModuleType:
    """Import a module. If the import fails in a file below `beneath`, the error message contains the file and line.

    Raises:
        NoSuchModuleError: the module does not exist.
        ImportFailedError: the import raised an exception, including `SystemExit`, or took longer than `seconds`.
    """
    outcome: list[ModuleType | BaseException] = []

    def attempt() -> None:
        try:
            outcome.append(importlib.import_module(name))
        except BaseException as error:  # noqa: BLE001 - Boundary: a plugin may raise anything
            outcome.append(error)

    # A daemon thread that hangs does not delay the exit of the process.
    thread = threading.Thread(target=attempt, name=f"import {name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise ImportFailedError(f"did not finish within {seconds:g} s")
    match outcome[0]:
        # If a different module is missing, the error is in the plugin.
        case ModuleNotFoundError(name=missing) if missing and (name == missing or name.startswith(f"{missing}.")):
            raise NoSuchModuleError
        case BaseException() as error:
            raise ImportFailedError(_described(error, beneath))
        case module:
            return module


def _described(error: BaseException, beneath: Path | None) -> str:
    message = str(error).partition("\n")[0]
    hint = _neighbour_hint(error, beneath)
    return f"{type(error).__name__}: {message}{_place(error, beneath)}{hint}"


def _place(error: BaseException, beneath: Path | None) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}:{error.lineno})" if f"{error.lineno}" not in str(error) else f" ({error.filename})"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if beneath is not None and Path(frame.filename).is_relative_to(beneath)
    ]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _neighbour_hint(error: BaseException, beneath: Path | None) -> str:
    if not isinstance(error, ModuleNotFoundError) or not error.name or beneath is None:
        return ""
    is_neighbour = Path(beneath, f"{error.name}.py").is_file() or Path(beneath, error.name).is_dir()
    return f"; to import a neighbouring file, use `from . import {error.name}`" if is_neighbour else ""
