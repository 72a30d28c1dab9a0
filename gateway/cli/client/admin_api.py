"""Client of a daemon's admin API."""

import asyncio
import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from gateway.cli.client.remote import RemoteError, decoded, endpoint, open_sender, request_to, unreachable
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
"""Path of the MCP endpoint or of a view."""
_OWN_PATH: Final = re.compile(r"/-(/.*)?$")


class NotThereError(RemoteError):
    """The server returned 404."""


async def ask_daemon(url: str, path: str, *, older: str, method: str = "GET") -> JsonObject:
    """Request a path of the API of the daemon at a URL. `older` is the same resource in daemons without the API.

    Raises:
        RemoteError: there is no response, or the response is not from an mcp-gateway.
    """
    try:
        return await get_json(_admin_url(url, f"/-/api{path}"), method=method)
    except NotThereError:
        return await get_json(_admin_url(url, older), method=method)


async def ask_connections(url: str, form: Mapping[str, str] | None = None) -> JsonObject:
    """Return the connections of the caller at the daemon at a URL, or the response to a form.

    Raises:
        RemoteError: the request failed, or the response is not from an mcp-gateway.
    """
    return await get_json(_admin_url(url, "/-/connections"), form=form, needs="an API key or access token")


async def get_json(
    url: str, *, method: str = "GET", form: Mapping[str, str] | None = None, needs: str = _ADMIN_KEY
) -> JsonObject:
    """Request a JSON object from the admin API. A `form` is sent with POST.

    If access is denied, the error tells the user to set the credential described by `needs`.

    Raises:
        NotThereError: the response is 404.
        RemoteError: there is no response, or the response is not from an mcp-gateway.
    """
    deadline = asyncio.get_running_loop().time() + _SECONDS
    try:
        fields = {"Accept": "application/json"}
        body = None if form is None else urlencode(form).encode()
        if form is not None:
            method, fields["Content-Type"] = "POST", "application/x-www-form-urlencoded"
        request = request_to(url, method, fields, body)
        async with open_sender() as sender:
            response = await sender.send(request, deadline=deadline)
    except (ExecutionError, ValueError) as error:
        raise unreachable(url, error) from error
    answer = decoded(response.body)
    if response.status != 200 or not isinstance(answer, dict):
        # `ask_daemon` tries the older path after a 404.
        problem = NotThereError if response.status == 404 else RemoteError
        hint = _hint(response.status, _error_text(answer), needs)
        raise problem(f"{url}: the server returned {response.status} {response.reason}{hint}")
    return answer


def _admin_url(url: str, path: str) -> str:
    """Return the URL of a path of the admin API, below the prefix of a reverse proxy.

    Raises:
        RemoteError: the URL is not valid.
    """
    parts = urlsplit(endpoint(url, path="/"))
    prefix = _ENDPOINT.sub("", _OWN_PATH.sub("", parts.path).rstrip("/"))
    return urlunsplit(parts._replace(path=prefix + path, query=""))


def _error_text(answer: Json) -> str | None:
    match answer:
        case {"error": str() as text} | {"error": {"message": str() as text}}:
            return text
        case _:
            return None


def _hint(status: int, text: str | None, needs: str) -> str:
    if status in {401, 403}:
        return f". Set ${TOKEN_VARIABLE} to {needs}"
    if status == 404 and text is not None and text.startswith("not found"):  # not an unknown task
        return f": {text}. If the file sets `listen.admin`, paths below /-/ exist only at that address"
    return ": this is not an mcp-gateway, or a proxy responded instead" if text is None else f": {text}"


def daemon_url(options: Namespace, hints: Console) -> str:
    """Return the URL of the admin API of the daemon that serves this file.

    Raises:
        ConfigError: the file on the command line does not exist.
    """
    settings = settings_of(options)
    listen = _listen(settings.config, is_named="config" in options, hints=hints)
    if listen.admin is not None:
        return f"http://{Address.parse(listen.admin).from_here}"
    scheme = "http" if listen.tls is None else "https"
    return f"{scheme}://{(settings.http or Address.parse(listen.http)).from_here}"


def _listen(config: Path, *, is_named: bool, hints: Console) -> Listen:
    """Return the `listen` section, or its defaults if the file is invalid, so that commands work with a broken file."""
    try:
        return load_definitions(config).document.listen
    except ConfigError as error:
        is_there = exists(config)
        if is_named and not is_there:
            raise
        if is_there:
            hints.line(f"{error.problems[0]}. Its address is unknown, so the default address is used")
        return Listen()
