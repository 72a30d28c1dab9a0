"""A web browser without JavaScript: follows redirects, keeps cookies, and completes the forms of a sign-in.

Uses only the standard library, because the drivers of official clients import it in separate environments.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.client import HTTPMessage
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import HTTPCookieProcessor, HTTPRedirectHandler, Request, build_opener

STEPS = 30
SECONDS = 60


@dataclass
class Form:
    action: str
    fields: dict[str, str] = field(default_factory=dict)
    """The values of its inputs and named buttons."""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.refresh = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(found.get("action", "")))
        elif tag in {"input", "button"} and "name" in found:
            self.forms[-1].fields[found["name"]] = found.get("value", "")
        elif tag == "meta" and found.get("http-equiv") == "refresh":
            self.refresh = found["content"].partition("url=")[2]


@dataclass
class Page:
    """A response that is not a redirect; or a redirect to the URL at which a visit stops."""

    url: str
    status: int
    text: str

    def __post_init__(self) -> None:
        reader = _Reader()
        reader.feed(self.text)
        self.forms = reader.forms
        self.refresh = reader.refresh


class _Still(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


class Browser:
    def __init__(self, user: str, *, key: str = "", origins: Mapping[str, str] | None = None) -> None:
        """Sign in at issuers as `user`, and on pages of the gateway with `key`, or with the first issuer.

        `origins` maps the origins of URLs to the origins of requests, like a reverse proxy.
        """
        self._user = user
        self._key = key
        self.origins = dict(origins or {})
        policy = DefaultCookiePolicy(secure_protocols=("http", "https"))
        self._opener = build_opener(HTTPCookieProcessor(CookieJar(policy)), _Still())
        self.visited: list[str] = []

    def visit(self, url: str, *, until: str = "") -> Page:
        """Open a page, and complete forms until none is left. Stop at a redirect to a URL that starts with `until`."""
        return self.finish(self.open(url, until=until), until=until)

    def finish(self, page: Page, *, until: str = "") -> Page:
        for _ in range(STEPS):
            if page.refresh:
                page = self.open(urljoin(page.url, page.refresh), until=until)
            elif (found := self._next(page)) is not None:
                page = self.submit(page, found[0], until=until, **found[1])
            else:
                return page
        raise AssertionError(f"more than {STEPS} pages: {self.visited}")

    def submit(self, page: Page, form: Form, *, until: str = "", **fields: str) -> Page:
        url = urljoin(page.url, form.action) if form.action else page.url
        return self.open(url, urlencode({**form.fields, **fields}).encode(), until=until, origin=_origin(page.url))

    def open(self, url: str, body: bytes | None = None, *, until: str = "", origin: str = "") -> Page:
        """Send a request, and follow redirects."""
        for _ in range(STEPS):
            self.visited.append(url)
            if until and url.startswith(until):
                return Page(url, 0, "")
            status, text, location = self._send(url, body, origin)
            if status not in {301, 302, 303}:
                return Page(url, status, text)
            url, body = urljoin(url, location), None
        raise AssertionError(f"more than {STEPS} redirects: {self.visited}")

    def _send(self, url: str, body: bytes | None, origin: str) -> tuple[int, str, str]:
        target = _origin(url)
        headers = {"Host": urlsplit(url).netloc, "Accept": "text/html"}
        if body is not None:
            headers["Origin"] = origin
        sent = Request(url.replace(target, self.origins.get(target, target), 1), data=body, headers=headers)
        try:
            response: Any = self._opener.open(sent, timeout=SECONDS)
        except HTTPError as error:
            response = error
        with response:
            return response.status, response.read().decode(), response.headers.get("Location", "")

    def _next(self, page: Page) -> tuple[Form, dict[str, str]] | None:
        """Return the form to submit, and the values to enter."""
        for form in page.forms:
            if "login" in form.fields:
                return form, {"login": self._user, "password": "any"}
            if form.fields.get("prompt") == "consent" or ("issuer" in form.fields and not self._key):
                return form, {}
            if "token" in form.fields and self._key:
                return form, {"token": self._key}
        if "/-/sign-in/" in page.url and len(page.forms) == 1 and "token" not in page.forms[0].fields:
            return page.forms[0], {}
        return None


def _origin(url: str) -> str:
    return "{0.scheme}://{0.netloc}".format(urlsplit(url))
