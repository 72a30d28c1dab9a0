"""`mcp-gateway tasks` against a running server, and the tasks in `status`."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Final

from gateway.json_types import Json
from tests.e2e.test_tasks_over_restarts import TESTDATA, served
from tests.fork_server import FORKED

SECONDS: Final = 30


async def typed(*words: str) -> tuple[int, str, str]:
    """Run a command, and return its exit code and output."""
    process = await asyncio.create_subprocess_exec(
        FORKED, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(SECONDS):
        out, errors = await process.communicate()
    return await process.wait(), out.decode(), errors.decode()


async def test_required_task_can_be_called_from_the_command_line(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "tools:\n"
        "  job: {description: Works., shell: {script: 'echo done'}, task: required}\n"
        "  asks: {description: Asks., content: done, confirm: Really?, task: required}\n"
    )
    assert await typed("call", str(config), "job") == (0, "done\n", "")
    code, out, errors = await typed("call", str(config), "asks")
    assert (code, out) == (1, "")
    assert "elicitation" in errors


async def test_operators_list_show_and_cancel_tasks(tmp_path: Path) -> None:
    folder = shutil.copytree(TESTDATA, tmp_path / "tasks")
    config = folder / "config.yaml"
    config.write_text(config.read_text() + "audit: {file: audit.log}\n")
    async with served(folder) as now:
        code, out, errors = await typed("tasks", "--url", now.url)
        assert (code, out, errors) == (0, "", "No tasks.\n")
        waiting = await now.start("asks_both")
        await now.until(waiting, "input_required")
        running = await now.start("waits", file=str(tmp_path / "never"))
        code, out, errors = await typed("tasks", "list", "--url", now.url)
        assert (code, errors) == (0, "")
        assert [line.split()[:3] for line in out.splitlines()] == [
            [running, "waits", "working"],
            [waiting, "asks_both", "input_required"],
        ]
        code, out, _ = await typed("tasks", "show", waiting, "--url", now.url, "--json")
        shown: dict[str, Json] = json.loads(out)
        assert (shown["tool"], shown["waitsFor"].keys()) == ("asks_both", {"one", "other"})
        code, out, _ = await typed("tasks", "cancel", running, "--url", now.url)
        assert (code, "cancelled" in out) == (0, True)
        task = await now.until(running, "cancelled")
        assert task["statusMessage"] == "Cancelled by the server's operator"
        code, _, errors = await typed("tasks", "show", "unknown", "--url", now.url)
        assert (code, errors.endswith("returned 404 Not Found: unknown task\n")) == (1, True)
        code, _, errors = await typed("tasks", "show")
        assert (code, "expected one id" in errors) == (2, True)
        code, _, errors = await typed("tasks", running)
        assert (code, "expected `list`, `show ID` or `cancel ID`" in errors) == (2, True)
        code, out, _ = await typed("status", "--url", now.url)
        assert "input_required 1, cancelled 1" in out
    records = [json.loads(line) for line in (folder / "audit.log").read_text().splitlines()]
    of_tasks = [(each["name"], each["status"]) for each in records if each["event"] == "task"]
    assert of_tasks == [
        ("asks_both", "input_required"),
        ("waits", "working"),
        ("waits", "cancelled"),
    ]
    assert {each["task"] for each in records if each["event"] == "task"} == {waiting[:8], running[:8]}
