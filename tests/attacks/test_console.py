"""The console needs its token, other pages cannot act for its user, and its paths cannot leave its directory."""

import string
from collections.abc import Sequence
from typing import Final

import pytest

from tests.attacks.client import Answer
from tests.attacks.target import Plan, Target
from tests.messages import MODERN, modern_request

PLAN = Plan(
    file="""
    listen: {console: true}
    tools:
      hello: {description: Says hello., content: [{text: Hello.}]}
    """
)
MARK: Final = ("X-MCP-Gateway-Console", "1")
SAME_ORIGIN: Final = ("Sec-Fetch-Site", "same-origin")
MODERN_FIELDS: Final = (("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/list"))


def link_of(target: Target) -> str:
    return str(target.event("console")["url"])


def token_of(target: Target) -> str:
    return link_of(target).partition("token=")[2]


def enter(target: Target, token: str) -> Answer:
    return target.client.request("GET", f"/-/console/?token={token}")


@pytest.fixture
def cookie(target: Target) -> str:
    """Return the cookie of a sign-in with the printed link, as a control."""
    entered = enter(target, token_of(target))
    assert entered.status == 303
    cookie = entered.headers["set-cookie"].partition(";")[0]
    assert overview(target, ("Cookie", cookie)).status == 200
    return cookie


def overview(target: Target, *fields: tuple[str, str]) -> Answer:
    return target.client.request("GET", "/-/api/overview", fields=fields)


def listed(target: Target, cookie: str, *fields: tuple[str, str]) -> Answer:
    given = (*MODERN_FIELDS, ("Cookie", cookie), *fields)
    return target.client.post(modern_request("tools/list"), fields=given, path="/-/api/mcp")


def own_origin(target: Target) -> tuple[str, str]:
    return "Origin", f"http://127.0.0.1:{target.client.port}"


@pytest.mark.parametrize("fields", [[SAME_ORIGIN], []], ids=["every header", "a browser without Sec-Fetch-Site"])
def test_console_page_can_act(target: Target, cookie: str, fields: list[tuple[str, str]]) -> None:
    answer = listed(target, cookie, MARK, own_origin(target), *fields)
    assert "hello" in [tool["name"] for tool in answer.json["result"]["tools"]]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([], id="a form without headers"),
        pytest.param([("Origin", "http://evil.example.com")], id="another origin"),
        pytest.param([MARK, SAME_ORIGIN, ("Origin", "http://evil.example.com")], id="another origin with all headers"),
        pytest.param([MARK, ("Origin", "null")], id="a sandboxed frame"),
        pytest.param([MARK, ("Origin", "http://127.0.0.1:1")], id="another port of this host"),
        pytest.param([MARK, ("Origin", "http://localhost:1")], id="another name of this host"),
        pytest.param([MARK, ("Sec-Fetch-Site", "same-site")], id="another port without its origin"),
        pytest.param([MARK, SAME_ORIGIN], id="no origin"),
        pytest.param([("X-MCP-Gateway-Console", "0"), SAME_ORIGIN], id="the header with another value"),
    ],
)
def test_cross_site_request_cannot_act_for_a_signed_in_user(
    target: Target, cookie: str, fields: Sequence[tuple[str, str]]
) -> None:
    answer = listed(target, cookie, *fields)
    assert answer.status == 403, answer
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("fields", [[SAME_ORIGIN], [MARK, ("Sec-Fetch-Site", "cross-site")]])
def test_own_origin_alone_cannot_act(target: Target, cookie: str, fields: Sequence[tuple[str, str]]) -> None:
    assert listed(target, cookie, own_origin(target), *fields).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_cross_site_request_cannot_read_with_the_cookie(target: Target, cookie: str, site: str) -> None:
    assert overview(target, ("Cookie", cookie), ("Sec-Fetch-Site", site)).status == 403


def test_preflight_never_allows_the_header(target: Target) -> None:
    asked = [("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", MARK[0])]
    for origin, status in (("http://evil.example.com", 403), ("http://localhost:1", 204)):
        answer = target.client.request("OPTIONS", "/-/api/mcp", fields=[("Origin", origin), *asked])
        assert answer.status == status
        assert MARK[0].lower() not in answer.headers.get("access-control-allow-headers", "").lower()


@pytest.mark.parametrize("path", ["/-/console/", "/-/console/static/app.js", "/-/api/overview", "/-/api/session"])
def test_dns_rebinding_does_not_reach_the_console(target: Target, cookie: str, path: str) -> None:
    answer = target.client.request("GET", path, fields=[("Host", "evil.example.com"), ("Cookie", cookie)])
    assert answer.status == 421


@pytest.mark.parametrize("path", ["/-/console/", "/-/console/static/app.js", "/-/api/overview", "/-/api/status"])
@pytest.mark.parametrize(
    ("fields", "status"),
    [
        pytest.param([SAME_ORIGIN], {200, 401}, id="the page itself"),
        pytest.param([("Host", "<script>")], {421}, id="a host"),
        pytest.param([("Origin", "http://evil.example.com")], {403}, id="an origin"),
        pytest.param(
            [("Sec-Fetch-Site", "cross-site"), ("Origin", "http://localhost:1")], {200, 401}, id="another port"
        ),
    ],
)
def test_responses_forbid_sniffing_and_cross_origin_reads(
    target: Target, path: str, fields: Sequence[tuple[str, str]], status: set[int]
) -> None:
    answer = target.client.request("GET", path, fields=fields)
    assert answer.status in status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in answer.headers


def forged(cookie: str) -> Sequence[str]:
    name, _, value = cookie.partition("=")
    content, _, signature = value.rpartition(".")
    other = string.ascii_letters.replace(content[5], "")[0]
    flipped = content[:5] + other + content[6:]
    values = (
        *("", ".", content, f"{content}.", f".{signature}", f"{flipped}.{signature}", f"{content}.{signature[:-1]}"),
        *(f"{value}=", f"{value}!!", f"{content}=.{signature}", signature, f"{content}.{'A' * len(signature)}"),
    )
    return [f"{name}={each}" for each in values] + [f"other={value}", f"__Host-{name}={value}"]


def test_forged_cookie_is_rejected(target: Target, cookie: str) -> None:
    for each in forged(cookie):
        assert overview(target, ("Cookie", each)).status == 401, each
    assert overview(target, ("Cookie", cookie)).status == 200


def test_guessed_tokens_are_rejected_and_throttled(target: Target, cookie: str) -> None:
    token = token_of(target)
    guesses = ["x", token[:-1], f"{token}x", token.swapcase(), token[::-1], f"%20{token}%20x", "%00", "a" * 8000]
    for guess in guesses * 2:
        answer = enter(target, guess)
        assert (answer.status, "set-cookie" in answer.headers) == (401, False), guess
    answers = {overview(target, ("Authorization", "Bearer guess")).status for _ in range(20)}
    assert 429 in answers
    assert enter(target, token).status == 303  # wrong tokens do not lock out other users
    assert overview(target, ("Cookie", cookie)).status == 200
    denied = [line for line in target.log if "console sign-in denied" in line]
    assert denied
    assert not any(token in line for line in target.log if '"event":"console"' not in line)


@pytest.mark.parametrize("path", ["/-/api/overview?token={}", "/-/console/static/app.js?token={}", "/mcp?token={}"])
def test_token_in_another_url_is_ignored(target: Target, path: str) -> None:
    answer = target.client.request("GET", path.format(token_of(target)))
    assert answer.status in {200, 400, 401, 406}  # the file is public
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "name",
    [
        *("../console.py", "..%2fconsole.py", "%2e%2e/console.py", "..%5cconsole.py", "....//console.py"),
        *(
            "/etc/passwd",
            "%2fetc%2fpasswd",
            "vendor/../../console.py",
            "app.js%00.css",
            "static",
            ".",
            "%2e",
            "vendor/",
        ),
    ],
)
def test_static_files_have_no_path_traversal(target: Target, name: str) -> None:
    answer = target.client.request("GET", f"/-/console/static/{name}")
    assert answer.status in {400, 404}, answer
    assert b"root:" not in answer.body
    assert b"import" not in answer.body
    assert target.client.request("GET", "/-/console/static/app.js").status == 200


def test_too_large_or_unauthenticated_body_is_rejected(target: Target) -> None:
    given = [MARK, SAME_ORIGIN, own_origin(target)]
    for body, status in ((b'{"token": "' + b"x" * 2**20 + b'"}', 413), (b"[]", 400), (b'{"token": 1}', 400)):
        assert target.client.post(body, fields=given, path="/-/api/session").status == status
    form = [*given, ("Content-Type", "application/x-www-form-urlencoded")]
    assert target.client.request("POST", "/-/api/session", fields=form, body=b"token=x").status == 415
