"""Socket activation: the daemon uses sockets of another process, and leaves them open for its successor."""

import asyncio
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.daemon import TIMEOUT_SECONDS, post_call, serving, text_of
from tests.ports import free_port
from tests.programs import need

FILE = """\
tools:
  echo: {description: Repeat a text., input: {text: string}, content: [{text: "{{ text }}"}]}
  look: {description: Prints the environment., shell: {script: "env; ls -l /proc/self/fd"}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    config = tmp_path / "config.yaml"
    config.write_text(FILE)
    return config


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def url_of(listening: socket.socket, path: str = "/mcp") -> str:
    return f"http://127.0.0.1:{listening.getsockname()[1]}{path}"


async def test_inherited_socket_is_served(config: Path, listening: socket.socket) -> None:
    async with serving(config, sockets=[listening]) as daemon, aiohttp.ClientSession() as client:
        assert await daemon.url() == url_of(listening)
        assert text_of(await post_call(client, url_of(listening), "echo", text="x")) == "x"


async def test_connection_waits_for_the_next_daemon(config: Path, listening: socket.socket) -> None:
    async with aiohttp.ClientSession() as client:
        early = asyncio.create_task(post_call(client, url_of(listening), "echo", text="early"))
        async with serving(config, sockets=[listening]) as first:
            assert text_of(await early) == "early"
            first.signal(signal.SIGTERM)
            assert await first.exit_code() == 0
        between = asyncio.create_task(post_call(client, url_of(listening), "echo", text="between"))
        async with serving(config, sockets=[listening]):
            assert text_of(await between) == "between"


async def test_child_does_not_inherit_the_socket_or_its_variables(config: Path, listening: socket.socket) -> None:
    async with serving(config, sockets=[listening]) as daemon, aiohttp.ClientSession() as client:
        await daemon.url()
        seen = text_of(await post_call(client, url_of(listening), "look"))
        assert "LISTEN_" not in seen
        assert "socket:" not in seen


async def test_inherited_sockets_are_distinguished_by_name(config: Path, listening: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as admin, socket.create_server(("127.0.0.1", 0)) as second:
        sockets = [listening, admin, second]
        async with (
            serving(config, sockets=sockets, names="gateway.socket:admin:other") as daemon,
            aiohttp.ClientSession() as client,
        ):
            await daemon.url()
            for main in (listening, second):
                assert text_of(await post_call(client, url_of(main), "echo", text="x")) == "x"
                async with client.get(url_of(main, "/-/ready")) as response:
                    assert response.status == 404
            async with client.get(url_of(admin, "/-/ready")) as response:
                assert response.status == 200


async def test_unix_socket_is_served(config: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "gateway.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        async with (
            serving(config, sockets=[listening]) as daemon,
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as client,
        ):
            event = await daemon.event("listening")
            assert (event["url"], event["sockets"]) == ("http://localhost/mcp", [path])
            assert text_of(await post_call(client, event["url"], "echo", text="x")) == "x"


async def test_proxy_on_a_unix_socket_is_trusted_if_configured(config: Path, tmp_path: Path) -> None:
    config.write_text(f'listen: {{trusted_proxies: ["unix:"], allowed_hosts: [tools.example.com]}}\n{FILE}')
    path = str(tmp_path / "gateway.sock")
    headers = {"X-Forwarded-Host": "tools.example.com", "X-Forwarded-For": "203.0.113.7"}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        async with (
            serving(config, sockets=[listening]) as daemon,
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(path), headers=headers) as client,
        ):
            await daemon.url()
            assert text_of(await post_call(client, "http://backend/mcp", "echo", text="x")) == "x"


async def test_inherited_socket_beyond_loopback_requires_a_setting(config: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listening:
        async with serving(config, sockets=[listening]) as daemon:
            assert await daemon.exit_code() == 2
    assert "--allow-anonymous" in "".join(daemon.errors)


async def test_non_listening_socket_is_rejected(config: Path) -> None:
    with ExitStack() as stack:
        unbound = stack.enter_context(socket.socket())
        datagrams = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        for each in (unbound, datagrams):
            async with serving(config, sockets=[each]) as daemon:
                assert await daemon.exit_code() == 2
            assert "LISTEN_FDS: descriptor 3 is not a listening stream socket" in "".join(daemon.errors)


async def test_socket_variables_of_another_process_are_ignored(config: Path) -> None:
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "MCP_GATEWAY_HTTP": "127.0.0.1:0"}
    async with serving(config, environment=environment) as daemon, aiohttp.ClientSession() as client:
        assert text_of(await post_call(client, await daemon.url(), "echo", text="x")) == "x"


@pytest.mark.build
async def test_systemd_socket_activation_starts_the_daemon(config: Path) -> None:
    program = need("systemd-socket-activate")
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(program, "--listen", f"127.0.0.1:{port}", sys.executable, "-m", "gateway", "serve", str(config)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession() as client, asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                try:
                    answer = await post_call(client, f"http://127.0.0.1:{port}/mcp", "echo", text="x")
                except aiohttp.ClientConnectorError:
                    await asyncio.sleep(0.02)  # it is not listening yet
                else:
                    break
        assert text_of(answer) == "x"
        process.terminate()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
