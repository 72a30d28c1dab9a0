"""Reads the docstrings beneath the fields of a model from its source.

Why not pydantic's `use_attribute_docstrings`: that reads and parses the source of every model whenever the process
starts, and only the file's JSON Schema wants to know.
"""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from textwrap import dedent

from gateway.config.models.base import Model


def attribute_docstrings(model: type[Model]) -> dict[str, str]:
    """The docstrings of a model's own and inherited fields, by name."""
    lineage = [each for each in reversed(model.__mro__) if issubclass(each, Model)]
    return {name: text for each in lineage for name, text in _in_the_body_of(each)}


def _in_the_body_of(model: type[Model]) -> Iterator[tuple[str, str]]:
    [definition] = ast.parse(dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101 - that is what the source of a class is
    for statement, following in pairwise(definition.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text)
