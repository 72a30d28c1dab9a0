"""`http.pages`: lists are joined, and missing pages are reported."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web
from multidict import CIMultiDict

from gateway.app.gateway import Gateway
from gateway.cli.commands.validate import check
from gateway.config.settings import read_settings
from gateway.errors import ConfigError
from gateway.executors.http.pages import Pages
from tests.local_server import listening

Page = tuple[Any, Mapping[str, str]]
"""The JSON value and header fields of a response."""


class Api:
    """A server whose responses are set by path and query. Other paths are 404."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.seen: list[tuple[str, CIMultiDict[str]]] = []
        self.handle_next: Callable[[], Awaitable[None]] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]

    async def respond(self, request: web.Request) -> web.Response:
        self.seen.append((request.path_qs, CIMultiDict(request.headers)))
        if self.handle_next is not None and len(self.seen) > 1:
            await self.handle_next()
        if request.path_qs not in self.pages:
            return web.Response(status=404, text="no such page")
        value, headers = self.pages[request.path_qs]
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        fields = CIMultiDict(headers)
        fields.setdefault("Content-Type", "application/json")
        return web.Response(body=body, headers=fields)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async for each in _api():
        yield each


@pytest.fixture
async def other() -> AsyncIterator[Api]:
    """A server with a different origin."""
    async for each in _api():
        yield each


async def _api() -> AsyncIterator[Api]:
    api = Api()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", api.respond)
    async with listening(application) as port:
        api.port = port
        yield api


def link(url: str) -> dict[str, str]:
    return {"Link": f'<{url}>; rel="next"'}


def linked(*pages: Any) -> dict[str, Page]:
    """Pages with a Link header. The first one is /items."""
    paths = ["/items", *(f"/items?page={number}" for number in range(2, len(pages) + 1))]
    return {
        path: (page, link(after) if after else {})
        for path, page, after in zip(paths, pages, [*paths[1:], ""], strict=True)
    }


async def call(
    folder: Path, api: Api, pages: Mapping[str, Any], *, http: Mapping[str, Any] | None = None, **tool: Any
) -> dict[str, Any]:
    config = {
        "connections": {
            "api": {
                "base_url": api.url,
                "allow_private": ["127.0.0.1"],
                "headers": {"X-Key": "secret-of-the-connection", "Accept": "application/json"},
                "auth": {"bearer": "token-of-the-connection"},
            }
        },
        "tools": {"items": {"http": {"connection": "api", "url": "/items", "pages": pages, **(http or {})}, **tool}},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    async with Gateway(read_settings({"config": folder / "config.yaml", "log_level": "error"})) as gateway:
        return await gateway.memory_client().request("tools/call", {"name": "items", "arguments": {}})


def texts(result: dict[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"]]


async def test_linked_pages_are_joined(api: Api, tmp_path: Path) -> None:
    api.pages = linked([1, 2], [], [3])
    result = await call(tmp_path, api, {"next": "link"})
    assert result["structuredContent"] == [1, 2, 3]
    assert texts(result) == ["[1,2,3]"]
    assert api.paths == ["/items", "/items?page=2", "/items?page=3"]
    assert {headers["Authorization"] for _, headers in api.seen} == {"Bearer token-of-the-connection"}
    assert {headers["X-Key"] for _, headers in api.seen} == {"secret-of-the-connection"}


@pytest.mark.parametrize(
    ("expression", "second"),
    [
        ("paging.next", "/items?page=2"),
        ("paging.next", "?page=2"),
        ("join('', ['{api}/items?page=', paging.next])", "2"),
    ],
)
async def test_url_in_the_response_is_followed(api: Api, tmp_path: Path, expression: str, second: str) -> None:
    api.pages = {
        "/items": ({"total": 3, "items": [{"id": 1}], "paging": {"next": second, "page": 1}}, {}),
        "/items?page=2": ({"total": 3, "items": [{"id": 2}], "paging": {"next": None, "page": 2}, "end": True}, {}),
    }
    if "{api}" in expression:
        api.pages["/items?page=2"][0]["paging"]["next"] = None
        expression = f"paging.next && {expression.replace('{api}', api.url)}"
    result = await call(tmp_path, api, {"next": expression})
    assert result["structuredContent"] == {
        "total": 3,
        "items": [{"id": 1}, {"id": 2}],
        "paging": {"next": None, "page": 2},
        "end": True,
    }
    result = await call(tmp_path, api, {"next": expression}, output={"select": "items[].id"})
    assert result["structuredContent"] == [1, 2]


@pytest.mark.parametrize(
    ("header", "is_followed"),
    [
        ('</a>; rel="prev", </items?page=2>; rel="next"', True),
        ("</items?page=2>; rel=next", True),
        ('</items?page=2> ; title="a, b; rel=prev" ; REL="last NEXT"', True),
        ('</x>; rel="next"; anchor="/elsewhere", </items?page=2>; rel=next', True),
        ('</items?page=2>; rel="prev"; rel="next"', False),  # RFC 8288 §3.3: only the first `rel` counts
        ('</items?page=2>; rel="nextish"', False),
        ('</items?page=2>; title="; rel=next"', False),
        ("/items?page=2; rel=next", False),
        ("<>", False),
    ],
)
async def test_link_header_follows_rfc_8288(
    api: Api,
    tmp_path: Path,
    header: str,
    is_followed: bool,  # noqa: FBT001 - a column of the table
) -> None:
    api.pages = {"/items": ([1], {"Link": header}), "/items?page=2": ([2], {})}
    result = await call(tmp_path, api, {"next": "link"})
    assert result["structuredContent"] == ([1, 2] if is_followed else [1])


@pytest.mark.parametrize(
    "pattern", ["<", "<a", "<>", '"', '<>"', '<>\\"', '<>"\\', '<>"\\"', ";", "; ", ";a=", ';a="', ';a="\\', ';a=\\"']
)
def test_link_header_is_parsed_in_linear_time(pattern: str) -> None:
    """A quadratic pattern takes hours for this size."""
    hostile = (pattern * 1_000_000)[:1_000_000]
    pages = Pages(next=None, max=2, max_bytes=1, select=None)
    for text in (hostile, f"<>{hostile}", f'<>"{hostile}', f"<>;a={hostile}"):
        assert pages.next_of(text, None) is None
    assert pages.next_of('</a>; title="b"; rel=next', None) == "/a"


@pytest.mark.parametrize(("fields", "is_followed"), [(1, True), (2, True), (3, False)])
async def test_long_link_header_is_ignored_and_reported(
    api: Api,
    tmp_path: Path,
    fields: int,
    is_followed: bool,  # noqa: FBT001 - a column of the table
) -> None:
    headers = CIMultiDict([*link("/items?page=2").items(), *[("Link", "<" * 8000)] * fields])
    api.pages = {"/items": ([1], headers), "/items?page=2": ([2], {})}
    result = await call(tmp_path, api, {"next": "link"})
    assert result["structuredContent"] == ([1, 2] if is_followed else [1])
    if not is_followed:
        assert texts(result)[1] == ("[… pages after page 1 are missing: the `Link` header of page 1 exceeds 16 KiB …]")
        assert len(api.seen) == 1
    # An expression does not use the header.
    api.pages["/items"] = ({"next": None}, headers)
    assert texts(await call(tmp_path, api, {"next": "next"})) == ['{"next":null}']


async def test_single_page_is_unchanged(api: Api, tmp_path: Path) -> None:
    api.pages = {"/items": (b"plain text", {"Content-Type": "text/plain"})}
    assert texts(await call(tmp_path, api, {"next": "link"})) == ["plain text"]
    api.pages = {"/items": (b'{"a":  1.50}', {})}
    result = await call(tmp_path, api, {"next": "next"}, output={"format": "text"})
    assert texts(result) == ['{"a":  1.50}']


async def test_stopping_at_max_is_reported(api: Api, tmp_path: Path) -> None:
    api.pages = linked([1], [2], [3])
    result = await call(tmp_path, api, {"next": "link", "max": 2})
    assert result["structuredContent"] == [1, 2]
    assert texts(result) == ["[1,2]", "[… pages after page 2 are missing: `pages.max` is 2 …]"]
    assert len(api.seen) == 2
    result = await call(tmp_path, api, {"next": "link", "max": 3})
    assert texts(result) == ["[1,2,3]"]
    result = await call(tmp_path, api, {"next": "link", "max": 1}, output={"template": "{{ result | length }}"})
    assert texts(result) == ["1", "[… pages after page 1 are missing: `pages.max` is 1 …]"]


async def test_fetching_stops_at_the_limit_of_the_output(api: Api, tmp_path: Path) -> None:
    api.pages = linked(*([str(number) * 400] for number in range(8)))
    result = await call(tmp_path, api, {"next": "link"}, output={"max_size": "1KiB"})
    assert result["structuredContent"] == ["0" * 400, "1" * 400]
    assert texts(result)[1] == (
        "[… pages after page 2 are missing: page 3 would exceed the output size limit (max_size) …]"
    )
    assert len(api.seen) == 3
    # Only the selected part counts.
    api.seen.clear()
    result = await call(tmp_path, api, {"next": "link"}, output={"max_size": "1KiB", "select": "[*].length(@)"})
    assert result["structuredContent"] == [400] * 8
    assert len(api.seen) == 8
    # A first page that exceeds the limit is shortened, as without pages.
    api.seen.clear()
    result = await call(tmp_path, api, {"next": "link"}, output={"max_size": "100B"})
    assert "bytes omitted" in texts(result)[0]
    assert texts(result)[1] == "[… pages after page 1 are missing: the output size limit (max_size) is reached …]"
    assert len(api.seen) == 1


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (None, "page 2: HTTP 404 Not Found\nno such page"),
        (b"<html>", "page 2 is not JSON, so pages cannot be joined"),
        (b"", "page 2 is not JSON, so pages cannot be joined"),
        ({"error": "x"}, "page 2 has a different structure than earlier pages, so they cannot be joined"),
        ("text", "page 2 has a different structure than earlier pages, so they cannot be joined"),
    ],
)
async def test_later_page_that_fails_is_an_error(api: Api, tmp_path: Path, second: Any, reason: str) -> None:
    api.pages = linked([1], second)
    if second is None:
        del api.pages["/items?page=2"]
    result = await call(tmp_path, api, {"next": "link"})
    assert result["isError"] is True
    assert texts(result) == [reason]


@pytest.mark.parametrize(
    ("expression", "first", "reason"),
    [
        ("next", {"next": 2}, "`pages.next` must select a URL (got 2)"),
        ("next", {"next": ["/a"]}, '`pages.next` must select a URL (got ["/a"])'),
        ("sum(next)", {"next": "x"}, "`pages.next` cannot be applied to the response: "),
        ("next", b"<html>", "page 1 is not JSON, so pages cannot be joined"),
        ("@", "/items?page=2", "page 1 is neither a list nor an object, so pages cannot be joined"),
        ("next", {"next": "ftp://example.com/"}, "127.0.0.1 links to a URL that is not allowed"),
    ],
)
async def test_unusable_next_page_is_an_error(
    api: Api, tmp_path: Path, expression: str, first: Any, reason: str
) -> None:
    api.pages = {"/items": (first, {})}
    result = await call(tmp_path, api, {"next": expression})
    assert result["isError"] is True
    assert texts(result)[0].startswith(reason)


async def test_connection_that_breaks_at_a_later_page_is_an_error(api: Api, other: Api, tmp_path: Path) -> None:
    api.pages = {"/items": ([1], link("http://127.0.0.1:9/"))}
    result = await call(tmp_path, api, {"next": "link"})
    assert result["isError"] is True
    assert texts(result)[0].startswith("page 2: Cannot connect to 127.0.0.1:9")


@pytest.mark.parametrize("loop", ["/items", "/items?page=2", "", "#top", "./items"])
async def test_loop_ends_and_is_reported(api: Api, tmp_path: Path, loop: str) -> None:
    api.pages = {"/items": ([1], link("/items?page=2")), "/items?page=2": ([2], link(loop))}
    if not loop:
        api.pages["/items?page=2"] = ([2], link("?page=2"))
    result = await call(tmp_path, api, {"next": "link"})
    assert result["structuredContent"] == [1, 2]
    assert "page 2 links to a page that was already fetched" in texts(result)[1] or loop == "#top"
    assert len(api.seen) == 2


async def test_other_origin_gets_no_credentials(api: Api, other: Api, tmp_path: Path) -> None:
    api.pages = {"/items": ([1], link(f"{other.url}/more")), "/items?page=3": ([3], {})}
    other.pages = {"/more": ([2], link(f"{api.url}/items?page=3"))}
    headers = {"X-Plain": "plain", "X-Api-Key": "own-key", "X-Input": "{{ who }}"}
    http = {"headers": headers, "forward_headers": ["X-Request-Id"], "method": "GET", "json": {"who": "{{ who }}"}}
    inputs = {"who": {"type": "string", "default": "value-of-the-caller"}}
    result = await call(tmp_path, api, {"next": "link"}, http=http, input=inputs)
    assert result["structuredContent"] == [1, 2, 3]
    [(_, there)] = other.seen
    own = {"x-key", "authorization", "x-api-key", "x-input", "x-plain", "cookie", "content-type", "content-length"}
    assert not own & {name.lower() for name in there}
    # Control: the first origin receives all credentials, also afterwards.
    for _, here in api.seen:
        assert int(here["Content-Length"]) > 0
        assert {here[name] for name in ("X-Key", "X-Api-Key", "X-Input", "Authorization")} == {
            "value-of-the-caller",
            "secret-of-the-connection",
            "own-key",
            "Bearer token-of-the-connection",
        }


@pytest.mark.parametrize("redirects", [0, 1])
async def test_other_origin_is_not_requested_without_redirects(
    api: Api, other: Api, tmp_path: Path, redirects: int
) -> None:
    api.pages = {"/items": ([1], link("/items?page=2")), "/items?page=2": ([2], link(f"{other.url}/more"))}
    other.pages = {"/more": ([3], {})}
    result = await call(tmp_path, api, {"next": "link"}, http={"follow_redirects": redirects})
    assert result["structuredContent"] == [1, 2, 3][: 2 + redirects]
    assert len(other.seen) == redirects
    note = "[… pages after page 2 are missing: the next page has another origin, and `follow_redirects` is 0 …]"
    assert texts(result)[1:] == ([] if redirects else [note])


async def test_private_address_of_another_host_is_rejected(api: Api, tmp_path: Path) -> None:
    api.pages = {"/items": ([1], link("http://127.0.0.3:9/more"))}
    result = await call(tmp_path, api, {"next": "link"})
    assert result["isError"] is True
    assert "`127.0.0.3` has a loopback address, which is blocked" in texts(result)[0]


async def test_deadline_covers_all_pages(api: Api, tmp_path: Path) -> None:
    api.pages = linked([1], [2])

    async def hang() -> None:
        await asyncio.sleep(600)

    api.handle_next = hang
    result = await call(tmp_path, api, {"next": "link"}, timeout="1s")
    assert result["isError"] is True
    assert "timed out after 1.0 s" in texts(result)[0]


async def test_cancelled_call_fetches_no_further_page(api: Api, tmp_path: Path) -> None:
    api.pages = linked([1], [2], [3])
    reached, gone = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        reached.set()
        try:
            await asyncio.sleep(600)
        finally:
            gone.set()

    api.handle_next = hang
    task = asyncio.ensure_future(call(tmp_path, api, {"next": "link"}))
    async with asyncio.timeout(60):
        await reached.wait()
        task.cancel()
        await asyncio.wait({task})
    assert len(api.seen) == 2


MISTAKES: Final = (
    ("tools: {t: {http: {url: 'https://h/', method: POST, pages: {next: link}}}}", "requires GET (got POST)"),
    (
        "resources: {r: {uri: 'r://r', http: {url: 'https://h/', pages: {next: link}}}}",
        "can only be used in a tool, because a resource cannot report missing pages",
    ),
    (
        "tools: {t: {http: {url: 'https://h/', pages: {next: 'a['}}}}",
        "not a valid JMESPath expression: Incomplete expression",
    ),
    ("tools: {t: {http: {url: 'https://h/', pages: {next: link, max: 0}}}}", "must be at least 1"),
    ("tools: {t: {http: {url: 'https://h/', pages: {max: 2}}}}", "next"),
)


@pytest.mark.parametrize(("text", "reason"), MISTAKES)
def test_mistake_is_found_at_load(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        check(read_settings({"config": tmp_path / "config.yaml"}))
    [problem] = raised.value.errors
    assert reason in f"{problem.path} {problem.message}"
