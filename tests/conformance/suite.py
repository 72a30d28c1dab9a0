"""The official conformance suite: installation and runs."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from gateway.json_types import Json
from tests.node import SECONDS, NodePackage, find_package
from tests.programs import skip_or_fail

HERE: Final = Path(__file__).parent
PACKAGE: Final = "@modelcontextprotocol/conformance"

_RUN_DIRECTORY: Final = re.compile(r"(server-)?(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
_CLIENT: Final = HERE / "client_under_test.py"
_CLIENT_SECONDS: Final = 600
"""The time limit of a client, which includes waiting for other scenarios (`client_under_test.py`)."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """The result of one check of a scenario."""

    scenario: str
    name: str
    status: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Suite:
    node: Path
    bundle: Path

    def run(self, url: str, selection: list[str], *, output: Path) -> list[Check]:
        """Run scenarios against a server, and return the checks of each scenario."""
        return self._run("server", "--url", url, *selection, output=output, seconds=SECONDS)

    def run_client(self, selection: list[str], *, output: Path) -> list[Check]:
        """Run scenarios with the gateway as a client, and return the checks of each scenario."""
        command = f"{sys.executable} {_CLIENT}"  # the suite splits the command at spaces
        timeout = ("--timeout", f"{_CLIENT_SECONDS * 1000}")
        return self._run("client", "--command", command, *timeout, *selection, output=output, seconds=_CLIENT_SECONDS)

    def _run(self, *words: str, output: Path, seconds: float) -> list[Check]:
        command: list[str | Path] = [self.node, self.bundle, *words, "-o", output]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        files = sorted(output.rglob("checks.json"))
        assert files, done.stdout + done.stderr
        return [check for file in files for check in _checks(file, output)]

    def schemas(self) -> dict[str, dict[str, Json]]:
        """Return the schemas of all revisions except 2024-11-05, which the suite does not contain."""
        command = [self.node, HERE / "schemas.mjs", self.bundle]
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)
        schemas: dict[str, dict[str, Json]] = json.loads(done.stdout)
        return schemas


def the_suite() -> Suite:
    """Return the suite. If it is not available, skip the test, or fail it in CI."""
    found = find_suite()
    return found if isinstance(found, Suite) else skip_or_fail(found)


@cache
def find_suite() -> Suite | str:
    """Return the suite, or the reason why it is missing."""
    found = find_package(HERE, name=PACKAGE, variable="MCP_GATEWAY_TEST_CONFORMANCE")
    if not isinstance(found, NodePackage):
        return found
    bundle = found.directory / "dist" / "index.js"
    return Suite(node=found.node, bundle=bundle) if bundle.is_file() else f"no conformance suite in {found.directory}"


def _checks(file: Path, output: Path) -> list[Check]:
    match = _RUN_DIRECTORY.fullmatch(file.parent.relative_to(output).as_posix())
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
