"""Tests for the TLS handshake timeout, and for errors of addresses."""

import asyncio
import errno
import os
from pathlib import Path

import pytest
from aiohttp import web

from gateway.config.diagnostics.problems import Problems
from gateway.config.models.address import Address
from gateway.config.models.server import Tls
from gateway.transports.listener.http_connection import ConnectionLimits
from gateway.transports.listener.http_listener import HttpListener, ListenAddress, reason_of
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


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EACCES, "ports below 1024 require a privilege that this process does not have: 127.0.0.1:80"),
        (errno.ENOBUFS, f"cannot listen on 127.0.0.1:80: {os.strerror(errno.ENOBUFS)}"),
    ],
)
def test_reason_names_the_address(number: int, reason: str) -> None:
    assert reason_of(OSError(number, os.strerror(number)), Address("127.0.0.1", 80)) == reason
