"""Tests for the limits of TLS connections during the handshake."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from gateway.config.diagnostics.problems import Problems
from gateway.config.models.address import Address
from gateway.config.models.server import Quota, Tls
from gateway.transports.listener.http_connection import ConnectionLimits
from gateway.transports.listener.http_listener import HttpListener, ListenAddress
from gateway.transports.listener.server_tls import ServerTls, load_identity
from gateway.transports.quota import ResourceQuota, connection_quota
from tests.certificates import Authority
from tests.executors.recording import OneFile
from tests.transports.test_http_connection import HEAD, Line
from tests.waiting import until

SECONDS: Final = 15


class Served:
    """A listener and a client context that trusts it."""

    def __init__(self, listener: HttpListener, quota: ResourceQuota, authority: Authority) -> None:
        self.listener: Final = listener
        self.quota: Final = quota
        self._authority: Final = authority

    @asynccontextmanager
    async def line(self) -> AsyncIterator[Line]:
        trusting = self._authority.trusting()
        port = self.listener.address.port
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="localhost")
        try:
            yield Line(reader, writer)
        finally:
            writer.close()

    def silent(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.listener.address.port))

    async def count(self, expected: int) -> None:
        """Wait until this number of connections is counted."""
        await until(lambda: len(self.quota) == expected)


@asynccontextmanager
async def serving(folder: Path, *, most: int = 100, handshake_seconds: float = 60) -> AsyncIterator[Served]:
    authority = Authority()
    authority.issue(folder / "cert.pem", folder / "key.pem")
    identity = load_identity(Tls(cert="cert.pem", key="key.pem"), Problems(OneFile(folder)))
    assert identity is not None

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="fine")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    quota = connection_quota(Quota(in_all=most))
    limits = ConnectionLimits(quota=quota, handshake_seconds=handshake_seconds)
    where = ListenAddress(address=Address("127.0.0.1", 0))
    listener = HttpListener(application, where, connection_limits=limits, tls=ServerTls(identity))
    await listener.start()
    try:
        yield Served(listener, quota, authority)
    finally:
        await listener.close()
        assert len(quota) == 0


async def test_tls_connection_counts_before_its_handshake(tmp_path: Path) -> None:
    async with serving(tmp_path, most=2) as served:
        silent = [served.silent(), served.silent()]
        await served.count(2)
        with pytest.raises((ConnectionError, ssl.SSLError)):
            async with served.line():
                pass
        assert served.quota.refused == 1
        silent[0].close()
        await served.count(1)
        async with served.line() as one:
            one.say(HEAD + b"\r\n")
            assert (await one.answer()).startswith(b"HTTP/1.1 200 ")
            assert len(served.quota) == 2
        await served.count(1)
        silent[1].close()


async def test_silent_tls_client_times_out(tmp_path: Path) -> None:
    async with serving(tmp_path, handshake_seconds=0.1) as served:
        silent = served.silent()
        await served.count(1)
        await served.count(0)
        silent.settimeout(0)
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(silent, 1), SECONDS) == b""
        silent.close()


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b""])
async def test_failed_tls_handshake_frees_the_quota(tmp_path: Path, said: bytes) -> None:
    async with serving(tmp_path) as served:
        other = served.silent()
        await served.count(1)
        other.sendall(said)
        other.close()
        await served.count(0)


async def test_closing_listener_does_not_wait_for_handshakes(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        silent = served.silent()
        await served.count(1)
        async with asyncio.timeout(SECONDS):
            await served.listener.close()
        assert len(served.quota) == 0
        silent.close()


async def test_many_concurrent_handshakes_succeed(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:

        async def ask() -> bytes:
            async with served.line() as one:
                one.say(HEAD + b"\r\n")
                return (await one.answer())[:13]

        assert set(await asyncio.gather(*(ask() for _ in range(50)))) == {b"HTTP/1.1 200 "}
        await served.count(0)
