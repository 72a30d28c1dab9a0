"""Errors at startup, and the reported addresses."""

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.daemon import call, post_call, serving, text_of


async def test_chosen_port_is_logged_and_served(config: Path) -> None:
    async with serving(config) as daemon, aiohttp.ClientSession() as client:
        url = await daemon.url()
        assert not url.endswith(":0/mcp")
        for path, key in (("healthy", "healthy"), ("ready", "ready")):
            async with client.get(url.replace("/mcp", f"/-/{path}")) as response:
                assert (await response.json())[key] is True
        async with client.get(url.replace("/mcp", "/-/status")) as response:
            status = await response.json()
        assert status["tools"]["echo"] == "content"
        assert status["tools"]["deaf"] == "shell"
        assert status["generation"] == 1


async def test_port_in_use_is_a_clear_error(config: Path) -> None:
    async with serving(config) as first:
        taken = (await first.url()).removeprefix("http://").removesuffix("/mcp")
        async with serving(config, "--http", taken) as second:
            assert await second.exit_code() == 2
        said = "".join(second.errors)
        assert f"--http: {taken} is already in use. Choose another address" in said
        assert "with `--http HOST:PORT`" in said
        assert "Traceback" not in said


async def test_listening_beyond_loopback_requires_auth_or_a_setting(config: Path) -> None:
    async with serving(config, "--http", "0.0.0.0:0") as daemon:
        assert await daemon.exit_code() == 2
    assert "--allow-anonymous" in "".join(daemon.errors)
    async with serving(config, "--http", "0.0.0.0:0", "--allow-anonymous") as daemon:
        assert (await daemon.event("serving without authentication"))["level"] == "warning"
        await daemon.url()


async def test_ipv6_is_served(config: Path) -> None:
    async with serving(config, "--http", "[::1]:0") as daemon, aiohttp.ClientSession() as client:
        try:
            url = await daemon.url()
        except AssertionError:
            pytest.skip("this machine has no IPv6 loopback")
        assert url.startswith("http://[::1]:")
        async with client.get(url.replace("/mcp", "/-/ready")) as response:
            assert response.status == 200


async def test_connections_leave_descriptors_for_children_and_reloads(config: Path) -> None:
    few = ("/bin/sh", "-c", 'ulimit -n 96; exec "$@"', "sh")
    async with serving(config, launcher=few) as daemon, aiohttp.ClientSession() as client, AsyncExitStack() as stack:
        url = await daemon.url()
        assert text_of(await post_call(client, url, "echo", text="first")) == "first"  # the connection stays open
        status = await (await client.get(url.replace("/mcp", "/-/status"))).json()
        port = int(url.removesuffix("/mcp").rpartition(":")[2])
        for _ in range(status["limits"]["connections"]["limit"] + 20):  # more connections than allowed
            connection = stack.enter_context(socket.socket())
            connection.connect(("127.0.0.1", port))
        async with asyncio.timeout(20):
            while status["limits"]["connections"]["used"] < status["limits"]["connections"]["limit"]:
                status = await (await client.get(url.replace("/mcp", "/-/status"))).json()
        calls = [post_call(client, url, "shout"), client.post(url.replace("/mcp", "/-/reload"))]
        assert "out" in text_of(await calls[0])
        reloaded = await calls[1]
        assert reloaded.status == 200, await reloaded.text()


@pytest.mark.parametrize(("limit", "warns"), [("1024", True), ("4096", False)])
async def test_low_limit_of_open_files_is_a_warning(config: Path, limit: str, *, warns: bool) -> None:
    async with serving(config, launcher=("prlimit", f"--nofile={limit}:{limit}")) as daemon:
        await daemon.url()
        assert any("the limit for open files allows only a few connections" in line for line in daemon.errors) is warns


async def test_stdio_only_opens_no_port(config: Path) -> None:
    async with serving(config, "--stdio") as daemon:
        assert text_of(await daemon.ask(call("echo", text="x"))) == "x"
        assert not any('"listening"' in line for line in daemon.errors)


async def test_invalid_file_is_not_served(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("tools:\n  x: {shel: {command: [true]}}\n")
    async with serving(path) as daemon:
        assert await daemon.exit_code() == 2
    assert "config.yaml:2" in "".join(daemon.errors)


async def test_weak_signing_key_is_reported_and_not_shown(config: Path) -> None:
    async with serving(config, environment={"MCP_GATEWAY_SECRET_KEY": "hunter2"}) as daemon:
        warning = await daemon.event("the signing key is too short")
        assert (warning["level"], warning["variable"]) == ("warning", "MCP_GATEWAY_SECRET_KEY")
        await daemon.url()
    assert "hunter2" not in "".join(daemon.errors)


async def test_replica_with_a_different_key_warns_and_serves(config: Path) -> None:
    environment = {"MCP_GATEWAY_STORE": "redis://127.0.0.1:1", "MCP_GATEWAY_STATE_DIR": "none"}
    async with serving(config, environment=environment) as daemon:
        warning = await daemon.event("replicas on other machines need the same signing key")
        assert (warning["level"], warning["variable"]) == ("warning", "MCP_GATEWAY_SECRET_KEY")
        assert await daemon.url()
