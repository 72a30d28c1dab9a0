"""Remembers the lists that each upstream had last, over a restart."""

from typing import Final

import msgspec
import structlog

from gateway.config.definition_source import DocumentStore
from gateway.upstreams.discovery import ServerLists

log: Final = structlog.get_logger(__name__)


class RememberedLists:
    """The lists of one server by name; of another server under the same name nothing is recalled."""

    def __init__(self, documents: DocumentStore | None, *, server: str) -> None:
        self._documents: Final = documents
        self._server: Final = server

    async def recall(self, name: str) -> ServerLists | None:
        content = None if self._documents is None else await self._documents.read(_key(name))
        if content is None:
            return None
        try:
            record = msgspec.json.decode(content, type=_Record)
        except msgspec.DecodeError:  # an older daemon's, perhaps
            return None
        return record.lists if record.server == self._server else None

    async def remember(self, name: str, lists: ServerLists) -> None:
        if self._documents is None:
            return
        try:
            await self._documents.save(_key(name), msgspec.json.encode(_Record(server=self._server, lists=lists)))
        except (OSError, ValueError) as error:
            log.warning("the lists of an upstream are not remembered", upstream=name, error=str(error))


class _Record(msgspec.Struct, kw_only=True):
    server: str
    lists: ServerLists = msgspec.field(name="offer")
    """Its name in records that earlier versions have written."""


def _key(name: str) -> str:
    return f"upstream:{name}"
