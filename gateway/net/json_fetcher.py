"""Fetches the JSON documents of an authorization server: its metadata and its keys.

Redirects are not followed: the source of keys must be named in the file, or in metadata that the file names.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import orjson

from gateway.access.introspection import IntrospectionResponse
from gateway.access.issuer import FetchError, NotFoundError
from gateway.errors import ExecutionError
from gateway.json_types import Json
from gateway.net.address_guard import ANYWHERE
from gateway.net.clients import HttpClients
from gateway.net.request import Header, Request, bound, parse_url
from gateway.net.sender import Sender

REQUEST_SECONDS: Final = 10.0
"""The longest time that one answer of an authorization server may take."""
MAX_BYTES: Final = 512 * 1024
"""The largest answer of an authorization server."""
ACCEPT_JSON: Final = Header(name="Accept", value="application/json", is_bound=False)


def issuer_sender(clients: HttpClients) -> Sender:
    """Return a way to the issuers of the file; private addresses are allowed, because the operator names them."""
    return Sender(clients=clients, policy=ANYWHERE, max_bytes=MAX_BYTES)


async def post(sender: Sender, url: str, *, headers: Mapping[str, str], body: bytes) -> IntrospectionResponse:
    """Send a POST request to an endpoint of an authorization server.

    Raises:
        FetchError: there is no response.
    """
    deadline = asyncio.get_running_loop().time() + REQUEST_SECONDS
    try:
        request = Request(method="POST", url=parse_url(url, encoded=True), headers=bound(headers), body=body)
        response = await sender.send(request, deadline=deadline)
    except (ExecutionError, ValueError) as error:
        raise FetchError(f"{url}: {error}") from error
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return IntrospectionResponse(status=response.status, media_type=media_type, body=response.body)


async def fetch_json(sender: Sender, url: str) -> Json:
    """Fetch a document.

    Raises:
        NotFoundError: the server has none there.
        FetchError: it cannot be had.
    """
    deadline = asyncio.get_running_loop().time() + REQUEST_SECONDS
    try:
        # encoded=True: the URL is sent as it is written, and nothing in its path is normalised.
        request = Request(method="GET", url=parse_url(url, encoded=True), headers=(ACCEPT_JSON,))
        response = await sender.send(request, deadline=deadline)
    except (ExecutionError, ValueError) as error:
        raise FetchError(f"{url}: {error}") from error
    # 4xx is an answer: the other well-known place of the metadata is tried (RFC 8414 §3.1). 5xx may pass.
    if 400 <= response.status < 500:
        raise NotFoundError(f"{url}: answered {response.status}")
    if response.status != 200:
        raise FetchError(f"{url}: answered {response.status}, expected 200")
    try:
        return orjson.loads(response.body)
    except orjson.JSONDecodeError as error:
        raise FetchError(f"{url}: is not JSON: {error}") from error
