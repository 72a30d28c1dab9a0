"""Fetches JSON documents of an authorization server: its metadata and its keys.

Redirects are not followed: the configuration, or metadata that it names, must name the source of keys.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import orjson

from gateway.access.introspection import PostResponse
from gateway.access.issuer import FetchError, NotFoundError
from gateway.errors import ExecutionError
from gateway.json_types import Json
from gateway.net.address_guard import ANYWHERE
from gateway.net.clients import HttpClients
from gateway.net.request import Header, Request, bound, parse_url
from gateway.net.sender import Sender

REQUEST_SECONDS: Final = 10.0
"""The timeout of a request to an authorization server."""
MAX_BYTES: Final = 512 * 1024
"""The maximum size of a response of an authorization server."""
ACCEPT_JSON: Final = Header(name="Accept", value="application/json", is_bound=False)


def issuer_sender(clients: HttpClients) -> Sender:
    """Return a sender for the configured issuers. Private addresses are allowed, because the operator names them."""
    return Sender(clients=clients, policy=ANYWHERE, max_bytes=MAX_BYTES)


async def post(sender: Sender, url: str, headers: Mapping[str, str], body: bytes) -> PostResponse:
    """Send a POST request to an endpoint of an authorization server. Raise FetchError if it fails."""
    deadline = asyncio.get_running_loop().time() + REQUEST_SECONDS
    try:
        request = Request(method="POST", url=parse_url(url, encoded=True), headers=bound(headers), body=body)
        response = await sender.send(request, deadline=deadline)
    except (ExecutionError, ValueError) as error:
        raise FetchError(f"{url}: {error}") from error
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return response.status, media_type, response.body


async def fetch_json(sender: Sender, url: str) -> Json:
    """Fetch a document.

    Raises:
        NotFoundError: The document does not exist.
        FetchError: The document cannot be fetched.
    """
    deadline = asyncio.get_running_loop().time() + REQUEST_SECONDS
    try:
        # encoded=True: send the URL as written, without normalizing its path.
        request = Request(method="GET", url=parse_url(url, encoded=True), headers=(ACCEPT_JSON,))
        response = await sender.send(request, deadline=deadline)
    except (ExecutionError, ValueError) as error:
        raise FetchError(f"{url}: {error}") from error
    # After 4xx, the other well-known URL of the metadata is tried (RFC 8414 §3.1). 5xx can be temporary.
    if 400 <= response.status < 500:
        raise NotFoundError(f"{url}: status {response.status}")
    if response.status != 200:
        raise FetchError(f"{url}: status {response.status}, expected 200")
    try:
        return orjson.loads(response.body)
    except orjson.JSONDecodeError as error:
        raise FetchError(f"{url}: is not JSON: {error}") from error
