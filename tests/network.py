"""Hosts of a network of a test's own: a network namespace each, on a bridge on which this process is a host, too.

A host that is cut off answers nothing, and refuses nothing: that is what its peers see when a cable is pulled, and
what a killed process does not show them.
"""

import asyncio
import ipaddress
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from tests.programs import do_without, need

_ATTEMPTS: Final = 20
_SUBNETS: Final = ipaddress.ip_network("10.192.0.0/10")


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
    """So many hosts, and this process, on a network of their own."""
    if os.geteuid() != 0:
        do_without("needs network namespaces, and so to be root")
    mark = f"mg{secrets.token_hex(3)}"
    async with AsyncExitStack() as stack:
        await _add(stack, ("link", "add", f"{mark}b", "type", "bridge"), ("link", "del", f"{mark}b"))
        subnet = await _free_subnet(f"{mark}b")
        await _ip("link", "set", f"{mark}b", "up")
        yield [await _host(stack, mark, subnet, number) for number in range(count)]


async def _host(stack: AsyncExitStack, mark: str, subnet: ipaddress.IPv4Network, number: int) -> Host:
    host = Host(name=f"{mark}n{number}", address=str(subnet[number + 2]), cable=f"{mark}v{number}")
    await _add(stack, ("netns", "add", host.name), ("netns", "del", host.name))
    pair = ("link", "add", host.cable, "type", "veth", "peer", "name", "eth0", "netns", host.name)
    await _add(stack, pair, ("link", "del", host.cable))
    await _ip("link", "set", host.cable, "master", f"{mark}b", "up")
    await _ip("-n", host.name, "addr", "add", f"{host.address}/{subnet.prefixlen}", "dev", "eth0")
    for name in ("lo", "eth0"):
        await _ip("-n", host.name, "link", "set", name, "up")
    return host


async def _free_subnet(bridge: str) -> ipaddress.IPv4Network:
    """Give the bridge the first address of a subnet that no other test has."""
    for _ in range(_ATTEMPTS):
        number = secrets.randbelow(_SUBNETS.num_addresses // 256)
        subnet = ipaddress.ip_network((int(_SUBNETS.network_address) + number * 256, 24))
        if f"{subnet[1]}/" not in await _ip("-o", "-4", "addr"):
            await _ip("addr", "add", f"{subnet[1]}/{subnet.prefixlen}", "dev", bridge)
            return ipaddress.IPv4Network(subnet)
    raise AssertionError("no subnet is free")


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
