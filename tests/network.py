"""A private network of hosts, each in a network namespace. This process is also a host of the network.

A disconnected host neither answers nor refuses connections, unlike a host whose process was killed.

The bridge is in a separate namespace, because browsers abort all requests (net::ERR_NETWORK_CHANGED) when an address
of their network namespace changes. Tests of the console run a browser on this machine.
"""

import asyncio
import ctypes
import os
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.programs import need, skip_or_fail

_BRIDGE: Final = "bridge"
_SUBNET: Final = "10.192.0.{}"
_PREFIX_LENGTH: Final = 24
_CLONE_NEWNET: Final = 0x40000000
_NAMESPACE: Final = Path("/proc/thread-self/ns/net")


@dataclass(frozen=True, kw_only=True)
class Host:
    """A namespace with one address."""

    name: str
    address: str
    link: str
    """The end of the host's link that is connected to the bridge."""

    @property
    def launcher(self) -> Sequence[str]:
        """The start of a command that runs a program on the host, in the same process."""
        return (need("ip"), "netns", "exec", self.name)

    async def set(self, name: str, value: str) -> None:
        """Set a kernel parameter (sysctl(8))."""
        await _ip("netns", "exec", self.name, "sh", "-c", f"echo {value} > /proc/sys/{name.replace('.', '/')}")

    async def disconnect(self) -> None:
        await _ip("link", "set", self.link, "down")

    async def reconnect(self) -> None:
        await _ip("link", "set", self.link, "up")


@asynccontextmanager
async def network(count: int) -> AsyncIterator[list[Host]]:
    """Connect this many hosts and this process by a network without access to other networks."""
    if os.geteuid() != 0:
        skip_or_fail("needs network namespaces, which require root")
    prefix = f"mg{secrets.token_hex(3)}"
    async with AsyncExitStack() as stack:
        await _add(stack, ("netns", "add", prefix), ("netns", "del", prefix))
        stack.enter_context(_entered(prefix))
        await _ip("link", "set", "lo", "up")
        await _ip("link", "add", _BRIDGE, "type", "bridge")
        await _ip("addr", "add", f"{_SUBNET.format(1)}/{_PREFIX_LENGTH}", "dev", _BRIDGE)
        await _ip("link", "set", _BRIDGE, "up")
        yield [await _host(stack, f"{prefix}n{number}", number) for number in range(count)]


@contextmanager
def _entered(namespace: str) -> Iterator[None]:
    """Run this thread and the processes that it starts in a network namespace."""
    with _NAMESPACE.open() as before:
        with Path("/run/netns", namespace).open() as file:
            _enter(file.fileno())
        try:
            yield
        finally:
            _enter(before.fileno())


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.setns(descriptor, _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())


async def _host(stack: AsyncExitStack, name: str, number: int) -> Host:
    host = Host(name=name, address=_SUBNET.format(number + 2), link=f"link{number}")
    await _add(stack, ("netns", "add", host.name), ("netns", "del", host.name))
    await _ip("link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", host.name)
    await _ip("link", "set", host.link, "master", _BRIDGE, "up")
    await _ip("-n", host.name, "addr", "add", f"{host.address}/{_PREFIX_LENGTH}", "dev", "eth0")
    for device in ("lo", "eth0"):
        await _ip("-n", host.name, "link", "set", device, "up")
    return host


async def _add(stack: AsyncExitStack, add: Sequence[str], delete: Sequence[str]) -> None:
    await _ip(*add)
    stack.push_async_callback(_ip, *delete)


async def _ip(*words: str) -> str:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(need("ip"), *words, stdout=pipe, stderr=pipe)
    out, errors = await process.communicate()
    if process.returncode != 0 and words[:2] in {("link", "add"), ("netns", "add")}:
        skip_or_fail(f"needs network namespaces: {errors.decode().strip()}")
    assert process.returncode == 0, (words, errors.decode())
    return out.decode()
