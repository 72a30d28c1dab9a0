"""Compiles the globs of `files:` and of completions."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from gateway.catalog.compile.context import CompileContext
from gateway.catalog.file_dependencies import FileDependencies
from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import is_directory
from gateway.executors.files.globs import Globs, GlobSource, compile_globs, split_glob

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

SOURCES: Final[Mapping[str, Callable[[Sequence[str], str | None, Problems, CompileContext], GlobSource | None]]] = {}
"""Functions that compile globs in storage other than the file system, by the URI scheme of the root."""


def compile_file_globs(
    globs: Sequence[str], *, root: str | None, problems: Problems, context: CompileContext, is_listed: bool = False
) -> GlobSource | None:
    """Compile globs below a root. Return None after reporting a problem.

    If `root` is None, `globs` contains one glob, and the directories before its first wildcard are the root. With
    `is_listed`, changes to matching files trigger a reload.
    """
    if (scheme := _SCHEME.match(root or globs[0])) is None:
        return compile_directory(
            globs, root=root, problems=problems, dependencies=context.dependencies, is_listed=is_listed
        )
    if scheme[1] in SOURCES:
        return SOURCES[scheme[1]](globs, root, problems, context)
    problems.at("files" if root is None else "root").error(f"`{scheme[0]}` is not supported. Use a directory")
    return None


def compile_directory(
    globs: Sequence[str], *, root: str | None, problems: Problems, dependencies: FileDependencies, is_listed: bool
) -> Globs | None:
    base, below = root, globs
    if base is None:
        base, glob = split_glob(globs[0])
        below = [glob]
    patterns = [_pattern(glob, root=base, problems=problems.at("files", index)) for index, glob in enumerate(below)]
    directory, place = os.path.normpath(problems.directory / base), problems.at("files" if root is None else "root")
    dependencies.files.add(Path(directory))
    if not is_directory(directory):
        place.error(f"the directory `{base}` does not exist")
        return None
    good = [pattern for pattern in patterns if pattern is not None]
    if len(good) < len(patterns):
        return None
    compiled = compile_globs(directory, good)
    dependencies.add_root(directory, resolved=compiled.real_root, problems=place)
    if is_listed:
        dependencies.globs.add(compiled)
    return compiled


def _pattern(pattern: str, *, root: str, problems: Problems) -> str | None:
    if pattern.startswith("/"):
        problems.error(f"`{pattern}` must be relative to `root`")
        return None
    names = [name for name in pattern.split("/") if name not in {"", "."}]
    if ".." in names:
        problems.error(f"`..` leads outside the root `{root}`")
        return None
    if not names:
        problems.error("expected a path or a glob such as docs/**/*.md")
        return None
    return "/".join(names)
