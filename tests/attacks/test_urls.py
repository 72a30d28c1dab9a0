"""URLs, redirects, proxies and responses cannot lead to forbidden addresses, or use unbounded time or memory."""

import gzip
import itertools
import json
import socket
import zlib
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attacks.target import Plan, Target, attacking
from tests.attacks.web import HOST, Web, reply, serving
from tests.examples import examples

SPELLINGS = (
    "127.0.0.1", "127.1", "127.0.1", "127.00.00.01", "0177.0.0.1", "0x7f.0.0.1", "0x7f.1", "0x7f000001", "2130706433",
    "017700000001", "127.0.0.1.", "localhost", "localhost.", "LOCALHOST", "0", "0.0.0.0", "0x0", "127.255.255.254",
)  # fmt: skip
"""Spellings of loopback."""
ADDRESSES = (
    "[::1]", "[0:0:0:0:0:0:0:1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2002:7f00:0001::1]",
    "[2001:0:7f00:1::]", "[2001:0:0:0:0:0:80ff:fffe]", "[fe80::5efe:127.0.0.1]", "[::ffff:a9fe:a9fe]",
    "169.254.169.254", "[fd00:ec2::254]", "[fe80::1]", "168.63.129.16", "100.100.100.200", "100.64.0.1", "192.0.0.192",
    "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "[fc00::1]", "[fec0::1]", "224.0.0.1", "239.255.255.255",
    "255.255.255.255", "[ff02::1]", "198.18.0.1", "192.0.2.1", "203.0.113.1", "240.0.0.1", "[2001:db8::1]", "[100::1]",
)  # fmt: skip
"""Private, loopback, link-local, metadata, multicast and reserved addresses, also inside IPv6 addresses."""

CONFIG = """
    connections:
      proxied:
        base_url: http://198.51.100.7
        proxy: "http://{web}"
        allow_private: [198.51.100.7]
    tools:
      fetch:
        description: Fetch from any host.
        input: {{host: string}}
        http: {{url: "http://{{host}}:@port@/", timeout: 5s}}
      label:
        description: Fetch from one of many hosts.
        input: {{name: string}}
        http: {{url: "http://{{name}}.localhost:@port@/", timeout: 5s}}
      ours:
        description: Fetch from the attacker's server, which is allowed.
        input: {{path: string, query: "string?", header: "string?", body: "string?"}}
        http:
          url: "http://{web}/base/{{path}}{{?query}}"
          method: POST
          headers: {{X-Given: "{{{{ header }}}}"}}
          json: {{body: "{{{{ body }}}}"}}
          allow_private: [{host}]
          timeout: 10s
      deep:
        description: Fetch any path.
        input: {{path: string}}
        http: {{url: "http://{web}/base/{{+path}}", allow_private: [{host}]}}
      follow:
        description: Follow redirects of the attacker's server.
        input: {{to: string}}
        http: {{url: "http://{web}/redirect{{?to}}", allow_private: [{host}], timeout: 5s}}
      follow_from_proxy:
        description: Follow redirects of the server behind a proxy.
        input: {{to: string}}
        http: {{connection: proxied, url: "/redirect{{?to}}", timeout: 5s}}
      pages:
        description: Fetch the pages that the attacker's server links to.
        input: {{to: string}}
        http: {{url: "http://{web}/pages{{?to}}", allow_private: [{host}], timeout: 5s, pages: {{next: link}}}}
      pages_of_body:
        description: Fetch the pages whose URLs are in the response.
        input: {{to: string}}
        http: {{url: "http://{web}/body{{?to}}", allow_private: [{host}], timeout: 5s, pages: {{next: next}}}}
      pages_from_proxy:
        description: Fetch the pages that the server behind a proxy links to.
        input: {{to: string}}
        http: {{connection: proxied, url: "/pages{{?to}}", timeout: 5s, pages: {{next: link}}}}
      get:
        description: Fetch from the attacker's server.
        input: {{what: string}}
        http: &get {{url: "http://{web}/{{what}}", allow_private: [{host}], timeout: 20s}}
      get_briefly:
        description: Get what the attacker's server answers, which may not end.
        input: {{what: string}}
        http: {{<<: *get, timeout: 1s}}
"""
FIXED = """
      fixed_{number}:
        description: Fetch from an address in any spelling.
        http: {{url: "http://{address}:@port@/", timeout: 5s}}
"""


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with serving() as web:
        web.answers["/redirect"] = redirect
        web.answers["http://198.51.100.7/redirect"] = redirect
        web.answers["/pages"] = web.answers["http://198.51.100.7/pages"] = linked
        web.answers["/body"] = linked_in_body
        yield web


@pytest.fixture(scope="module")
def daemon(web: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A daemon that can reach the attacker's server."""
    file = CONFIG.format(web=f"{HOST}:{web.port}", host=HOST)
    file += "".join(FIXED.format(number=number, address=address) for number, address in enumerate(ADDRESSES))
    with attacking(Plan(file=file), tmp_path_factory.mktemp("attacked")) as target:
        yield target


def redirect(request: bytes) -> Iterator[bytes]:
    """Redirect to the URL in the query, byte for byte. Without a query, respond with `ok`."""
    target = request.split(b" ", 2)[1].decode("latin-1")
    [to] = parse_qs(urlsplit(target).query, encoding="latin-1", keep_blank_values=True).get("to", [""])
    yield reply(b"moved", f"Location: {to}", status="302 Found")


def linked(request: bytes) -> Iterator[bytes]:
    """Send a page that links to the URL in the query."""
    [to] = parse_qs(urlsplit(request.split(b" ", 2)[1].decode("latin-1")).query, encoding="latin-1").get("to", [""])
    yield reply(b"[1]", "Content-Type: application/json", f'Link: <{to}>; rel="next"')


def linked_in_body(request: bytes) -> Iterator[bytes]:
    target = urlsplit(request.split(b" ", 2)[1].decode("latin-1"))
    [to] = parse_qs(target.query, errors="surrogateescape").get("to", [""])
    yield reply(json.dumps({"items": [1], "next": to}).encode(), "Content-Type: application/json")


def at_canary(target: Target, url: str) -> str:
    return url.replace("@port@", str(target.canary.port))


# Hosts


@pytest.mark.parametrize("host", SPELLINGS)
def test_spellings_of_loopback_are_not_fetched(target: Target, host: str) -> None:
    text = target.client.refusal("fetch", {"host": host})
    reasons = ("which is blocked", "cannot be found", "is not a valid host name", "must be a host name")
    assert any(reason in text for reason in reasons), text


@pytest.mark.parametrize("number", range(len(ADDRESSES)), ids=ADDRESSES)
def test_private_addresses_are_not_fetched(target: Target, number: int) -> None:
    text = target.client.refusal(f"fixed_{number}")
    assert "which is blocked" in text, text


def test_allowed_address_is_fetched(target: Target, web: Web) -> None:
    assert target.client.text("ours", {"path": "x"}) == "ok"
    assert web.seen[-1].startswith(b"POST /base/x HTTP/1.1\r\n")


INVALID_HOSTS = (
    "127.0.0.1/", "a@127.0.0.1", "127.0.0.1#", "127.0.0.1?", "127.0.0.1:80", "127.0.0.1\\", "[::1]", "::1", "", " ",
    "\u2488\u2488.0.0.1", "\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021", "%31%32%37.0.0.1", "127.0.0.1%00",
    "127.0.0.1\r\nX: y", "127.0.0.1\0", "x" * 64, "a..b", ".", "../x", "file:", "\u212aelvin", "l\u00f6calhost", "a b",
)  # fmt: skip


@pytest.mark.parametrize("host", INVALID_HOSTS)
def test_invalid_host_is_rejected(target: Target, host: str) -> None:
    assert "must be a host name" in target.client.refusal("fetch", {"host": host})
    assert "must be one label of a host name" in target.client.refusal("label", {"name": host or "a.b"})


INVALID_IDNA_LABELS: Final = ("xn--", "xn--a", "xn--.example.com", "a.xn--99999999", "xn--" + "9" * 59, "XN--")
"""Labels that start like A-labels (RFC 5890 §2.3.1) but cannot be decoded."""


@pytest.mark.parametrize("host", INVALID_IDNA_LABELS)
def test_undecodable_host_is_not_found(target: Target, host: str) -> None:
    for text in (
        target.client.refusal("fetch", {"host": host}),
        target.client.refusal("follow", {"to": f"http://{host}:@port@/"}),
        target.client.refusal("follow_from_proxy", {"to": f"http://{host}:1/"}),
    ):
        assert "correlation id" not in text
        assert any(reason in text for reason in ("cannot be found", "cannot be resolved", "an invalid URL")), text


@given(host=st.one_of(st.integers(0, 2**32 - 1).map(str), st.ip_addresses(v=4, network="127.0.0.0/8").map(str)))
@examples(30)
def test_numeric_spellings_of_loopback_are_rejected(target: Target, host: str) -> None:
    """`assert_unharmed` checks that the canary was not reached."""
    if host.startswith("127.") or 0x7F000000 <= int(host) <= 0x7FFFFFFF:
        target.client.refusal("fetch", {"host": host})


# Redirects

REDIRECTS = (
    *(f"http://{address}:@port@/" for address in (*SPELLINGS, *ADDRESSES)),
    "//127.0.0.1:@port@/", "http:127.0.0.1:@port@/", "http:/127.0.0.1:@port@/", "http:///127.0.0.1:@port@/",
    "HTTP://127.0.0.1:@port@/", "http://user:word@127.0.0.1:@port@/", f"http://{HOST}@127.0.0.1:@port@/",
    f"http://{HOST}:80@127.0.0.1:@port@/", f"http://127.0.0.1:@port@\\@{HOST}/", f"http://127.0.0.1:@port@#@{HOST}/",
    f"http://127.0.0.1:@port@?@{HOST}/", "http://127.0.0.1:@port@/\r\nX-More: 1", "\thttp://127.0.0.1:@port@/",
    "http://127.0.0.1\t:@port@/", "http://%31%32%37.0.0.1:@port@/", "http://127%2e0%2e0%2e1:@port@/",
    "file:///etc/passwd", "data:,x",
    "http://\xe2\x91\xa0\xe2\x91\xa1\xe2\x91\xa6.0.0.1:@port@/",
    "http://127\xe3\x80\x820\xe3\x80\x820\xe3\x80\x821:@port@/",
    "gopher://127.0.0.1:@port@/x", "ftp://127.0.0.1:@port@/", "dict://127.0.0.1:@port@/", "javascript:alert(1)",
    "unix:///run/docker.sock", "http://[::1", "http://", "http://:@port@/", "http://127.0.0.1:99999/",
    "http://[::1%25lo]:@port@/",
)  # fmt: skip


@pytest.mark.parametrize("to", REDIRECTS)
@pytest.mark.parametrize("tool", ["follow", "follow_from_proxy"])
def test_redirect_cannot_lead_to_a_private_address(target: Target, web: Web, tool: str, to: str) -> None:
    before = len(web.seen)
    target.client.call(tool, {"to": at_canary(target, to)})
    asked = [request.split(b"\r\n", 1)[0] for request in web.seen[before:]]
    assert asked[0].split(b"?")[0].endswith(b"/redirect")
    # Relative URLs stay at the configured server or proxy.
    start = ("GET http://198.51.100.7/" if tool == "follow_from_proxy" else "GET /").encode()
    assert all(line.startswith(start) for line in asked), asked


@pytest.mark.parametrize("to", REDIRECTS)
@pytest.mark.parametrize("tool", ["pages", "pages_of_body", "pages_from_proxy"])
def test_next_page_cannot_lead_to_a_private_address(target: Target, web: Web, tool: str, to: str) -> None:
    before = len(web.seen)
    target.client.call(tool, {"to": at_canary(target, to)})
    asked = [request.split(b"\r\n", 1)[0] for request in web.seen[before:]]
    assert 1 <= len(asked) <= 10
    start = ("GET http://198.51.100.7/" if tool == "pages_from_proxy" else "GET /").encode()
    assert all(line.startswith(start) for line in asked), asked


def test_allowed_next_page_is_fetched(target: Target, web: Web) -> None:
    web.answers["/last"] = lambda _: iter([reply(b"[2]", "Content-Type: application/json")])
    web.answers["/last_body"] = lambda _: iter([reply(b'{"items": [2]}', "Content-Type: application/json")])
    assert target.client.text("pages", {"to": "/last"}) == "[1,2]"
    assert target.client.text("pages", {"to": f"http://{HOST}:{web.port}/last"}) == "[1,2]"
    assert '"items":[1,2]' in target.client.text("pages_of_body", {"to": "/last_body"})
    web.answers["http://93.184.215.14/last"] = web.answers["/last"]
    assert target.client.text("pages_from_proxy", {"to": "http://93.184.215.14/last"}) == "[1,2]"


def test_endless_pages_are_limited(target: Target, web: Web) -> None:
    numbers = itertools.count()

    def endless_pages(_request: bytes) -> Iterator[bytes]:
        yield reply(b"[1]", "Content-Type: application/json", f'Link: </endless?{next(numbers)}>; rel="next"')

    web.answers["/endless"] = endless_pages
    before = len(web.seen)
    target.client.call("pages", {"to": "/endless"})
    assert len(web.seen) == before + 10


PIECES = (
    "http://", "HTTP://", "//", "/", "\\", "@", ":", "#", "?", ".", "%", "\t", " ", "[", "]", "127.0.0.1", "localhost",
    "0x7f.1", "2130706433", "[::1]", "[::ffff:7f00:1]", "%31%32%37.0.0.1", ":@port@", HOST, "user:word@", "..", ";",
)  # fmt: skip


@given(pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=7))
@examples(150)
def test_location_cannot_lead_to_a_private_address(target: Target, web: Web, pieces: list[str]) -> None:
    """The canary records connections, and the proxy records requests."""
    to = at_canary(target, "".join(pieces))
    before = len(web.seen)
    target.client.call("follow", {"to": to})
    target.client.call("follow_from_proxy", {"to": to})
    assert not target.canary.reached, to
    targets = [request.split(b" ", 2)[1] for request in web.seen[before:]]
    assert {each.split(b"/")[2] for each in targets if not each.startswith(b"/")} == {b"198.51.100.7"}, to


def test_allowed_redirect_is_followed(target: Target, web: Web) -> None:
    assert target.client.text("follow", {"to": "/elsewhere"}) == "ok"
    assert target.client.text("follow", {"to": f"http://{HOST}:{web.port}/elsewhere"}) == "ok"
    assert target.client.text("follow_from_proxy", {"to": "/elsewhere"}) == "ok"
    assert target.client.text("follow_from_proxy", {"to": "http://93.184.215.14/elsewhere"}) == "ok"
    assert web.seen[-1].startswith(b"GET http://93.184.215.14/elsewhere HTTP/1.1\r\n")


def test_local_names_are_rejected_behind_a_proxy(target: Target, web: Web) -> None:
    """The daemon resolves the name before the proxy would."""
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), 80)}
    except OSError:
        pytest.skip("the machine cannot resolve its name")
    assert addresses
    before = len(web.seen)
    target.client.refusal("follow_from_proxy", {"to": f"http://{socket.gethostname()}:{target.canary.port}/"})
    text = target.client.refusal("follow_from_proxy", {"to": "http://nowhere.invalid/"})
    assert "`allow_private: [nowhere.invalid]`" in text
    assert len(web.seen) == before + 2


def test_redirect_chain_is_limited(target: Target, web: Web) -> None:
    round_about = "/redirect?to=" + quote("/redirect?to=" + quote("/redirect?to=" + quote("/redirect?to=/x")))
    assert "redirects more than 3 times" in target.client.refusal("follow", {"to": round_about})
    web.answers["/circle"] = lambda _: iter([reply(b"", "Location: /circle", status="307 Temporary Redirect")])
    assert "redirects more than 3 times" in target.client.refusal("get", {"what": "circle"})
    inside = "/redirect?to=" + quote(at_canary(target, "http://127.0.0.1:@port@/"))
    assert "has a loopback address" in target.client.refusal("follow", {"to": inside})


# Requests

BREAKS = (
    "a\r\nX-Evil: 1",
    "a\nX-Evil: 1",
    "a\rX-Evil: 1",
    "\r\n\r\nGET /evil HTTP/1.1\r\n\r\n",
    "a\0b",
    "a\x0bb",
    "a\x7f",
)


@pytest.mark.parametrize(
    "text", [*BREAKS, "\u560d\u560aX-Evil: 1", "\u2028X-Evil: 1", "&x=1", "?x", "#x", "%0d%0aX-Evil:1"]
)
def test_value_cannot_break_out_of_its_position(target: Target, web: Web, text: str) -> None:
    assert target.client.text("ours", {"path": text, "query": text, "body": text, "header": "fine"}) == "ok"
    head = web.seen[-1].partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert head[0] == f"POST /base/{quote(text, safe='')}?query={quote(text, safe='')} HTTP/1.1".encode()
    assert not [line for line in head if line.lower().startswith(b"x-evil")]
    assert b"X-Given: fine" in head


TRAVERSALS = (
    "../x",
    "..",
    ".",
    "./x",
    "a/../../x",
    "%2e%2e/x",
    "%2e%2e%2fx",
    "..%2fx",
    "%252e%252e/x",
    "..;/x",
    "..\\x",
    "//x",
    "",
)


@pytest.mark.parametrize("path", TRAVERSALS)
def test_path_cannot_leave_the_base_url(target: Target, web: Web, path: str) -> None:
    before = len(web.seen)
    target.client.refusal("deep", {"path": path})
    assert len(web.seen) == before
    assert target.client.text("deep", {"path": "a/b"}) == "ok"


@given(
    path=st.lists(
        st.sampled_from(("..", ".", "/", "%2e", "%2f", "a", "\\", ";", "%25", "?", "#", ":", "@")), max_size=8
    )
)
@examples(60)
def test_requests_stay_below_the_base_url(target: Target, web: Web, path: list[str]) -> None:
    before = len(web.seen)
    target.client.call("deep", {"path": "".join(path)})
    for request in web.seen[before:]:
        line = request.split(b"\r\n", 1)[0].decode()
        assert line.startswith("GET /base/"), line
        assert "/../" not in line, line
        assert request.lower().count(b"\r\nhost:") == 1


# Responses


def endless(piece: bytes) -> Iterator[bytes]:
    return itertools.repeat(piece)


def packed(body: bytes, encoding: str) -> bytes:
    return gzip.compress(body, 1) if encoding == "gzip" else zlib.compress(body, 1)


def bomb(wraps: int, encoding: str) -> bytes:
    """Return 64 MiB of zeros, compressed."""
    body = packed(b"\0" * 2**26, encoding)
    for _ in range(wraps - 1):
        body = packed(body, encoding)
    fields = f"Content-Encoding: {', '.join([encoding] * wraps)}"
    return reply(body, fields, "Content-Type: text/plain")


HEAD = b"HTTP/1.1 200 OK\r\n"
ANSWERS = {
    "bomb_gzip": lambda _: iter([bomb(1, "gzip")]),
    "bomb_deflate": lambda _: iter([bomb(1, "deflate")]),
    "bomb_in_a_bomb": lambda _: iter([bomb(2, "gzip")]),
    "endless_body": lambda _: itertools.chain([HEAD + b"\r\n"], endless(b"x" * 65536)),
    "endless_chunks": lambda _: itertools.chain(
        [HEAD + b"Transfer-Encoding: chunked\r\n\r\n"], endless(b"10000\r\n" + b"x" * 65536 + b"\r\n")
    ),
    "endless_gzip": lambda _: itertools.chain(
        [HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"")[:10]], endless(b"\0\0\0\xff\xff" * 10000)
    ),
    "endless_header": lambda _: itertools.chain([HEAD + b"X-Long: "], endless(b"x" * 65536)),
    "endless_headers": lambda _: itertools.chain([HEAD], endless(b"X-More: x\r\n" * 5000)),
    "endless_status": lambda _: itertools.chain([b"HTTP/1.1 200 "], endless(b"x" * 65536)),
    "endless_interim": lambda _: endless(b"HTTP/1.1 102 Processing\r\n\r\n" * 1000),
    "huge_chunk": lambda _: iter([HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\nx"]),
    "negative_length": lambda _: iter([HEAD + b"Content-Length: -1\r\n\r\nx"]),
    "two_lengths": lambda _: iter([HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy"]),
    "length_and_chunks": lambda _: iter(
        [HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
    ),
    "broken_gzip": lambda _: iter([reply(b"no gzip", "Content-Encoding: gzip")]),
    "unknown_encoding": lambda _: iter([reply(b"x", "Content-Encoding: br")]),
    "nothing": lambda _: iter(()),
    "noise": lambda _: iter([bytes(range(256)) * 10]),
    "folded_header": lambda _: iter([HEAD + b"X-A: 1\r\n\tX-B: 2\r\nContent-Length: 0\r\n\r\n"]),
    "nul_header": lambda _: iter([HEAD + b"X-A: \0\r\nContent-Length: 0\r\n\r\n"]),
}
READABLE_ANYWAY = {
    "length_and_chunks",
    "folded_header",
    "nul_header",
    "unknown_encoding",
    "two_lengths",
    "bomb_in_a_bomb",
}
"""Malformed responses that can also be read in a harmless way."""


@pytest.mark.parametrize("what", ANSWERS)
def test_slow_and_large_responses_are_bounded(target: Target, web: Web, what: str) -> None:
    web.answers[f"/{what}"] = ANSWERS[what]
    before = target.rss()
    result = target.client.call("get_briefly", {"what": what})
    assert result.get("isError") or what in READABLE_ANYWAY, result
    assert target.rss() - before < 64 * 2**20
    assert target.client.text("get", {"what": "control"}) == "ok"
