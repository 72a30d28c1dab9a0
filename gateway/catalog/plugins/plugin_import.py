"""Imports modules with a time limit."""

import importlib
import threading
import traceback
from pathlib import Path
from types import ModuleType
from typing import Final

IMPORT_SECONDS: Final = 30.0


class ImportFailedError(Exception):
    pass


class NoSuchModuleError(ImportFailedError):
    pass


def import_bounded(name: str, *, seconds: float, beneath: Path | None = None) -> ModuleType:
    """Import a module. Errors are located in files below `beneath`.

    Raises:
        NoSuchModuleError: the module does not exist.
        ImportFailedError: the import raised an exception, including `SystemExit`, or took too long.
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
    """Return the position in the plugin's files, unless the message contains it."""
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
    return f"; a neighbouring file is imported with `from . import {error.name}`" if is_neighbour else ""
