"""Tests for the allow-lists of Host and Origin, and for CORS."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.models.address import Address
from gateway.transports.http.host_and_origin import Guard, is_loopback_address, is_loopback_host

LOOPBACK = Address("127.0.0.1", 8000)
EVERYWHERE = Address("0.0.0.0", 8000)
SOMEWHERE = Address("192.168.1.5", 8000)
PUBLIC_URL = "https://Tools.example.com:8443/ops"


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:1", "LOCALHOST:8000", "localhost.:8000", "127.0.0.1:9", "[::1]:8000", "tools.example.com"],
)
def test_loopback_and_public_names_are_accepted_on_any_port(host: str) -> None:
    assert Guard(address=LOOPBACK, public_url=PUBLIC_URL).check(host=host, origin=None) is None


@pytest.mark.parametrize(
    ("address", "host", "passes"),
    [
        (SOMEWHERE, "192.168.1.5:8000", True),
        (SOMEWHERE, "192.168.1.6:8000", False),
        (Address("fd00::5", 8000), "[fd00::5]:8000", True),
        (EVERYWHERE, "192.168.1.6:8000", True),
        (EVERYWHERE, "[fe80::1]", True),
        (EVERYWHERE, "rebound.example.com", False),
    ],
)
def test_listen_address_is_accepted_and_any_address_on_a_wildcard(
    address: Address,
    host: str,
    passes: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert (Guard(address=address).check(host=host, origin=None) is None) is passes


@pytest.mark.parametrize(
    ("host", "passes"),
    [
        ("tools.internal", True),
        ("tools.internal:99", True),
        ("api.internal:8000", True),
        ("api.internal:8001", False),
        ("a.wild.example", True),
        ("wild.example", False),
        ("evilwild.example", False),
        ("localhost", False),
    ],
)
def test_configured_hosts_replace_the_defaults(
    host: str,
    passes: bool,  # noqa: FBT001 - a column of the table
) -> None:
    guard = Guard(address=EVERYWHERE, allowed_hosts=["Tools.internal", "api.internal:8000", "*.wild.example"])
    assert (guard.check(host=host, origin=None) is None) is passes


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost",
        "http://localhost:3000",
        "https://127.0.0.1:1",
        "http://[::1]:5173",
        "https://tools.example.com:8443",
        "https://TOOLS.example.com:8443",
    ],
)
def test_loopback_and_public_origins_are_allowed(origin: str) -> None:
    guard = Guard(address=LOOPBACK, public_url=PUBLIC_URL)
    assert guard.check(host="localhost", origin=origin) is None
    assert guard.cors(origin)["Access-Control-Allow-Origin"] == origin
    assert "Mcp-Session-Id" in guard.cors(origin)["Access-Control-Expose-Headers"]


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example.com",
        "https://tools.example.com",
        "http://tools.example.com:8443",
        "http://localhost.evil.example.com",
        "http://localhost:3000.evil.example.com",
        "file://",
        "chrome-extension://localhost",
        "http://localhost:99999999",
        f"http://localhost:{'9' * 5000}",
        "http://[::1",
        "http://[::1].evil",
        "http://[::1].evil.example.com:80",
        "http://[::1]evil",
        "http://evil@localhost",
        "http://localhost/",
        "http://localhost?",
        "http://localhost#x",
        "http://localhost:",
        "http://[localhost]",
        "http://localhost:3000:3000",
        "https://tools.example.com:8443/",
    ],
)
def test_other_origins_are_rejected_with_the_key_to_set(origin: str) -> None:
    guard = Guard(address=LOOPBACK, public_url=PUBLIC_URL)
    refusal = guard.check(host="localhost", origin=origin)
    assert refusal is not None
    assert refusal.status == 403
    assert "listen.allowed_origins" in refusal.message
    assert "Access-Control-Allow-Origin" not in guard.cors(origin)


def test_configured_origins_replace_the_defaults() -> None:
    guard = Guard(address=LOOPBACK, allowed_origins=["https://app.example.com:443", "null"])
    assert guard.check(host="localhost", origin="https://app.example.com") is None
    assert guard.check(host="localhost", origin="null") is None
    assert guard.check(host="localhost", origin="http://localhost:3000") is not None


def test_host_and_origin_must_both_be_allowed() -> None:
    guard = Guard(address=LOOPBACK)
    assert guard.check(host="localhost", origin="http://evil.example.com") is not None
    assert guard.check(host="evil.example.com", origin="http://localhost") is not None


def test_preflight_allows_only_standard_and_parameter_headers() -> None:
    guard = Guard(address=LOOPBACK)
    fields = guard.preflight("http://localhost:3000", requested_headers="mcp-param-region, x-evil, Mcp-Param-Größe")
    allowed = fields["Access-Control-Allow-Headers"].split(", ")
    assert {"Content-Type", "Authorization", "Mcp-Session-Id", "MCP-Protocol-Version", "Last-Event-ID"} < set(allowed)
    assert allowed[-1] == "mcp-param-region"
    assert "DELETE" in fields["Access-Control-Allow-Methods"]


def test_loopback_addresses_are_recognized() -> None:
    assert is_loopback_address("127.3.2.1")
    assert is_loopback_address("::1")
    assert is_loopback_address("::ffff:127.0.0.1")
    assert not is_loopback_address("10.0.0.1")
    assert not is_loopback_address("")
    assert is_loopback_host("localhost:8000")
    assert not is_loopback_host("tools.example.com")
    assert not is_loopback_host(None)


ODD = st.text(alphabet=st.sampled_from("localhst127.0:[]/@#?%*\\ \t\udcffé-"), max_size=40)


@given(host=ODD, origin=ODD | st.builds("http://{}".format, ODD))
def test_malformed_hosts_are_rejected(host: str, origin: str) -> None:
    guard = Guard(address=LOOPBACK)
    ours = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])\.?(:[0-9]+)?")
    if guard.check(host=host, origin=None) is None:
        assert ours.fullmatch(host)
    if guard.check(host="localhost", origin=origin) is None:
        assert ours.fullmatch(origin.removeprefix("http://"))


@given(before=st.sampled_from(["[::1]", "[::1", "::1]", "localhost"]), after=ODD)
def test_malformed_variants_of_an_allowed_host_are_rejected(before: str, after: str) -> None:
    host = before + after
    is_ours = re.fullmatch(r"(\[::1\]|localhost)\.?(:[0-9]+)?", host) is not None
    guard = Guard(address=LOOPBACK)
    if guard.check(host=host, origin=None) is None or guard.check(host="localhost", origin=f"http://{host}") is None:
        assert is_ours
