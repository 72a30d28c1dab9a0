"""Connection pools: shared for equal settings, separate for others, closed at the end."""

import asyncio
import socket
import threading

import pytest

from gateway.net import clients as http_clients
from gateway.net.address_guard import AddressGuard
from gateway.net.clients import ClientProfile, DaemonResolver, HttpClients
from gateway.threads import DaemonThreadPool
from tests.waiting import until


def profile(number: int = 0) -> ClientProfile:
    return ClientProfile(guard=AddressGuard(), proxy=f"http://127.0.0.1:{number + 1}")


async def test_only_equal_profiles_share_a_pool() -> None:
    async with HttpClients() as clients:
        async with clients.pool(profile()) as first, clients.pool(profile()) as second:
            assert first is second
        async with clients.pool(profile(1)) as third:
            assert third is not first


async def test_leaving_closes_every_pool() -> None:
    async with HttpClients() as clients:
        async with clients.pool(profile()) as session:
            pass
        shared = clients.shared
    assert session.closed
    assert shared.closed


async def test_longest_unused_pool_is_closed_first() -> None:
    async with HttpClients() as clients, clients.pool(profile()) as in_use:
        async with clients.pool(profile(1)) as unused:
            pass
        for number in range(2, http_clients.MAX_POOLS + 1):
            async with clients.pool(profile(number)) as latest:
                pass
        await until(lambda: unused.closed)
        assert not in_use.closed
        assert not latest.closed


def test_clients_cannot_be_used_before_they_are_started() -> None:
    with pytest.raises(RuntimeError, match="have not been started"):
        _ = HttpClients().shared


async def test_names_are_looked_up_in_daemon_threads() -> None:
    async with DaemonThreadPool(1) as threads:
        found = await DaemonResolver(threads).resolve("localhost", 80)
        assert {result["host"] for result in found} <= {"127.0.0.1", "::1"}
        assert all(result["port"] == 80 for result in found)
        new = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
        assert all(thread.daemon for thread in new if thread.name in {"plugin", "dns"})


@pytest.mark.parametrize("host", ["x" * 64, "a..b", "nowhere.invalid"])
async def test_failed_name_lookup_is_an_os_error(host: str) -> None:
    async with DaemonThreadPool(1) as threads, asyncio.timeout(20):
        with pytest.raises(socket.gaierror):
            await DaemonResolver(threads).resolve(host)
