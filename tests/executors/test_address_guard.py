"""Rules for addresses that sockets can connect to."""

import socket

import pytest

from gateway.net.address_guard import AddressGuard, AddressPolicy, AddressRefusedError, compile_policy
from tests.executors.recording import make_scope, messages_of


def open_to(guard: AddressGuard, address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    rest = (443, 0, 0) if ":" in address else (443,)
    guard.open_socket((family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, *rest))).close()


def policy(*allowed: str) -> AddressPolicy:
    scope = make_scope()
    compiled = compile_policy(list(allowed), scope.problems)
    assert messages_of(scope) == []
    return compiled


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "172.32.0.1", "100.128.0.1", "192.1.0.1"])
def test_public_addresses_are_connected_to(address: str) -> None:
    open_to(AddressGuard(), address)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "a loopback address"),
        ("127.255.1.1", "a loopback address"),
        ("::1", "a loopback address"),
        ("10.0.0.1", "a private address"),
        ("172.16.0.1", "a private address"),
        ("192.168.1.1", "a private address"),
        ("fd00:ec2::254", "a private address"),
        ("169.254.169.254", "a link-local address"),
        ("fe80::1", "a link-local address"),
        ("fe80::1%lo", "a link-local address"),
        ("168.63.129.16", "a cloud's internal address"),
        ("100.100.100.200", "a carrier's internal address"),
        ("0.0.0.0", "an unspecified address"),
        ("::", "an unspecified address"),
        ("224.0.0.1", "a multicast or broadcast address"),
        ("255.255.255.255", "a multicast or broadcast address"),
        ("ff02::1", "a multicast or broadcast address"),
        ("192.0.0.192", "a reserved address"),
        ("240.0.0.1", "a reserved address"),
        ("::ffff:127.0.0.1", "a loopback address"),
        ("::ffff:0:127.0.0.1", "a loopback address"),
        ("::127.0.0.1", "a reserved address"),
        ("64:ff9b::169.254.169.254", "a link-local address"),
        ("2002:7f00:1::", "a loopback address"),
        ("2001:0:4136:e378:8000:63bf:80ff:fffe", "a loopback address"),  # Teredo of 127.0.0.1
        ("2606:4700::5efe:10.0.0.1", "a private address"),
        ("2130706433", "a loopback address"),
        ("0x7f.1", "a loopback address"),
        ("0177.0.0.1", "a loopback address"),
        ("127.1", "a loopback address"),
        ("200:1::1", "a reserved address"),
        ("4000::1", "a reserved address"),
        ("what", "an invalid address"),
    ],
)
def test_other_addresses_are_rejected_in_any_spelling(address: str, kind: str) -> None:
    with pytest.raises(AddressRefusedError) as caught:
        open_to(AddressGuard(), address)
    assert caught.value.kind == kind


def test_only_listed_networks_are_allowed() -> None:
    guard = policy("10.1.0.0/16", "::1", "fd00::/8").guard_for("anything")
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "::1", "fd12::1"):
        open_to(guard, address)
    for address in ("10.2.0.1", "127.0.0.1", "::ffff:127.0.0.1"):
        with pytest.raises(AddressRefusedError):
            open_to(guard, address)


def test_only_listed_hosts_can_be_private() -> None:
    allowed = policy("Db.Internal", "10.0.0.0/8")
    open_to(allowed.guard_for("db.internal."), "127.0.0.1")
    with pytest.raises(AddressRefusedError):
        open_to(allowed.guard_for("x.db.internal"), "127.0.0.1")


def test_true_allows_all() -> None:
    open_to(compile_policy(True, make_scope().problems).guard_for("x"), "127.0.0.1")  # noqa: FBT003 - as the file has it


def test_malformed_network_is_an_error() -> None:
    scope = make_scope()
    compile_policy(["10.0.0.1/8"], scope.problems)
    assert messages_of(scope) == [
        "0: is not a network: 10.0.0.1/8 has host bits set. Expected a network such as 10.0.0.0/8"
    ]


@pytest.mark.parametrize(
    "host", ["localhost", "a.localhost", "LOCALHOST.", "127.0.0.1", "[::1]", "0x7f.1", "2130706433", "127.0.0.1."]
)
def test_host_resolved_by_a_proxy_is_checked_by_its_spelling(host: str) -> None:
    with pytest.raises(AddressRefusedError):
        AddressGuard().check_spelled(host)
    AddressGuard().check_spelled("example.com")
    AddressGuard(allowed=frozenset(policy("127.0.0.0/8", "::1").guard.allowed)).check_spelled(host)
