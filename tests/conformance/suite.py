"""The official conformance suite: where it is installed, and one run of it."""

import json
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from gateway.json_types import Json
from tests.node import SECONDS, NodePackage, find_package
from tests.programs import do_without

HERE: Final = Path(__file__).parent
PACKAGE: Final = "@modelcontextprotocol/conformance"

_RUN_DIRECTORY: Final = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that a scenario looked at."""

    scenario: str
    name: str
    status: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Suite:
    node: Path
    bundle: Path

    def run(self, url: str, selection: list[str], *, output: Path) -> list[Check]:
        """Run scenarios against a server, and return every check of each. What failed is theirs to say, not ours."""
        command: list[str | Path] = [self.node, self.bundle, "server", "--url", url, *selection, "-o", output]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        files = sorted(output.rglob("checks.json"))
        assert files, done.stdout + done.stderr
        return [check for file in files for check in _checks(file)]

    def schemas(self) -> dict[str, dict[str, Json]]:
        """The protocol's schemas by revision, as the suite carries them; 2024-11-05 is not among them."""
        command = [self.node, HERE / "schemas.mjs", self.bundle]
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)
        schemas: dict[str, dict[str, Json]] = json.loads(done.stdout)
        return schemas


def the_suite() -> Suite:
    """The suite; without it the test is skipped, and in CI fails."""
    found = find_suite()
    return found if isinstance(found, Suite) else do_without(found)


@cache
def find_suite() -> Suite | str:
    """The suite, or why there is none."""
    found = find_package(HERE, name=PACKAGE, variable="MCP_GATEWAY_TEST_CONFORMANCE")
    if not isinstance(found, NodePackage):
        return found
    bundle = found.directory / "dist" / "index.js"
    return Suite(node=found.node, bundle=bundle) if bundle.is_file() else f"no conformance suite in {found.directory}"


def _checks(file: Path) -> list[Check]:
    match = _RUN_DIRECTORY.fullmatch(file.parent.name)
    assert match is not None, file
    return [
        Check(
            scenario=match["scenario"],
            name=check["id"],
            status=check["status"],
            reason=check.get("errorMessage") or check["description"],
        )
        for check in json.loads(file.read_text())
    ]
