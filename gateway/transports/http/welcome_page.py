"""The page at `/` that explains how to connect a client."""

import re
from collections.abc import Iterable
from html import escape
from typing import Final

from aiohttp import web

from gateway.protocol.dispatcher import Dispatcher
from gateway.transports.http.request import HttpRequest

_HEADERS: Final = {
    # The page has one inline style sheet and no scripts.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Vary": "Accept",
}
_MAX_TOOLS: Final = 50
_STYLE: Final = "body{font:16px/1.5 sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}pre{overflow:auto}"
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{style}</style>
<h1>{title}</h1>
{description}<p>This is an MCP server. Connect an MCP client to this URL:</p>
<pre>{url}</pre>
<p>Claude Code:</p>
<pre>claude mcp add --transport http {name} {url}</pre>
<p>Other clients:</p>
<pre>mcp-gateway client-config CLIENT --url {url}</pre>
{more}
</html>
"""


def wants_page(request: HttpRequest) -> bool:
    """Return whether a browser requests the root path."""
    accepted = request.raw.headers.get("Accept", "")
    is_root = request.raw.path in {"/", f"{request.client_endpoint.prefix}/"}
    return is_root and request.raw.method in {"GET", "HEAD"} and "text/html" in accepted.lower()


def welcome_page(
    request: HttpRequest, dispatcher: Dispatcher, *, path: str, has_console: bool, is_open: bool
) -> web.Response:
    """Return the welcome page. The page lists the tools only if clients do not have to authenticate (`is_open`)."""
    base_url = request.client_endpoint.base_url.rstrip("/")
    info = dispatcher.store.current.server_info
    name = str(info["name"])
    more = list(_tools(dispatcher)) if is_open else ["<p>Clients must authenticate.</p>"]
    if has_console:
        more.append(f'<p><a href="{escape(base_url)}/-/console/">Open the console</a></p>')
    body = _PAGE.format(
        title=escape(str(info.get("title") or name)),
        style=_STYLE,
        description=f"<p>{escape(str(info['description']))}</p>\n" if info.get("description") else "",
        url=escape(f"{base_url}{path}"),
        name=re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "gateway",
        more="\n".join(more),
    )
    headers = {**request.response_headers, **_HEADERS}
    return web.Response(text=body, content_type="text/html", charset="utf-8", headers=headers)


def _tools(dispatcher: Dispatcher) -> Iterable[str]:
    tools = [each for each in dispatcher.store.current.tools.values() if each.access.is_listed_for(frozenset())]
    if tools:
        yield "<p>Tools:</p>\n<ul>"
        for tool in tools[:_MAX_TOOLS]:
            description = str(tool.definition.get("description") or "").partition("\n")[0]
            yield f"<li><code>{escape(tool.name)}</code> {escape(description)}"
        if len(tools) > _MAX_TOOLS:
            yield f"<li>and {len(tools) - _MAX_TOOLS} more"
        yield "</ul>"
