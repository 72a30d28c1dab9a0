"""Hosts of a network of a test's own: a network namespace each, on a bridge on which this process is a host, too.

A host that is cut off answers nothing, and refuses nothing: that is what its peers see when a cable is pulled, and
which a killed process does not show to its peers.

Why the bridge is in a namespace as well: a browser on this machine, as the tests of the console's page have one, gives
up all its requests (net::ERR_NETWORK_CHANGED) when an address of its network namespace changes.
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

from tests.programs import do_without, need

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
    cable: str
    """The end of its link that is plugged into the bridge."""

    @property
    def launcher(self) -> Sequence[str]:
        """What starts a program there, by `exec`: the process is the program's."""
        return (need("ip"), "netns", "exec", self.name)

    async def set(self, name: str, value: str) -> None:
        """Set a parameter of its system (sysctl(8))."""
        await _ip("netns", "exec", self.name, "sh", "-c", f"echo {value} > /proc/sys/{name.replace('.', '/')}")

    async def cut_off(self) -> None:
        await _ip("link", "set", self.cable, "down")

    async def join(self) -> None:
        await _ip("link", "set", self.cable, "up")


@asynccontextmanager
async def network(count: int) -> AsyncIterator[list[Host]]:
    """Run this many hosts and this process on a separate network, which cannot reach any other network."""
    if os.geteuid() != 0:
        do_without("needs network namespaces, and so to be root")
    mark = f"mg{secrets.token_hex(3)}"
    async with AsyncExitStack() as stack:
        await _add(stack, ("netns", "add", mark), ("netns", "del", mark))
        stack.enter_context(_entered(mark))
        await _ip("link", "set", "lo", "up")
        await _ip("link", "add", _BRIDGE, "type", "bridge")
        await _ip("addr", "add", f"{_SUBNET.format(1)}/{_PREFIX_LENGTH}", "dev", _BRIDGE)
        await _ip("link", "set", _BRIDGE, "up")
        yield [await _host(stack, f"{mark}n{number}", number) for number in range(count)]


@contextmanager
def _entered(namespace: str) -> Iterator[None]:
    """Be in a network namespace: this thread, and what it starts."""
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
    host = Host(name=name, address=_SUBNET.format(number + 2), cable=f"cable{number}")
    await _add(stack, ("netns", "add", host.name), ("netns", "del", host.name))
    await _ip("link", "add", host.cable, "type", "veth", "peer", "name", "eth0", "netns", host.name)
    await _ip("link", "set", host.cable, "master", _BRIDGE, "up")
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
        do_without(f"needs network namespaces: {errors.decode().strip()}")
    assert process.returncode == 0, (words, errors.decode())
    return out.decode()
