"""Remembers what each upstream offered last, over a restart."""

from typing import Final, Protocol

import msgspec
import structlog

from gateway.upstreams.offer import Offer

log: Final = structlog.get_logger(__name__)


class Remembered(Protocol):
    """A remembered document."""

    @property
    def content(self) -> bytes: ...


class Documents(Protocol):
    """A place for documents that survive a restart."""

    async def read(self, name: str) -> Remembered | None: ...
    async def save(self, name: str, content: bytes) -> object: ...


class OfferMemory:
    """The offers of one server by name; of another server under the same name nothing is recalled."""

    def __init__(self, documents: Documents | None, *, server: str) -> None:
        self._documents: Final = documents
        self._server: Final = server

    async def recall(self, name: str) -> Offer | None:
        document = None if self._documents is None else await self._documents.read(_key(name))
        if document is None:
            return None
        try:
            remembered = msgspec.json.decode(document.content, type=_Remembered)
        except msgspec.DecodeError:  # an older daemon's, perhaps
            return None
        return remembered.offer if remembered.server == self._server else None

    async def remember(self, name: str, offer: Offer) -> None:
        if self._documents is None:
            return
        try:
            await self._documents.save(_key(name), msgspec.json.encode(_Remembered(server=self._server, offer=offer)))
        except (OSError, ValueError) as error:
            log.warning("the lists of an upstream are not remembered", upstream=name, error=str(error))


class _Remembered(msgspec.Struct, kw_only=True):
    server: str
    offer: Offer


def _key(name: str) -> str:
    return f"upstream:{name}"
