"""A client for the admin API of a running daemon."""

import asyncio
import re
from argparse import Namespace
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from gateway.cli.client.remote import decoded, endpoint, open_sender, request_to, unreachable
from gateway.cli.console import Console
from gateway.cli.options import settings_of
from gateway.config.definition_source import load_definitions
from gateway.config.machine_facts import exists
from gateway.config.models.address import Address
from gateway.config.models.server import Listen
from gateway.config.settings import TOKEN_VARIABLE
from gateway.errors import ConfigError, ExecutionError
from gateway.json_types import Json, JsonObject

_ADMIN_KEY: Final = "a key with the scope gateway:admin"
_SECONDS: Final = 20.0
_ENDPOINT: Final = re.compile(r"/mcp(/[^/]+)?$")
"""Matches the path of an MCP endpoint at the end of a URL: `/mcp`, or `/mcp/NAME` for a view."""
_OWN_PATH: Final = re.compile(r"/-(/.*)?$")


async def ask_daemon(
    url: str, path: str, *, method: str = "GET", form: Mapping[str, str] | None = None, needs: str = _ADMIN_KEY
) -> JsonObject:
    """Send a request to a path of the admin API, such as `/-/status`, and return the JSON object in the response.

    If `form` is set, send a POST request with these form fields. If the response is 401 or 403, the error message says
    that `needs` is required.

    Raises:
        ExecutionError: the daemon does not respond, the status is not 200, or the body is not a JSON object.
    """
    parts = urlsplit(endpoint(url, path="/"))
    # The URL can contain the path prefix of a reverse proxy.
    prefix = _ENDPOINT.sub("", _OWN_PATH.sub("", parts.path).rstrip("/"))
    target = urlunsplit(parts._replace(path=prefix + path, query=""))
    deadline = asyncio.get_running_loop().time() + _SECONDS
    fields, body = {"Accept": "application/json"}, None
    if form is not None:
        method, body = "POST", urlencode(form).encode()
        fields["Content-Type"] = "application/x-www-form-urlencoded"
    try:
        request = request_to(target, method, fields, body)
        async with open_sender() as sender:
            response = await sender.send(request, deadline=deadline)
    except (ExecutionError, ValueError) as error:
        raise unreachable(target, error) from error
    answer = decoded(response.body)
    if response.status != 200 or not isinstance(answer, dict):
        hint = _hint(response.status, _error_text(answer), needs)
        raise ExecutionError(f"{target}: the server returned {response.status} {response.reason}{hint}")
    return answer


def _error_text(answer: Json) -> str | None:
    match answer:
        case {"error": str() as text} | {"error": {"message": str() as text}}:
            return text
        case _:
            return None


def _hint(status: int, text: str | None, needs: str) -> str:
    if status in {401, 403}:
        return f". Set ${TOKEN_VARIABLE} to {needs}"
    if status == 404 and text is not None and text.startswith("not found"):  # a missing task has another message
        return f": {text}. If the file sets `listen.admin`, paths below /-/ exist only at that address"
    return ". This is not an mcp-gateway, or a proxy responded instead" if text is None else f": {text}"


def daemon_url(options: Namespace, hints: Console) -> str:
    """Return the URL of the admin API of the daemon that serves the configuration file.

    If the file is invalid, use the default address, because the address in the file is unknown.
    """
    settings, listen = settings_of(options), Listen()
    try:
        listen = load_definitions(settings.config).document.listen
    except ConfigError as error:
        if exists(settings.config):
            hints.line(f"{error.problems[0]}. The server's address is unknown, so the default address is used")
        elif "config" in options:
            raise
    if listen.admin is not None:
        return f"http://{Address.parse(listen.admin).from_here}"
    scheme = "http" if listen.tls is None else "https"
    return f"{scheme}://{(settings.http or Address.parse(listen.http)).from_here}"
