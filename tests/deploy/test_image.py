"""The image builds from its Dockerfile, and serves."""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.deploy.files import DEPLOY
from tests.deploy.image import ENVIRON, ImageBuilder
from tests.ports import free_port
from tests.programs import need, need_named_by

pytestmark = pytest.mark.build

MCP: Final = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28"}
LIST: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/list",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        }
    },
}


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageBuilder]:
    """A builder with the built image."""
    base = need_named_by("MCP_GATEWAY_TEST_BASE", what="a directory with Debian and Python (see .ci/run)")
    builder = ImageBuilder(buildah=need("buildah"), folder=tmp_path_factory.mktemp("images"))
    try:
        builder.make_base(Path(base))
        builder.build()
        yield builder
    finally:
        builder.clear()


@pytest.fixture(scope="module")
def container(builder: ImageBuilder) -> str:
    """A container that all tests share, because its user cannot write to any path."""
    return builder.container()


@asynccontextmanager
async def running(command: Sequence[str], *, url: str, said: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """Start a container, and yield it once it is ready. Then stop its first process, as an orchestrator does."""
    with said.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, env=ENVIRON, stdout=log, stderr=log, start_new_session=True
        )
    try:
        async with aiohttp.ClientSession(url) as session, asyncio.timeout(60):
            while not await is_ready(session):
                assert process.returncode is None, said.read_text()
                await asyncio.sleep(0.1)
            yield session
    finally:
        first = await output_of(["pgrep", "-s", str(process.pid), "-x", "tini"])
        os.kill(int(first), signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await process.wait() == 0, said.read_text()
    assert '"event":"stopping"' in said.read_text()


async def output_of(command: Sequence[str]) -> str:
    """Return the output of a successful command."""
    process = await asyncio.create_subprocess_exec(*command, env=ENVIRON, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert process.returncode == 0, command
    return out.decode()


async def is_ready(session: aiohttp.ClientSession) -> bool:
    try:
        async with session.get("/-/ready") as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


def command_of(facts: dict[str, Any], port: int) -> list[str]:
    """Return the image's command with a free port."""
    words = [*facts["Entrypoint"], *facts["Cmd"]]
    assert words[-1] == "0.0.0.0:8000"
    return [*words[:-1], f"0.0.0.0:{port}"]


async def names(session: aiohttp.ClientSession, **headers: str) -> list[str]:
    fields = {**MCP, "Mcp-Method": "tools/list", **headers}
    async with session.post("/mcp", json=LIST, headers=fields) as response:
        assert response.status == 200, await response.text()
        return [tool["name"] for tool in (await response.json())["result"]["tools"]]


async def test_image_serves_the_demo_publicly_if_configured(
    builder: ImageBuilder, container: str, tmp_path: Path
) -> None:
    port, facts = free_port(), builder.facts()
    allowed = ("--env", "MCP_GATEWAY_ALLOW_ANONYMOUS=true")
    command = builder.inside(container, command_of(facts, port), *allowed)
    async with running(command, url=f"http://127.0.0.1:{port}", said=tmp_path / "log") as session:
        assert "disk_usage" in await names(session)
        probe = facts["Healthcheck"]["Test"]
        assert probe[0] == "CMD"
        words = [word.replace(":8000", f":{port}") for word in probe[1:]]
        await output_of(builder.inside(container, words))


def test_image_requires_auth_by_default(builder: ImageBuilder, container: str) -> None:
    command = builder.inside(container, command_of(builder.facts(), free_port()))
    done = subprocess.run(command, env=ENVIRON, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "--allow-anonymous" in done.stderr


async def test_image_serves_the_mounted_configuration_with_a_key(
    builder: ImageBuilder, container: str, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in ("signing_key", "team_key", "operator_key"):
        (secrets / name).write_text(f"{name}-of-a-test-long-enough\n")
    port = free_port()
    options = [
        *("--volume", f"{DEPLOY / 'compose' / 'config'}:/etc/mcp-gateway:ro"),
        *("--volume", f"{secrets}:/run/secrets:ro"),
        *("--env", "MCP_GATEWAY_SECRET_KEY_FILE=/run/secrets/signing_key"),
    ]
    command = builder.inside(container, command_of(builder.facts(), port), *options)
    async with running(command, url=f"http://127.0.0.1:{port}", said=tmp_path / "log") as session:
        assert await names(session, Authorization="Bearer team_key-of-a-test-long-enough") == ["uptime"]
        async with session.post("/mcp", json=LIST, headers=MCP) as response:
            assert response.status == 401


def test_image_user_owns_no_program_files(builder: ImageBuilder, container: str) -> None:
    script = "id -u; touch /etc/mcp-gateway/x /opt/mcp-gateway/x 2>/dev/null && echo wrote"
    command = builder.inside(container, ["sh", "-c", script])
    done = subprocess.run(command, env=ENVIRON, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["10001"]


def test_image_has_command_port_and_health_check(builder: ImageBuilder) -> None:
    facts = builder.facts()
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", facts["User"])
    assert facts["WorkingDir"] == "/etc/mcp-gateway"
    assert list(facts["ExposedPorts"]) == ["8000/tcp"]
