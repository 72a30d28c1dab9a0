"""Reads the docstrings beneath the fields of a model from its source.

Why not pydantic's `use_attribute_docstrings`: that reads and parses the source of every model whenever the process
starts, and only the file's JSON Schema wants to know.
"""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

from gateway.config.models.base import Model


def attribute_docstrings(model: type[Model]) -> dict[str, str]:
    """The docstrings of a model's own and inherited fields, by name."""
    lineage = [each for each in reversed(model.__mro__) if issubclass(each, Model)]
    return {name: text for each in lineage for name, text in _in_the_body_of(each)}


def _in_the_body_of(model: type[Model]) -> Iterator[tuple[str, str]]:
    definition = _classes_in(inspect.getfile(model))[model.__name__]
    for statement, following in pairwise(definition.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text)


@cache  # `inspect.getsource` would parse the whole file again for each of its classes
def _classes_in(file: str) -> dict[str, ast.ClassDef]:
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
