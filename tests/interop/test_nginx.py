"""All transports and both eras through nginx: with a prefix, TLS, buffering and short timeouts."""

import asyncio
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.certificates import Authority
from tests.e2e.daemon import call, serving
from tests.interop.conftest import Cell, outlast, talk
from tests.interop.nginx import Nginx, nginx
from tests.interop.official_clients import OfficialClients
from tests.interop.test_official_clients_talk import asking, check, edit_of
from tests.messages import (
    BOTH,
    MODERN,
    initialize_request,
    legacy_request,
    modern_headers,
    modern_request,
    open_session,
)
from tests.ports import free_port

pytestmark = pytest.mark.build

CELLS: Final = [
    Cell(line=1, binding="sse", revision="2025-11-25"),
    Cell(line=1, binding="http", revision="2025-11-25"),
    Cell(line=2, binding="http", revision="2026-07-28"),
    Cell(line=2, binding="http", mode="legacy", revision="2025-11-25"),
]
SHORT_TIMEOUTS: Final = {"proxy_read_timeout 10m;": "proxy_read_timeout 2s;"}
"""Timeouts that are shorter than the streams, but longer than the interval of comments."""

HEADERS: Final = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "here"}
INITIALIZED: Final = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@dataclass(frozen=True, kw_only=True)
class Site:
    """The proxy in front of the daemon, and the matching configuration of the daemon."""

    name: str
    is_tls: bool = False
    has_prefix: bool = False
    listen: str = "keepalive: 500ms"

    def __str__(self) -> str:
        return self.name


SITES: Final = [
    Site(name="as it is"),
    Site(
        name="tls and prefix, from the proxy",
        is_tls=True,
        has_prefix=True,
        listen="keepalive: 500ms, trusted_proxies: [127.0.0.1]",
    ),
    Site(
        name="tls and prefix, from the file",
        is_tls=True,
        has_prefix=True,
        listen='keepalive: 500ms, public_url: "https://127.0.0.1:1/ops"',
    ),
]


@pytest.mark.parametrize("site", SITES, ids=str)
@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_official_client_works_behind_nginx_and_gets_changes(
    clients: OfficialClients, cell: Cell, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = asking(tmp_path)
    config.write_text(config.read_text().replace("listen: {", f"listen: {{{site.listen}, "))
    authority = Authority() if site.is_tls else None
    if authority is not None:
        (tmp_path / "authority.pem").write_text(authority.pem)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))

    @asynccontextmanager
    async def front(address: str) -> AsyncIterator[str]:
        proxied = nginx(tmp_path, daemon=address, authority=authority, prefix=site.has_prefix, changes=SHORT_TIMEOUTS)
        async with proxied as it:
            yield it.url

    check(await talk(clients, cell, config, edit=edit_of(tmp_path), front=front))


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell.binding == "http"], ids=str)
async def test_official_client_continues_after_a_proxy_restart(
    clients: OfficialClients, cell: Cell, tmp_path: Path
) -> None:
    """HTTP+SSE is not tested, because its session ends with the stream."""

    async def restart(proxy: Nginx) -> None:
        while not (tmp_path / "go").exists():
            await asyncio.sleep(0.05)
        await proxy.stop()
        await proxy.start()
        (tmp_path / "gone_and_back").touch()

    @asynccontextmanager
    async def front(address: str) -> AsyncIterator[str]:
        async with nginx(tmp_path, daemon=address) as proxy:
            restarting = asyncio.create_task(restart(proxy))
            yield proxy.url
            restarting.cancel()
            await asyncio.wait([restarting])

    seen = await outlast(clients, cell, asking(tmp_path), edit=edit_of(tmp_path), front=front, folder=tmp_path)
    assert seen["before"] == seen["after"] == [False, "counted"]
    assert "renamed" in seen["tools"]


ECHO: Final = """\
listen: {http: "127.0.0.1:0", keepalive: 300ms, trusted_proxies: [127.0.0.1]}
tools:
  echo: {description: Repeat a text., input: {text: string}, content: [{text: "{{ text }}"}]}
  slow: {description: Takes its time., shell: {command: [sleep, "6"], progress: stdout}}
"""


@asynccontextmanager
async def behind(folder: Path, *, prefix: bool = False) -> AsyncIterator[tuple[Nginx, Path, aiohttp.ClientSession]]:
    """A daemon behind nginx, its file, and a client."""
    config = folder / "config.yaml"
    config.write_text(ECHO)
    async with serving(config, watch=True) as daemon:
        address = (await daemon.url()).removeprefix("http://").removesuffix("/mcp")
        async with (
            nginx(folder, daemon=address, prefix=prefix, changes=SHORT_TIMEOUTS) as proxy,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client,
        ):
            yield proxy, config, client


async def session_of(client: aiohttp.ClientSession, url: str) -> dict[str, str]:
    """Open a legacy session, and return its header fields."""
    session = await open_session(client, url)
    async with client.post(url, json=INITIALIZED, headers=session) as response:
        assert response.status == 202
    return session


async def opened(kind: str, url: str, client: aiohttp.ClientSession) -> aiohttp.ClientResponse:
    """Open a stream of this kind."""
    match kind:
        case "GET":
            return await client.get(f"{url}/mcp", headers=await session_of(client, f"{url}/mcp"))
        case "POST":
            body = legacy_request("tools/call", {"name": "slow", "arguments": {}})
            return await client.post(f"{url}/mcp", json=body, headers=await session_of(client, f"{url}/mcp"))
        case "modern POST":
            fields = modern_headers("tools/call", {"name": "slow"}, Accept=BOTH)
            return await client.post(f"{url}/mcp", json=call("slow"), headers=fields)
        case "listen":
            fields = modern_headers("subscriptions/listen", {}, Accept=BOTH)
            body = modern_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            return await client.post(f"{url}/mcp", json=body, headers=fields)
        case _:
            return await client.get(f"{url}/sse", headers={"Accept": BOTH})


@pytest.mark.parametrize("kind", ["GET", "POST", "modern POST", "listen", "HTTP+SSE"])
async def test_stream_starts_at_once_and_outlives_proxy_timeouts(kind: str, tmp_path: Path) -> None:
    async with behind(tmp_path) as (proxy, _, client), await opened(kind, proxy.url, client) as stream:
        assert stream.status == 200
        assert stream.content_type == "text/event-stream"
        assert stream.headers["Cache-Control"] == "no-cache, no-transform"
        assert "Content-Encoding" not in stream.headers
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(20):
            while asyncio.get_running_loop().time() - began < 2.5:  # longer than `SHORT_TIMEOUTS`
                assert await stream.content.readany()


async def test_sse_endpoint_contains_the_proxy_prefix(tmp_path: Path) -> None:
    async with (
        behind(tmp_path, prefix=True) as (proxy, _, client),
        await opened("HTTP+SSE", proxy.url, client) as stream,
        asyncio.timeout(20),
    ):
        assert await stream.content.readline() == b"event: endpoint\n"
        assert (await stream.content.readline()).startswith(b"data: /ops/messages?session_id=")


async def test_forwarding_headers_of_a_client_do_not_pass_the_proxy(tmp_path: Path) -> None:
    claims = {
        "X-Forwarded-Prefix": "/evil",
        "X-Forwarded-Host": "evil.example.com",
        "X-Forwarded-Proto": "gopher",
        "Forwarded": "for=198.51.100.1;host=evil.example.com",
    }
    async with behind(tmp_path) as (proxy, _, client):
        async with client.get(f"{proxy.url}/sse", headers={"Accept": BOTH, **claims}) as stream, asyncio.timeout(20):
            assert await stream.content.readline() == b"event: endpoint\n"
            assert (await stream.content.readline()).startswith(b"data: /messages?session_id=")
        async with client.get(f"{proxy.url}/-/status") as response:
            assert response.status == 404  # the address of nginx is loopback, and those of its clients are not


@pytest.mark.parametrize("listen", ["trusted_proxies: [127.0.0.1]", 'public_url: "https://127.0.0.1:@port@/ops"'])
async def test_resource_metadata_is_reachable_behind_the_proxy(listen: str, tmp_path: Path) -> None:
    authority = Authority()
    config, port = tmp_path / "config.yaml", free_port()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        async with nginx(tmp_path, daemon=address, authority=authority, prefix=True, port=port) as proxy:
            config.write_text(
                f"listen: {{{listen.replace('@port@', str(port))}}}\n"
                "auth: {oauth: {issuer: 'http://127.0.0.1:9', scopes_supported: [a]}}\n"
            )
            connector = aiohttp.TCPConnector(ssl=authority.trusting())
            async with serving(config, sockets=[listening]), aiohttp.ClientSession(connector=connector) as client:
                async with client.post(
                    f"{proxy.url}/mcp", json=initialize_request(), headers={"Accept": BOTH}
                ) as response:
                    assert response.status == 401
                    challenge = response.headers["WWW-Authenticate"]
                url = re.findall(r'resource_metadata="([^"]*)"', challenge)[0]
                assert url.startswith(f"{proxy.url}/")
                async with client.get(url) as response:
                    assert (await response.json())["resource"] == f"{proxy.url}/mcp"
                if "public_url" in listen:  # otherwise the prefix is unknown
                    root = f"https://127.0.0.1:{port}"
                    async with client.get(f"{root}/.well-known/oauth-protected-resource/ops/mcp") as response:
                        assert (await response.json())["resource"] == f"{proxy.url}/mcp"


@pytest.mark.parametrize("kind", ["GET", "listen"])
async def test_clients_reconnect_after_a_proxy_restart_and_get_changes(kind: str, tmp_path: Path) -> None:
    async with behind(tmp_path) as (proxy, config, client):
        url = f"{proxy.url}/mcp"
        session = await session_of(client, url)
        async with await opened(kind, proxy.url, client) as stream:
            assert await stream.content.readany()
            await proxy.stop()
            with suppress(aiohttp.ClientError):
                while await stream.content.readany():
                    pass
        config.write_text(ECHO.replace("slow:", "slower:"))
        await proxy.start()
        stream = await (client.get(url, headers=session) if kind == "GET" else opened(kind, proxy.url, client))
        async with stream, asyncio.timeout(20):
            if kind == "listen":
                config.write_text(ECHO.replace("slow:", "slowest:"))
            while b"tools/list_changed" not in await stream.content.readline():
                pass
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        async with client.post(url, json=body, headers=session) as response:
            assert "slow" in await response.text()  # the session continues


async def test_rolling_replacement_of_two_daemons_loses_no_request(
    tmp_path: Path,
) -> None:
    """A daemon that refused a connection is used again when the other one refuses."""
    first, second = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    config = tmp_path / "config.yaml"
    config.write_text("tools: {here: {description: Return a text., content: here}}\n")
    flags = ("--drain-timeout", "1s")
    async with (
        nginx(tmp_path, daemon=first, second=second) as proxy,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as client,
    ):
        answered: list[int] = []

        async def ask() -> None:
            for _ in range(4):  # nginx uses the daemons in turn
                async with client.post(f"{proxy.url}/mcp", json=call("here"), headers=HEADERS) as response:
                    answered.append(response.status)

        async with serving(config, "--http", second, *flags) as daemon:
            await daemon.url()
            await ask()  # the first daemon refuses connections
            async with serving(config, "--http", first, *flags) as other:
                await other.url()
                daemon.signal(signal.SIGTERM)
                assert await daemon.exit_code() == 0
                await ask()  # the second daemon refuses connections
    assert answered == [200] * 8
