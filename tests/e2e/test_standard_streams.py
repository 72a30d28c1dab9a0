"""A daemon over stdio writes only messages to standard output, and ends with its input."""

import asyncio
import os
from pathlib import Path

import orjson
import pytest

from tests.e2e.daemon import call, serving, text_of
from tests.fork_server import FORKED
from tests.messages import modern_request
from tests.programs import is_running
from tests.waiting import until


async def test_standard_output_contains_only_messages(config: Path) -> None:
    async with serving(config, "--stdio") as daemon:
        assert text_of(await daemon.ask(call("noisy", text="hello"))) == "hello"
        assert text_of(await daemon.ask(call("shout"))).strip() == "out"
        answer = await daemon.ask(call("quits"))
        assert answer["result"]["isError"] is True
        daemon.hang_up()
        assert await daemon.rest() == []
        assert await daemon.exit_code() == 0
    said = "".join(daemon.errors)
    assert "import: this must not reach the wire" in said
    assert "call: straight to the descriptor" in said
    assert "a child of a plugin" in said


async def test_end_of_input_ends_the_process_and_its_children(config: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with serving(config, "--stdio") as daemon:
        daemon.send(call("deaf", path=str(pids)), call("stuck", request_id=2))
        await written(pids)
        daemon.hang_up()
        assert await daemon.exit_code(within=15) == 0
    for pid in pids.read_text().split():
        assert not is_running(int(pid))


async def test_end_of_input_without_calls_ends_the_process_at_once(config: Path) -> None:
    async with serving(config, "--stdio") as daemon:
        await daemon.ask(modern_request("tools/list"))
        daemon.hang_up()
        assert await daemon.exit_code(within=8) == 0


async def test_lines_of_megabytes_are_read_and_written(config: Path) -> None:
    text = "ü" * 600_000
    async with serving(config, "--stdio") as daemon:
        answer = await daemon.ask(call("noisy", text=text[:100_000]))
        assert "result" in answer
        assert "result" in await daemon.ask(call("echo", text=text))


async def test_file_as_standard_input_is_processed_line_by_line(config: Path, tmp_path: Path) -> None:
    requests = tmp_path / "requests"
    requests.write_bytes(b"".join(orjson.dumps(call("echo", text="x", request_id=n)) + b"\n" for n in range(50)))
    with requests.open("rb") as file:
        process = await asyncio.create_subprocess_exec(
            *(FORKED, "serve", str(config), "--stdio"),
            stdin=file,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    async with asyncio.timeout(30):
        output, _ = await process.communicate()
    assert sorted(orjson.loads(line)["id"] for line in output.splitlines()) == list(range(50))
    assert process.returncode == 0


async def test_closed_standard_output_ends_the_process(config: Path) -> None:
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(FORKED, "serve", str(config), "--stdio"),
        stdin=asyncio.subprocess.PIPE,
        stdout=writing,
        stderr=asyncio.subprocess.DEVNULL,
    )
    os.close(writing)
    os.close(reading)
    assert process.stdin is not None
    process.stdin.write(orjson.dumps(modern_request("tools/list")) + b"\n")
    async with asyncio.timeout(30):
        assert await process.wait() == 0
    process.stdin.close()


async def test_http_and_stdio_are_served_together(config: Path) -> None:
    async with serving(config, "--stdio", "--http", "127.0.0.1:0") as daemon:
        assert (await daemon.url()).endswith("/mcp")
        assert text_of(await daemon.ask(call("echo", text="both"))) == "both"
        daemon.hang_up()
        assert await daemon.exit_code() == 0


async def written(path: Path) -> None:
    """Wait until the file has a complete line."""
    await until(lambda: path.exists() and path.read_text().endswith("\n"))


@pytest.mark.parametrize(
    ("flags", "names"),
    [([], ["open", "closed"]), (["--scopes", "ops"], ["open", "closed"]), (["--scopes", "a"], ["open"])],
)
async def test_stdio_caller_has_all_or_the_given_scopes(tmp_path: Path, flags: list[str], names: list[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f"auth: {{api_keys: {{ci: {{sha256: {'ab' * 32}}}}}}}\n"
        "tools:\n"
        "  open: {description: For all., content: x}\n"
        "  closed: {description: Not for all., content: x, access: {scopes: [ops]}}\n"
    )
    async with serving(config, "--stdio", *flags) as daemon:
        listed = (await daemon.ask(modern_request("tools/list")))["result"]["tools"]
        assert [tool["name"] for tool in listed] == names
