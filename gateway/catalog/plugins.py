"""Finds the functions that `python:` names in plugin directories, entry points, and installed modules, in this order.

A changed directory is imported again as a new package, and running calls keep the old code. Unchanged directories are
not imported again. Only modules that the configuration uses are imported.
"""

import asyncio
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

import msgspec
import structlog

from gateway.catalog.plugin_package import (
    IMPORT_SECONDS,
    ImportFailedError,
    NoSuchModuleError,
    PackageFinder,
    PluginPackage,
    import_bounded,
    read_package,
)
from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.diagnostics.problems import Problems
from gateway.errors import ConfigError
from gateway.executors.python.signature import Signature, read_signature
from gateway.threads import DaemonThreadPool, NoThreadFreeError

log: Final = structlog.get_logger(__name__)

_ENTRY_POINTS: Final = "mcp_gateway.plugins"


class Plugins:
    """Loads plugin code, runs the hooks of its modules, and unloads the code."""

    def __init__(self, *, import_seconds: float = IMPORT_SECONDS) -> None:
        self._import_seconds = import_seconds
        self._finder = PackageFinder()
        self._opened = self._previous = _Generation()
        self._started: list[ModuleType] = []
        self._pending: list[list[ModuleType]] = []
        """Started modules with a pending `shutdown()`, one list for each call of `unload_unused`."""

    def open(self, directories: Sequence[str], problems: Problems) -> Sequence[Path]:
        """Read the plugin directories of a new configuration, and return their paths. This method blocks."""
        if self._finder not in sys.meta_path:
            # The finder can be first, because it only finds names that start with `PREFIX`.
            sys.meta_path.insert(0, self._finder)
        places = [problems.at(index) for index in range(len(directories))]
        paths = [Path(place.directory, each).absolute() for place, each in zip(places, directories, strict=True)]
        packages = []
        for place, path in zip(places, paths, strict=True):
            try:
                packages.append(read_package(path))
            except FileNotFoundError:
                place.error(f"directory {path} does not exist")
            except OSError as error:
                place.error(f"cannot be read: {error.strerror or error}")
        for package in packages:
            # A package with the same content keeps its imported modules.
            self._finder.packages.setdefault(package.name, package)
        self._opened = _Generation(packages=tuple(packages), import_seconds=self._import_seconds)
        return paths

    @property
    def directories(self) -> tuple[Path, ...]:
        """The plugin directories of the last call of `open`."""
        return tuple(package.directory for package in self._opened.packages)

    @property
    def contents(self) -> Mapping[Path, str]:
        """Digest of the content of each plugin directory."""
        return {package.directory: package.content for package in self._opened.packages}

    def contains(self, reference: str) -> bool:
        """Whether a plugin directory contains the module of `module:callable`."""
        module = reference.partition(":")[0]
        return any(module in package.sources for package in self._opened.packages)

    def code_of(self, reference: str) -> str:
        """Return a string that changes with the code of `module:callable`, without importing the module.

        The string is the digest of the plugin directory, the version of the entry point, or the digest of the file.
        """
        module = reference.partition(":")[0]
        for package in self._opened.packages:
            if module in package.sources:
                return package.content
        if (point := self._opened.entry_points.get(module)) is not None:
            return f"{point.value} {point.dist.name} {point.dist.version}" if point.dist is not None else point.value
        return _file_digest(module)

    def signature(self, reference: str, problems: Problems) -> Signature | None:
        """Return the signature of `module:callable`, or None after reporting an error. This method blocks."""
        function = self.function(reference, problems)
        return None if function is None else read_signature(function, name=reference, problems=problems)

    def function(self, reference: str, problems: Problems) -> Callable[..., Any] | None:
        """Return the function `module:callable`, or None after reporting an error."""
        module, _, path = reference.partition(":")
        holder = self._opened.holder(module, problems)
        return None if holder is None else _callable(holder, path, module=module, problems=problems)

    async def start(self, threads: DaemonThreadPool) -> None:
        """Run `startup()` of the modules that the last opened configuration uses, unless they are already started.

        If a module waiting for `shut_down` is used again, the module stays started.

        Raises:
            ConfigError: a hook failed. Modules started by this call have been shut down.
        """
        used = self._opened.modules()
        for pending in self._pending:
            pending[:] = [module for module in pending if module not in used]
        begun: list[ModuleType] = []
        for module in used:
            if module in self._started:
                continue
            if problem := await run_hook(module, "startup", threads=threads):
                await self._shut_down(begun, threads)
                raise ConfigError.at("plugins", f"startup() of {_short_name(module)} {problem}")
            begun.append(module)
        self._started.extend(begun)

    def unload_unused(self) -> list[ModuleType]:
        """Mark the last opened configuration as served, and return the started modules that are no longer used.

        Pass the list to `shut_down` when calls that use the previous configuration have ended. Until then, these calls
        can still import modules, and `start` removes modules from the list that are used again.
        """
        kept = {package.name for package in (*self._opened.packages, *self._previous.packages)}
        self._forget(package for name, package in self._finder.packages.items() if name not in kept)
        self._previous = self._opened
        needed = sum(self._pending, self._opened.modules())
        unused = [module for module in self._started if module not in needed]
        self._pending = [modules for modules in (*self._pending, unused) if modules]
        return unused

    async def shut_down(self, unused: list[ModuleType], threads: DaemonThreadPool) -> None:
        """Run `shutdown()` of the modules in a list from `unload_unused`, and empty the list."""
        while unused:  # `start` can remove modules during a hook.
            self._started.remove(module := unused.pop())
            await self._shut_down([module], threads)

    async def stop(self, threads: DaemonThreadPool) -> None:
        """Shut down all modules, and unload the directories."""
        started, self._started = self._started, []
        await self._shut_down(started, threads)
        self.close()

    def close(self) -> None:
        """Unload the directories without running hooks."""
        self._forget(self._finder.packages.values())
        self._opened = self._previous = _Generation()
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)

    def _forget(self, packages: Iterable[PluginPackage]) -> None:
        for package in tuple(packages):
            package.forget()
            del self._finder.packages[package.name]

    async def _shut_down(self, modules: Sequence[ModuleType], threads: DaemonThreadPool) -> None:
        # Reversed, because later modules can depend on earlier ones.
        for module in reversed(modules):
            if problem := await run_hook(module, "shutdown", threads=threads):
                log.warning("plugin shutdown failed", module=_short_name(module), reason=problem)


def _file_digest(module: str) -> str:
    """Return a digest of a module's file, or "" if the file cannot be found without an import."""
    top, _, rest = module.partition(".")
    try:
        # Look up only the top-level name, because a dotted name would import the parent packages.
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return ""
    if spec is None:
        return ""
    places = [Path(place, *rest.split(".")) for place in spec.submodule_search_locations or ()] if rest else []
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    file = next(filter(Path.is_file, files or map(Path, filter(None, [spec.origin]))), None)
    return "" if file is None else hashlib.sha256(file.read_bytes()).hexdigest()


class _Generation(msgspec.Struct, kw_only=True, dict=True):
    """The plugin modules available to one load of the configuration, and the modules that this load uses."""

    packages: tuple[PluginPackage, ...] = ()
    import_seconds: float = IMPORT_SECONDS
    _holders: dict[str, object] = msgspec.field(default_factory=dict)
    """Maps module names to modules or to objects of entry points. A failed import is stored as None."""
    _used: dict[str, PluginPackage | ModuleType] = msgspec.field(default_factory=dict)

    @cached_property
    def entry_points(self) -> Mapping[str, EntryPoint]:
        """Entry points by name, loaded on first use, because loading takes 10 ms."""
        return {point.name: point for point in entry_points(group=_ENTRY_POINTS)}

    def holder(self, module: str, problems: Problems) -> object:
        """Return the module or object that contains the callable, or None after an error, which is reported once."""
        if module not in self._holders:
            try:
                self._holders[module] = self._find(module)
            except NoSuchModuleError:
                # Do not cache the failure, so that every reference is reported.
                problems.error(f"unknown plugin {module}{self._meant(module, problems.directory)}")
                return None
            except ImportFailedError as error:
                problems.error(f"the plugin {module} could not be imported: {error}")
                self._holders[module] = None
        return self._holders[module]

    def modules(self) -> list[ModuleType]:
        """Return the used modules, which can have hooks."""
        modules: dict[str, ModuleType] = {}
        for used in self._used.values():
            for module in used.imported if isinstance(used, PluginPackage) else [used]:
                modules[module.__name__] = module
        return list(modules.values())

    def _find(self, module: str) -> object:
        for package in self.packages:
            if module in package.sources:
                self._used[package.name] = package
                return self._import_from(package, module)
        if (point := self.entry_points.get(module)) is not None:
            found = import_bounded(point.module, seconds=self.import_seconds)
            self._used[found.__name__] = found
            try:
                return _attribute(found, point.attr) if point.attr else found
            except AttributeError as error:
                raise ImportFailedError(f"its entry point {point.value} cannot be loaded: {error}") from error
        return import_bounded(module, seconds=self.import_seconds)

    def _import_from(self, package: PluginPackage, module: str) -> ModuleType:
        # A failed import must not leave partial modules behind.
        before = tuple(sys.modules)
        try:
            name = f"{package.name}.{module}" if module else package.name
            return import_bounded(name, seconds=self.import_seconds, beneath=package.directory)
        except ImportFailedError:
            package.forget(but=before)
            raise

    def _meant(self, module: str, directory: Path) -> str:
        name = module.removesuffix(".py").replace("/", ".")
        known = [name for package in self.packages for name in package.sources if name]
        if hint := did_you_mean(name, [*known, *self.entry_points]):
            return hint
        file = directory.joinpath(*name.split(".")).with_suffix(".py")
        if file.is_file():
            place = file.parent.relative_to(directory)
            return f"; to use {place / file.name}, add `plugins: [{place}]`"
        if not self.packages:
            return ". `plugins:` lists no directory, and no entry point or module has this name"
        places = ", ".join(str(package.directory) for package in self.packages)
        return f" in {places}, and no entry point or importable module has this name"


def _callable(holder: object, path: str, *, module: str, problems: Problems) -> Callable[..., Any] | None:
    try:
        found = _attribute(holder, path)
    except AttributeError:
        names = [name for name in dir(holder) if not name.startswith("_") and callable(getattr(holder, name, None))]
        problems.error(f"the plugin {module} has no callable {path}{did_you_mean(path, names)}")
        return None
    if not callable(found):
        problems.error(f"{module}:{path} is not callable (its type is {type(found).__name__})")
        return None
    function: Callable[..., Any] = found
    return function


def _attribute(holder: object, path: str) -> object:
    for name in path.split("."):
        holder = getattr(holder, name)
    return holder


def _short_name(module: ModuleType) -> str:
    """Return the module's name without the name of the plugin package, which contains a digest."""
    return module.__name__.partition(".")[2] or module.__name__


_HOOK_SECONDS: Final = 30.0


async def run_hook(
    module: ModuleType,
    name: Literal["startup", "shutdown"],
    *,
    threads: DaemonThreadPool,
    seconds: float = _HOOK_SECONDS,
) -> str | None:
    """Run a hook if the module defines it. Return a message if the hook fails, or None otherwise."""
    hook = vars(module).get(name)
    if not callable(hook) or getattr(hook, "__module__", None) != module.__name__:
        return None  # the hook was imported from another module
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        if inspect.iscoroutinefunction(hook):
            error = await _run_on_loop(hook, threads=threads, deadline=deadline)
        else:
            error = await threads.run(_error_of, hook, deadline=deadline)
    except NoThreadFreeError:
        return f"was not run: hooks of other plugins blocked all threads for {seconds:g} s"
    except TimeoutError:
        return f"did not finish within {seconds:g} s"
    return None if error is None else f"raised {type(error).__name__}: {error}"


async def _run_on_loop(hook: Callable[[], Any], *, threads: DaemonThreadPool, deadline: float) -> BaseException | None:
    # SystemExit in a task would end the event loop.
    async def error_of() -> BaseException | None:
        try:
            await hook()
        except BaseException as error:  # noqa: BLE001 - Boundary: a plugin may raise anything
            return error
        return None

    task = asyncio.create_task(error_of(), name="plugin hook")
    try:
        # `wait` does not wait for cancellation, so a stuck hook cannot block a reload.
        await asyncio.wait({task}, timeout=deadline - asyncio.get_running_loop().time())
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            threads.track_orphan(task)


def _error_of(hook: Callable[[], Any]) -> BaseException | None:
    try:
        hook()
    except BaseException as error:  # noqa: BLE001 - Boundary: a plugin may raise anything
        return error
    return None
