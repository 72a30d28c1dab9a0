"""Tests for the TLS handshake timeout."""

import asyncio
from pathlib import Path

from aiohttp import web

from gateway.config.diagnostics.problems import Problems
from gateway.config.models.address import Address
from gateway.config.models.server import Tls
from gateway.transports.listener.http_connection import ConnectionLimits
from gateway.transports.listener.http_listener import HttpListener, ListenAddress
from gateway.transports.listener.server_tls import ServerTls, load_identity
from tests.certificates import Authority
from tests.executors.recording import OneFile


async def test_tls_handshake_times_out(tmp_path: Path) -> None:
    Authority().issue(tmp_path / "server.pem", tmp_path / "server.key")
    identity = load_identity(Tls(cert="server.pem", key="server.key"), Problems(OneFile(tmp_path)))
    assert identity is not None
    listener = HttpListener(
        web.Application(),
        ListenAddress(address=Address("127.0.0.1", 0)),
        tls=ServerTls(identity),
        connection_limits=ConnectionLimits(handshake_seconds=0.05),
    )
    await listener.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
    writer.write(b"\x16\x03\x01")  # an incomplete TLS record
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()
    await listener.close()
