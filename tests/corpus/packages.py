"""Installs the packages that contain the corpora: `python -m tests.corpus.packages DIRECTORY`.

`MCP_GATEWAY_TEST_CORPUS` is that directory for the tests. With `--all`, every server is installed, otherwise only those
of the sample. Requires Node.js (`tests/node.py`). `uv` on the PATH is used instead of pip.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from gateway.json_types import Json
from tests.node import find_node, npm
from tests.programs import need_named_by, skip_or_fail

HERE: Final = Path(__file__).parent
SCHEMA_SUITE: Final = "jsonschema-4.26.0"
"""The source distribution that contains JSON-Schema-Test-Suite."""
COMPOSE_LINT: Final = "compose_lint-0.36.2"
"""A source distribution with compose files."""
_SECONDS: Final = 600


def directory() -> Path:
    return Path(need_named_by("MCP_GATEWAY_TEST_CORPUS", what="a directory that `tests.corpus.packages` filled"))


def node() -> Path:
    return find_node() or skip_or_fail("needs Node.js")


def servers(*, is_whole: bool = True) -> dict[str, Json]:
    """Return all published servers by name, or those of the sample."""
    table = json.loads((HERE / "servers.json").read_text(encoding="utf-8"))
    return {name: entry for name, entry in table.items() if is_whole or entry.get("sample")}


def install(target: Path, *, is_whole: bool) -> None:
    target.mkdir(parents=True, exist_ok=True)
    chosen = servers(is_whole=is_whole)
    python = {name: str(entry["pypi"]) for name, entry in chosen.items() if "pypi" in entry}
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(_install_from_npm, target, [str(e["npm"]) for e in chosen.values() if "npm" in e])]
        waiting += [threads.submit(_fetch_source, target, each) for each in (SCHEMA_SUITE, COMPOSE_LINT)]
        waiting += [threads.submit(_install_from_pypi, target / "python" / name, each) for name, each in python.items()]
        for each in waiting:
            each.result()


def _install_from_npm(target: Path, names: list[str]) -> None:
    given = json.loads((HERE / "package.json").read_text(encoding="utf-8"))
    given["dependencies"] |= {name: version for name, _, version in (each.rpartition("@") for each in names)}
    (target / "package.json").write_text(json.dumps(given), encoding="utf-8")
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--silent"]
    _run([*npm(node()), "install", *flags], cwd=target)


def _fetch_source(target: Path, distribution: str) -> None:
    name, _, version = distribution.rpartition("-")
    flags: list[str | Path] = ["--quiet", "--no-deps", "--no-binary", name, "--dest", target]
    _run([*_pip(), "download", *flags, f"{name}=={version}"], cwd=target)
    with tarfile.open(target / f"{distribution}.tar.gz") as archive:
        archive.extractall(target, filter="data")


def _install_from_pypi(target: Path, requirement: str) -> None:
    """Install a server into a separate environment, because servers need different versions of the same packages."""
    if uv := shutil.which("uv"):
        _run([uv, "venv", "--quiet", "--python", sys.executable, target], cwd=HERE)
        _run([uv, "pip", "install", "--quiet", "--python", target, requirement], cwd=HERE)
    else:
        _run([sys.executable, "-m", "venv", "--without-pip", target], cwd=HERE)
        _run([*_pip(), "--python", target, "install", "--quiet", requirement], cwd=HERE)


def _pip() -> list[str]:
    python = next(_pythons_with_pip(), None)
    return [python, "-m", "pip"] if python else skip_or_fail("needs pip")


def _pythons_with_pip() -> Iterator[str]:
    for python in (sys.executable, "python3"):
        if subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
            yield python


def _run(command: Sequence[str | Path], *, cwd: Path) -> None:
    environment = {**os.environ, "UV_SYSTEM_CERTS": "true"}
    subprocess.run(command, cwd=cwd, env=environment, check=True, timeout=_SECONDS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Install the packages that the corpora come from.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--all", action="store_true", help="install all servers instead of the sample")
    given = parser.parse_args()
    install(given.directory.resolve(), is_whole=given.all)
