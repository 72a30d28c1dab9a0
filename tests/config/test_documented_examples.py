"""Every YAML block of the language's description loads."""

import re
from pathlib import Path
from typing import Final

import jsonschema_rs
import pytest

from gateway.config.loader import load
from gateway.config.reading.composer import compose
from gateway.config.reading.nodes import plain
from gateway.config.reading.source_file import SourceFile
from gateway.config.schema import document_schema
from gateway.errors import ConfigError, Problem

DESCRIPTION: Final = Path(__file__).parents[3] / "shared" / "CONFIG.md"
BLOCKS: Final = (
    re.findall(r"^```ya?ml\n(.*?)^```", DESCRIPTION.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    if DESCRIPTION.is_file()
    else []
)

pytestmark = pytest.mark.skipif(not BLOCKS, reason="the language description is not available")


@pytest.fixture
def environ() -> dict[str, str]:
    return dict.fromkeys(re.findall(r"\$\{env:(\w+)\}", "".join(BLOCKS)), "value")


def with_local_files(block: str, folder: Path) -> str:
    """Return the block with `${file:…}` pointing into the test's folder instead of `/run/secrets`."""
    secret = folder / "secret"
    secret.write_text("value", encoding="utf-8")
    return re.sub(r"\$\{file:[^}]+\}", f"${{file:{secret}}}", block)


def problems_of(main: Path, environ: dict[str, str]) -> tuple[Problem, ...]:
    try:
        return load(main, environ=environ).problems
    except ConfigError as error:
        return error.problems


@pytest.mark.parametrize("block", BLOCKS)
def test_documented_block_is_loaded(tmp_path: Path, block: str, environ: dict[str, str]) -> None:
    main = tmp_path / "config.yaml"
    main.write_text(with_local_files(block, tmp_path), encoding="utf-8")
    others = [problem for problem in problems_of(main, environ) if problem.message != "not supported by this version"]
    assert others == []


@pytest.mark.parametrize("block", BLOCKS)
def test_schema_accepts_documented_blocks(block: str) -> None:
    root, _ = compose(SourceFile(DESCRIPTION, block))
    assert root is not None
    validator = jsonschema_rs.Draft202012Validator(document_schema())
    assert [error.message for error in validator.iter_errors(plain(root))] == []
