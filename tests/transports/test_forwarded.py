"""Tests for trusting forwarded headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.transports.http.forwarded import ClientEndpoint, TrustedProxies

PROXY = "10.0.0.1"
CDN = "192.0.2.10"
CLIENT = "203.0.113.7"
PROXIES = ["10.0.0.0/8", CDN, "fd00::/8"]


def client_endpoint(
    *fields: tuple[str, str], peer: str = PROXY, trusted: list[str] = PROXIES, public_url: str | None = None
) -> ClientEndpoint:
    proxies = TrustedProxies(trusted, public_url=public_url)
    return proxies.client_endpoint(peer=peer, scheme="http", host="backend:8000", fields=CIMultiDict(fields))


def x_for(*addresses: str) -> tuple[str, str]:
    return "X-Forwarded-For", ", ".join(addresses)


SPOKEN = [
    x_for(CLIENT),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "tools.example.com:8443"),
    ("X-Forwarded-Prefix", "/ops/"),
]


def test_x_forwarded_headers_of_a_trusted_proxy_are_used() -> None:
    seen = client_endpoint(*SPOKEN)
    assert (seen.address, seen.scheme, seen.host, seen.prefix) == (CLIENT, "https", "tools.example.com:8443", "/ops")
    assert seen.base_url == "https://tools.example.com:8443/ops"


def test_forwarded_header_is_not_read() -> None:
    seen = client_endpoint(("Forwarded", f"for={CLIENT};proto=https;host=tools.example.com"))
    assert (seen.address, seen.base_url) == (PROXY, "http://backend:8000")


@pytest.mark.parametrize("peer", ["203.0.113.9", "11.0.0.1", "::1", "", "somebody"])
def test_headers_of_other_peers_are_ignored(peer: str) -> None:
    seen = client_endpoint(*SPOKEN, peer=peer)
    assert (seen.address, seen.base_url) == (peer, "http://backend:8000")


def test_headers_are_ignored_without_trusted_proxies() -> None:
    assert client_endpoint(*SPOKEN, trusted=[]).base_url == "http://backend:8000"


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.0/8"),
        ("::ffff:0a00:0001", "10.0.0.0/8"),
        ("10.0.0.1", "::ffff:10.0.0.0/104"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("fd00::1", "fd00::/8"),
        ("fd00:0:0::1", "fd00::1"),
        ("10.0.0.1", "0.0.0.0/0"),
    ],
)
def test_trusted_addresses_match_in_any_form(peer: str, trusted: str) -> None:
    assert client_endpoint(*SPOKEN, peer=peer, trusted=[trusted]).address == CLIENT


def test_unix_socket_peers_can_be_trusted() -> None:
    assert client_endpoint(*SPOKEN, peer="", trusted=["unix:"]).address == CLIENT
    assert client_endpoint(*SPOKEN, peer="", trusted=["0.0.0.0/0", "::/0"]).address == ""
    assert client_endpoint(*SPOKEN, peer=PROXY, trusted=["unix:"]).address == PROXY


def test_addresses_are_normalized() -> None:
    assert client_endpoint(peer="::ffff:203.0.113.7").address == CLIENT
    assert client_endpoint(x_for("::ffff:203.0.113.7")).address == CLIENT
    assert client_endpoint(x_for("[2001:DB8:0::7]:443")).address == "2001:db8::7"
    assert client_endpoint(x_for(f"{CLIENT}:5123")).address == CLIENT


@pytest.mark.parametrize(
    ("chain", "client"),
    [
        ([CLIENT], CLIENT),
        (["198.51.100.1", CLIENT], CLIENT),  # the left one was sent by the client
        ([CLIENT, CDN], CLIENT),
        ([CLIENT, CDN, "10.0.0.2", "10.0.0.3"], CLIENT),
        ([CDN, CLIENT, CDN], CLIENT),  # the client must not pass as a proxy
        ([CDN, "10.0.0.2"], CDN),  # a request from the proxy itself
        (["198.51.100.1", "garbage", CDN], CDN),
        (["garbage"], PROXY),
        (["unknown"], PROXY),
        (["_hidden"], PROXY),
        ([""], PROXY),
        ([CLIENT, ""], PROXY),
        (["198.51.100.1", f"{CLIENT}%eth0"], PROXY),
        (["010.0.0.1"], PROXY),
        (["127.1"], PROXY),
        ([f"{CLIENT} 127.0.0.1"], PROXY),
    ],
)
def test_client_is_the_rightmost_untrusted_address(chain: list[str], client: str) -> None:
    assert client_endpoint(x_for(*chain)).address == client


def test_repeated_headers_form_one_list() -> None:
    assert client_endpoint(x_for("198.51.100.1"), x_for(CLIENT), x_for(CDN)).address == CLIENT


def test_scheme_and_host_come_from_the_clients_proxy() -> None:
    chain = x_for("198.51.100.1", CLIENT, CDN)
    appended = client_endpoint(
        chain, ("X-Forwarded-Proto", "ftp, https, http"), ("X-Forwarded-Host", "evil, good, inner")
    )
    assert (appended.scheme, appended.host) == ("https", "good")
    overwritten = client_endpoint(chain, ("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "good"))
    assert (overwritten.scheme, overwritten.host) == ("https", "good")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("X-Forwarded-Proto", ["", "ftp", "javascript", "https\\", "https;", "on"]),
        ("X-Forwarded-Host", ["", "a b", "a/b", "user@a", "a:b", "a:999999", "[::1", "a,", "a\\b", "a?b", "a#b", "é"]),
        (
            "X-Forwarded-Prefix",
            [
                *["", "/", "ops", "//evil.example.com", "/\\evil", "/ops//x", "/../ops", "/ops/..", "/./a", "/a b"],
                *["/a?b", "/a#b", "/%2e%2e", "/a, /b", "https://evil.example.com", "/a\r\n"],
            ],
        ),
    ],
)
def test_malformed_forwarding_headers_are_ignored(name: str, values: list[str]) -> None:
    for value in values:
        assert client_endpoint((name, value)).base_url == "http://backend:8000", value


def test_public_url_takes_precedence_over_forwarding_headers() -> None:
    seen = client_endpoint(*SPOKEN, public_url="https://public.example.com/team/")
    assert (seen.base_url, seen.prefix) == ("https://public.example.com/team", "/team")
    assert seen.host == "tools.example.com:8443"  # the guard checks the requested host
    assert client_endpoint(*SPOKEN, public_url="https://public.example.com").prefix == ""


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Prefix"]),
            st.text(max_size=60) | st.text(alphabet='http,"\\[]:1. /', max_size=60),
        ),
        max_size=6,
    )
)
def test_own_url_is_always_normalized(fields: list[tuple[str, str]]) -> None:
    seen = client_endpoint(*fields)
    scheme, _, rest = seen.base_url.partition("://")
    host, slash, path = rest.partition("/")
    assert scheme in {"http", "https"}
    assert host == seen.host
    assert slash + path == seen.prefix
    assert not any(character in seen.base_url for character in " \"'<>\\\r\n?#@")
    assert not seen.prefix.startswith("//")


@given(st.lists(st.ip_addresses().map(str) | st.text(max_size=20), max_size=5))
def test_client_cannot_fake_its_address_through_a_proxy(invented: list[str]) -> None:
    lines = [("X-Forwarded-For", text) for text in invented]
    assert client_endpoint(*lines, x_for(CLIENT)).address == CLIENT
    assert client_endpoint(x_for(*invented, CLIENT)).address == CLIENT
