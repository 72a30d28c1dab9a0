"""Targets and requests of redirects."""

import pytest
from yarl import URL

from gateway.errors import ExecutionError
from gateway.net.request import Header, Request
from gateway.net.sender import redirected

BOUND = Header(name="Authorization", value="secret", is_bound=True)
UNBOUND = Header(name="Accept", value="text/html", is_bound=False)
TYPE = Header(name="Content-Type", value="text/plain", is_bound=False)


def request(method: str = "GET", url: str = "https://h/a/b", *, body: bytes | None = None) -> Request:
    return Request(method=method, url=URL(url, encoded=True), headers=(BOUND, UNBOUND, TYPE), body=body)


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("c", "https://h/a/c"),
        ("/c?x=1#y", "https://h/c?x=1"),
        ("//other/c", "https://other/c"),
        ("https://other:8443/", "https://other:8443/"),
        ("https://user:word@other/", "https://other/"),
    ],
)
def test_location_is_resolved_without_fragment_and_credentials(location: str, url: str) -> None:
    assert str(redirected(request(), status=302, location=location).url) == url


@pytest.mark.parametrize(
    ("status", "method", "then", "keeps_body"),
    [
        (301, "POST", "GET", False),
        (302, "POST", "GET", False),
        (303, "POST", "GET", False),
        (303, "PUT", "GET", False),
        (303, "HEAD", "HEAD", True),
        (302, "PUT", "PUT", True),
        (307, "POST", "POST", True),
        (308, "POST", "POST", True),
        (301, "GET", "GET", True),
    ],
)
def test_redirected_method_changes_as_in_browsers(status: int, method: str, then: str, keeps_body: bool) -> None:  # noqa: FBT001 - a table's column
    following = redirected(request(method, body=b"x"), status=status, location="/")
    assert following.method == then
    assert (following.body is not None) is keeps_body
    assert (TYPE in following.headers) is keeps_body


@pytest.mark.parametrize("location", ["https://other/", "https://h:8443/", "https://sub.h/"])
def test_another_origin_gets_no_bound_header(location: str) -> None:
    assert redirected(request(), status=302, location=location).headers == (UNBOUND, TYPE)
    assert BOUND in redirected(request(), status=302, location="https://H:443/x").headers


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("http://h/", "h redirects from https to http, which is not followed"),
        ("file:///etc/passwd", "h redirects to a URL that is not allowed"),
        ("javascript:alert(1)", "h redirects to a URL that is not allowed"),
        ("https://%31%32%37.0.0.1/", "h redirects to a URL that is not allowed"),
        ("https://a%2eb/", "h redirects to a URL that is not allowed"),
        ("https://h:99999/", "h redirects to an invalid URL"),
        ("https://[::1/", "h redirects to an invalid URL"),
        ("//[]@/", "h redirects to an invalid URL"),
    ],
)
def test_forbidden_redirect_is_an_error(location: str, message: str) -> None:
    with pytest.raises(ExecutionError, match=f"^{message}$"):
        redirected(request(), status=302, location=location)


def test_body_with_a_secret_is_not_sent_to_another_origin() -> None:
    secret = Request(method="POST", url=URL("https://h/"), headers=(), body=b"x", has_secret_body=True)
    assert redirected(secret, status=307, location="/x").body == b"x"
    assert redirected(secret, status=302, location="https://other/").body is None
    with pytest.raises(ExecutionError, match="the body contains a secret"):
        redirected(secret, status=307, location="https://other/")
