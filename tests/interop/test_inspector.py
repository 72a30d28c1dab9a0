"""The command line of the official Inspector verifies every example skill, and reads a tool's page."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Final

import pytest

from gateway.json_types import Json
from tests.e2e.daemon import serving
from tests.node import SECONDS, NodePackage

pytestmark = pytest.mark.build

HERE: Final = Path(__file__).parent
CONFIG: Final = HERE.parents[1] / "config"


async def inspect(inspector: NodePackage, config: Path, *words: str) -> tuple[int, list[Json]]:
    """Run `mcp-inspector --cli` against a daemon, and return the exit code and the printed lines of JSON."""
    launcher = inspector.directory / "clients" / "launcher" / "build" / "index.js"
    async with serving(config, "--http", "127.0.0.1:0") as daemon:
        url = await daemon.url()
        command = [str(inspector.node), str(launcher), "--cli", url, "--transport", "http", *words]
        done = await asyncio.to_thread(_run, command)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.parametrize("file", ["everything.yaml", "examples/skills.yaml"])
async def test_every_skill_is_verified_with_its_digests(inspector: NodePackage, file: str) -> None:
    words = ("--protocol-era", "modern", "--method", "skills/list", "--verify", "--require-digests")
    code, reports = await inspect(inspector, CONFIG / file, *words)
    assert code == 0, reports
    assert reports
    for report in reports:
        assert (report["outcome"], report["conformance"], report["frontmatter"]) == ("verified", [], [])
        assert len(report["files"]) == 3
        assert {each["status"] for each in report["files"]} == {"verified"}


async def test_skill_with_a_wrong_digest_fails_the_check(inspector: NodePackage, tmp_path: Path) -> None:
    """Control: the verifier reads the content of the page."""
    (tmp_path / "skills" / "a").mkdir(parents=True)
    (tmp_path / "skills" / "a" / "SKILL.md").write_text(
        "---\nname: a\ndescription: A secret-to-mask.\n---\nsecret-to-mask\n"
    )
    (tmp_path / "key").write_text("secret-to-mask")
    (tmp_path / "config.yaml").write_text(
        "skills: [skills/*]\nconnections: {c: {base_url: 'http://h', headers: {X-Key: '${file:key}'}}}\n"
    )
    words = ("--protocol-era", "modern", "--method", "skills/list", "--verify", "--require-digests")
    code, [report] = await inspect(inspector, tmp_path / "config.yaml", *words)
    assert (code, report["ok"]) == (7, False)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_page_of_a_tool_is_read_with_its_metadata(inspector: NodePackage, era: str) -> None:
    words = ("--protocol-era", era, "--method", "tools/call", "--tool-name", "sales", "--app-info")
    code, [info] = await inspect(inspector, CONFIG / "examples" / "app.yaml", *words)
    assert code == 0
    assert info == {
        "hasApp": True,
        "toolName": "sales",
        "resourceUri": "ui://examples/sales.html",
        "visibility": ["model", "app"],
        "csp": {"connectDomains": [], "resourceDomains": []},
        "prefersBorder": True,
        "resourceMimeType": "text/html;profile=mcp-app",
    }
