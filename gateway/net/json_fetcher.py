"""Fetches the JSON documents of an authorization server: its metadata and its keys.

Private addresses are allowed, because the operator names them. Redirects are not followed: the source of keys must be
named in the file, or in metadata that the file names.
"""

import asyncio
from typing import Final

import aiohttp
import orjson

from gateway.access.issuer import FetchError, NotFoundError
from gateway.json_types import Json
from gateway.net.address_guard import AddressGuard
from gateway.net.client_sessions import ClientProfile
from gateway.net.clients import HttpClients
from gateway.net.url import parse_url

SECONDS: Final = 10.0
"""The longest time that a document may take."""
MAX_BYTES: Final = 512 * 1024
"""The largest document."""

_ANYWHERE: Final = ClientProfile(guard=AddressGuard(allows_all=True))
_ACCEPT: Final = {"Accept": "application/json"}


async def fetch_json(clients: HttpClients, url: str) -> Json:
    """Fetch a document.

    Raises:
        NotFoundError: the server has none there.
        FetchError: it cannot be had.
    """
    try:
        async with asyncio.timeout(SECONDS), clients.pool(_ANYWHERE) as session:
            return await _get(session, url)
    except TimeoutError:
        raise FetchError(f"{url}: no answer within {SECONDS:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise FetchError(f"{url}: {str(error) or type(error).__name__}") from error


async def _get(session: aiohttp.ClientSession, url: str) -> Json:
    # encoded=True: the URL is sent as it is written, and nothing in its path is normalised.
    async with session.get(parse_url(url, encoded=True), headers=_ACCEPT, allow_redirects=False) as response:
        # 4xx is an answer: the other well-known place of the metadata is tried (RFC 8414 §3.1). 5xx may pass.
        if 400 <= response.status < 500:
            raise NotFoundError(f"{url}: answered {response.status}")
        if response.status != 200:
            raise FetchError(f"{url}: answered {response.status}, expected 200")
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > MAX_BYTES:
                raise FetchError(f"{url}: is larger than {MAX_BYTES} bytes")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise FetchError(f"{url}: is not JSON: {error}") from error
