"""Gets the small JSON documents that the operator pointed us at: an issuer's metadata and its keys.

Their addresses are the operator's word, so that private ones are as good as any. Redirects are not followed: where keys
come from must stand in the file, or in metadata that does.
"""

import asyncio
from typing import Final

import aiohttp
import orjson
from yarl import URL

from gateway.access.issuer import FetchError, NotFoundError
from gateway.executors.http.address_guard import AddressGuard
from gateway.executors.http.clients import ClientProfile, HttpClients
from gateway.json_types import Json

SECONDS: Final = 10.0
LARGEST: Final = 512 * 1024
"""Bytes."""

_ANYWHERE: Final = ClientProfile(guard=AddressGuard(allows_all=True))
_ACCEPT: Final = {"Accept": "application/json"}


class Documents:
    """A `Fetch` over our own pools."""

    def __init__(self, clients: HttpClients) -> None:
        self._clients: Final = clients

    async def __call__(self, url: str) -> Json:
        try:
            async with asyncio.timeout(SECONDS), self._clients.borrowed(_ANYWHERE) as session:
                return await _get(session, url)
        except TimeoutError:
            raise FetchError(f"{url}: no answer within {SECONDS:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise FetchError(f"{url}: {str(error) or type(error).__name__}") from error


async def _get(session: aiohttp.ClientSession, url: str) -> Json:
    async with session.get(URL(url, encoded=True), headers=_ACCEPT, allow_redirects=False) as response:
        if 400 <= response.status < 500:
            raise NotFoundError(f"{url}: answered {response.status}")
        if response.status != 200:
            raise FetchError(f"{url}: answered {response.status}, expected 200")
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > LARGEST:
                raise FetchError(f"{url}: is larger than {LARGEST} bytes")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise FetchError(f"{url}: is not JSON: {error}") from error
