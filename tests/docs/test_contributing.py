"""CONTRIBUTING.md lists all packages in the order of the import table, and mentions only existing files."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.structure import GATEWAY
from tests.test_architecture import MAY_IMPORT

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / "CONTRIBUTING.md").read_text()
PACKAGES: Final = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)
PATHS: Final = sorted(set(re.findall(r"`((?:gateway|tests|docs|config|plugins)/[\w./-]*)`", TEXT)))


def test_every_package_is_in_the_table() -> None:
    packages = {path.parent.name for path in GATEWAY.glob("*/__init__.py")}
    assert set(PACKAGES) == packages | {"plugin"}


def test_package_imports_only_packages_below_it() -> None:
    for index, package in enumerate(PACKAGES):
        assert not MAY_IMPORT[package] & set(PACKAGES[:index]), package


@pytest.mark.parametrize("path", PATHS)
def test_mentioned_path_exists(path: str) -> None:
    assert (ROOT / path).exists()


RECIPE: Final = re.compile(r"^- \*\*(.+?)\*\*((?:.|\n(?!- \*\*|\n))*)", re.MULTILINE)


@pytest.mark.parametrize(("title", "recipe"), RECIPE.findall(TEXT.partition("## Where things go")[2]))
def test_names_in_a_recipe_occur_in_its_files(title: str, recipe: str) -> None:
    paths = [ROOT / path for path in re.findall(r"`((?:gateway|tests)/[\w./-]*)`", recipe)]
    folders = [path if path.is_dir() else path.parent for path in paths]
    paths += [folder / name for name in re.findall(r"`(\w+\.py)`", recipe) for folder in folders]
    files = [
        file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path] if path.exists() else [])
    ]
    words = {word for file in files for word in re.findall(r"\w+", file.read_text())}
    assert not set(re.findall(r"`([A-Za-z_]\w*)`", recipe)) - words, title
