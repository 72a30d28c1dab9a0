"""The plugin API: both contexts and their implementations have the same members, and all members are documented."""

import ast
import inspect
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, get_args

import pytest

from gateway import plugin
from gateway.executors.python.blocking_context import BlockingContext
from gateway.plugin import Context, SyncContext
from gateway.protocol.call.run import Run
from gateway.wire import meta
from tests.executors.recording import RecordingContext

_ONLY_ASYNC: Final = {"http"}
"""Members of `Context` that cannot be used in a thread, because aiohttp needs the event loop."""


def members_of(context: type) -> set[str]:
    return {name for name in dir(context) if not name.startswith("_")}


def parameters_of(method: Callable[..., object]) -> list[tuple[str, inspect._ParameterKind, object]]:
    """Return name, kind and default of each parameter except `self`."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return [(each.name, each.kind, each.default) for each in parameters]


def methods() -> list[str]:
    return sorted(name for name in members_of(Context) if inspect.isfunction(getattr(Context, name)))


def test_both_contexts_have_the_same_members() -> None:
    assert members_of(Context) - members_of(SyncContext) == _ONLY_ASYNC
    assert members_of(SyncContext) <= members_of(Context)


@pytest.mark.parametrize("implementation", [SyncContext, BlockingContext, Run, RecordingContext])
@pytest.mark.parametrize("method", methods())
def test_method_has_the_same_parameters_in_each_context(implementation: type, method: str) -> None:
    assert parameters_of(getattr(implementation, method)) == parameters_of(getattr(Context, method))


@pytest.mark.parametrize("method", [name for name in methods() if name != "once"])
def test_method_has_the_same_types_in_both_contexts(method: str) -> None:
    types = inspect.get_annotations(getattr(Context, method))
    if types["return"] == Awaitable[None]:  # blocking methods return None
        types["return"] = None
    assert inspect.get_annotations(getattr(SyncContext, method)) == types


def test_contexts_of_calls_have_every_member() -> None:
    assert members_of(Context) <= members_of(Run)
    assert members_of(SyncContext) <= members_of(BlockingContext)


def test_levels_are_those_of_the_protocol() -> None:
    assert get_args(plugin.LogLevel) == meta.LOG_LEVELS


def undocumented() -> Iterator[str]:
    """Yield the names of public classes and methods without a docstring."""
    for node in ast.parse(Path(plugin.__file__).read_text()).body:
        if isinstance(node, ast.ClassDef):
            if ast.get_docstring(node) is None and not node.name.startswith("_"):
                yield node.name
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(member) is None:
                    yield f"{node.name}.{member.name}"


def test_public_classes_and_methods_are_documented() -> None:
    assert not list(undocumented())


@pytest.mark.parametrize("method", methods())
def test_parameters_of_methods_are_documented(method: str) -> None:
    text = inspect.getdoc(getattr(Context, method)) or ""
    names = [name for name, _, _ in parameters_of(getattr(Context, method))]
    if "Args:" in text:
        assert all(f"    {name}: " in text for name in names), method
    else:
        assert len(names) <= 1, method
