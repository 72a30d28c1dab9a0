"""The installation page works as written, in a copy of the checkout."""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.docs.guide import INSTALL, Typed, steps_of, wait_for
from tests.ports import free_port
from tests.programs import need, need_named_by

pytestmark = pytest.mark.build

PROJECT: Final = Path(__file__).parents[2]
SOURCES: Final = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md")
FOLDERS: Final = ("gateway", "config", "plugins")
URL: Final = "https://git.example.com/mcp-gateway"
SECONDS: Final = 900
"""Each installation fetches packages."""


def test_installation_page_and_readme_work_as_written(tmp_path: Path) -> None:
    need("git")
    tools = need_named_by("MCP_GATEWAY_TEST_TOOLS", what="a directory with uv and pipx")
    checkout = tmp_path / "mcp-gateway"
    checkout.mkdir()
    for name in SOURCES:
        shutil.copy(PROJECT / name, checkout)
    for name in FOLDERS:
        shutil.copytree(PROJECT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "Copy")):
        subprocess.run(["git", *words], cwd=checkout, timeout=SECONDS, check=True)
    environ = {
        **os.environ,
        "HOME": str(tmp_path),
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PIP_CACHE_DIR": str(Path.home() / ".cache" / "pip"),
    }
    steps = list(steps_of(INSTALL.read_text()))
    assert steps
    _serve_the_demo(checkout, environ)
    for step in steps:
        assert isinstance(step, Typed)
        done = subprocess.run(
            ["bash", "-e", "-c", step.command.replace(URL, f"file://localhost{checkout}")],
            cwd=checkout,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"$ {step.command}\n{done.stdout}"
        assert step.matches(done.stdout), f"$ {step.command}\n{done.stdout}"


def _serve_the_demo(checkout: Path, environ: Mapping[str, str]) -> None:
    """Run the first command of the README until the server listens."""
    command = next(line for line in (checkout / "README.md").read_text().splitlines() if "serve config/demo" in line)
    port = free_port()
    log = checkout.with_name("demo.log")
    with log.open("w") as output:
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=checkout,
            env={**environ, "MCP_GATEWAY_HTTP": f"127.0.0.1:{port}"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_for(port, process, log, seconds=SECONDS)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(SECONDS)
