"""Tests with each kind of store: TLS, Cluster and Sentinel."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from gateway.state.replica import Replica
from gateway.state.used_request_states import UsedStates
from gateway.tasks.redis_store import RedisTaskStore
from gateway.tasks.task import TaskStatus
from tests.messages import legacy_request
from tests.ports import free_port
from tests.programs import need
from tests.redis_server import RedisServer, redis_cluster, redis_sentinels, redis_server
from tests.tasks.test_stores import make_task
from tests.transports import test_replicas as promises
from tests.transports.http_server import call
from tests.transports.test_replicas import joined
from tests.transports.test_streamable_http import in_session
from tests.waiting import until

pytestmark = pytest.mark.build

SECONDS: Final = 120
PROMISES: Final = (
    promises.test_replicas_share_session_changes,
    promises.test_responses_and_cancellations_reach_the_right_replica,
    promises.test_request_stream_resumes_at_another_replica,
    promises.test_get_stream_resumes_at_another_replica,
    promises.test_http_sse_messages_reach_the_replica_with_the_stream,
)
"""Test the cooperation of replicas."""


async def keep_promises(url: str) -> None:
    for promise in PROMISES:
        async with AsyncExitStack() as stack:
            await promise([(await stack.enter_async_context(joined(url)))[0] for _ in range(3)])


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """Create two authorities and a server certificate of the first."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    authority = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    server = ("-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1")
    for name, options in (("ca", authority), ("other", authority), ("server", server)):
        files = ("-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
        subprocess.run([need("openssl"), *new, *files, *options], cwd=folder, check=True, capture_output=True)
    return folder


@asynccontextmanager
async def tls_server(folder: Path, certificates: Path) -> AsyncIterator[int]:
    """Yield the TLS port."""
    port = free_port()
    files = {"cert": "server.pem", "key": "server.key", "ca-cert": "ca.pem"}
    options = [part for name, file in files.items() for part in (f"--tls-{name}-file", str(certificates / file))]
    async with redis_server(folder, "--tls-port", str(port), "--tls-auth-clients", "no", *options):
        yield port


async def test_replicas_share_a_store_over_tls(tmp_path: Path, certificates: Path) -> None:
    async with asyncio.timeout(SECONDS), tls_server(tmp_path / "redis", certificates) as port:
        await keep_promises(f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificates}/ca.pem")


async def test_store_with_an_untrusted_certificate_is_unavailable(tmp_path: Path, certificates: Path) -> None:
    async with asyncio.timeout(SECONDS), tls_server(tmp_path / "redis", certificates) as port:
        url = f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificates}/other.pem"
        async with joined(url) as (server, replica):
            session = in_session(await server.initialize())
            assert (await server.send(call("echo", text="hi"), session)).status == 200
            assert "certificate verify failed" in replica.store.problem


async def test_replicas_share_a_cluster(tmp_path: Path) -> None:
    async with asyncio.timeout(SECONDS), redis_cluster(tmp_path) as nodes:
        url = f"redis+cluster://127.0.0.1:{nodes[0].port}"
        await keep_promises(url)
        assert all([await node.client.dbsize() for node in nodes])
        async with Replica(url, clock=time.time) as replica:
            tasks = RedisTaskStore(replica, clock=time.time)
            task = make_task(created=time.time())
            await tasks.add(task)
            assert await tasks.renew("me", {"one": ("half", 1.0), "other": None}) == ["other"]
            assert await tasks.replace(replace(task, status=TaskStatus.COMPLETED, version=1))
            assert (tasks.counts, await tasks.claim()) == ({"completed": 1, "working": 0}, [])
            assert [each.version for each in await tasks.newest(5)] == [1]
            assert await tasks.expire(task.expires + 1) == ["one"]
            for is_first in (True, False):
                states = UsedStates(shared=replica.store)
                assert await states.use("once", expires=time.time() + 60) is is_first


async def test_calls_continue_without_a_cluster_node(tmp_path: Path) -> None:
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(redis_cluster(tmp_path))
        url = f"redis+cluster://127.0.0.1:{nodes[0].port}"
        server, replica = await stack.enter_async_context(joined(url))
        sessions = [in_session(await server.initialize()) for _ in range(12)]
        await nodes[0].stop()
        for session in sessions:
            assert (await server.send(call("echo", text="hi"), session)).status == 200
            assert (await server.send(legacy_request("logging/setLevel", {"level": "error"}), session)).status == 200
        await until(lambda: replica.store.faults != {})
        await nodes[0].start()
        await until(lambda: not replica.store.is_unavailable and not len(replica.sessions._queued))


async def test_replicas_share_a_store_behind_sentinels(tmp_path: Path) -> None:
    async with asyncio.timeout(SECONDS), redis_sentinels(tmp_path) as store:
        await keep_promises(store.url)
        async with asyncio.timeout(SECONDS / 2):
            while await _clients_of(store.sentinels[0]) > 1:  # our own connection; Sentinels have names
                await asyncio.sleep(0.05)


async def _clients_of(sentinel: RedisServer) -> int:
    """Return the connections of clients other than Sentinels."""
    found = (await sentinel.client.execute_command("CLIENT", "LIST")).decode()  # type: ignore[no-untyped-call]
    return sum(" name=sentinel-" not in line for line in found.splitlines())


async def test_calls_sessions_and_tasks_survive_a_failover(tmp_path: Path) -> None:
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        store = await stack.enter_async_context(redis_sentinels(tmp_path))
        servers = [await stack.enter_async_context(joined(store.url)) for _ in range(2)]
        (a, replica), (b, _) = servers
        session = in_session(await a.initialize())
        tasks = RedisTaskStore(replica, clock=time.time)
        task = make_task(created=time.time(), ttl_ms=600_000)
        await tasks.add(task)
        master = await store.master()
        assert await master.client.wait(1, 30_000) == 1  # replication is complete
        await master.stop()
        calls = 0
        while await store.master() is master or replica.store.is_unavailable or not replica.store.faults:
            for server in (a, b):
                assert (await server.send(call("echo", text="hi"), session)).status == 200
                assert (await server.modern("tools/list")).status == 200
            calls += 1
        assert calls > 0
        assert (await b.send(legacy_request("logging/setLevel", {"level": "error"}), session)).status == 200
        await until(lambda: next(iter(a.sessions.open_sessions)).log_level == "error")
        assert await tasks.replace(replace(task, status=TaskStatus.COMPLETED, version=1))
        assert [each.version for each in await tasks.newest(5)] == [1]
        await master.start()  # it returns as a replica
        assert (await a.send(call("echo", text="hi"), session)).status == 200
        assert not replica.store.is_unavailable
