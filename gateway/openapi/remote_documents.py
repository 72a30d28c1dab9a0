"""Fetches OpenAPI documents from URLs, refreshes them periodically (`refresh`), and stores them across restarts.

References are fetched only from the document's origin, and credentials are sent only to the connection's origin. If a
fetch fails or the document is malformed, the last valid version stays in use.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import urldefrag, urljoin

import msgspec
import structlog
from msgspec.structs import replace
from yarl import URL

from gateway.background_tasks import BackgroundTasks
from gateway.config.definition_source import DocumentStore
from gateway.config.diagnostics.problems import Problems
from gateway.config.models.backends import Connection
from gateway.config.models.document import Document
from gateway.config.models.openapi import OpenApi
from gateway.config.reading.source_file import content_key
from gateway.config.secrets.redactor import Redactor
from gateway.errors import ExecutionError
from gateway.executors.shared_services import Services
from gateway.json_types import JsonObject
from gateway.net.address_guard import compile_policy
from gateway.net.authorization import compile_connection
from gateway.net.request import Header, Request, bound, origin_of, parse_url
from gateway.net.sender import Sender, compile_sender
from gateway.openapi.document import MAX_BYTES, DocumentError, read
from gateway.repeated_warnings import RepeatedWarning

SECONDS: Final = 60.0
_MAX_REDIRECTS: Final = 3
_ACCEPT: Final = "application/json, application/yaml, application/vnd.oai.openapi+json, */*;q=0.5"


Fetch = Callable[[str, str], Awaitable[tuple[bytes, str] | None]]
"""Returns the document at a URL and its ETag, or None if the document still has the given ETag (RFC 9110 §15.4.5).

Raises:
    DocumentError: the server does not return the document.
    ExecutionError: the request failed or timed out, or the address is not allowed.
"""


def compile_fetcher(config: OpenApi, connection: Connection | None, *, document: Document, services: Services) -> Fetch:
    """Return a function that fetches an entry's documents. Problems of the connection are reported elsewhere."""
    problems = Problems()
    sender, headers, authorization, home = Sender(clients=services.http), {}, None, ""
    if connection is not None:
        sender, home = compile_sender(connection, problems, clients=services.http), connection.base_url
        # Skip templates, because they need the arguments of a call.
        headers = {name: str(value) for name, value in connection.headers.items() if "{{" not in value}
        # Skip tokens of callers, because a fetch has no caller.
        if connection.auth is not None and not connection.auth.is_per_caller:
            issuers = [] if document.auth is None else document.auth.issuers
            authorization = compile_connection(
                connection, services=services, redactor=Redactor(), issuers=issuers, problems=problems
            )
    if config.allow_private is not None:
        sender = replace(sender, policy=compile_policy(config.allow_private, problems))
    sender = replace(sender, max_redirects=_MAX_REDIRECTS, max_bytes=MAX_BYTES)
    # Drop the connection's `Accept`, which is meant for API responses.
    own = [each for each in bound(headers) if each.name.lower() != "accept"]

    async def fetch(url: str, etag: str) -> tuple[bytes, str] | None:
        deadline = asyncio.get_running_loop().time() + SECONDS
        # Header fields and credentials of the connection are only sent to its origin.
        is_home = bool(home) and origin_of(parse_url(url)) == origin_of(parse_url(home))
        fields = [Header(name="Accept", value=_ACCEPT, is_bound=False), *(own if is_home else ())]
        if etag:
            fields.append(Header(name="If-None-Match", value=etag, is_bound=False))
        # Without `encoded`, yarl resolves `%2e%2e` and requests another document.
        request = Request(method="GET", url=parse_url(url, encoded=True), headers=tuple(fields))
        if authorization is not None and is_home:
            request = await authorization.sign(request, None)
        response = await sender.send(request, deadline=deadline)
        if response.status == 304 and etag:
            return None
        if response.status != 200:
            raise DocumentError(f"the server returned {response.status} {response.reason}".rstrip())
        return response.body, response.headers.get("ETag", "")

    return fetch


log: Final = structlog.get_logger(__name__)

FIRST_SECONDS: Final = 30.0
"""Seconds that a start waits for all documents. Documents that arrive later trigger a reload."""
_MAX_DOCUMENTS: Final = 64
_REFERENCE: Final = re.compile(rb"""["']?\$ref["']?\s*:\s*["']?([^#"'\s,}][^"'\s,}]*)""")


class FetchedDocuments(msgspec.Struct, frozen=True, kw_only=True):
    """A document with the documents that it references."""

    files: ClassVar[Mapping[Path, str]] = {}
    documents: Mapping[str, bytes]
    """Contents by URL. The first entry is the document itself, followed by referenced documents."""
    etags: Mapping[str, str] = {}
    missing: Mapping[str, str] = {}
    """Reasons why referenced documents could not be fetched, by URL."""

    @property
    def uri(self) -> str:
        return next(iter(self.documents))

    def open(self, uri: str) -> JsonObject:
        return read(self.source(uri), name=_name_of(uri))

    def source(self, uri: str) -> bytes:
        """Return the bytes of a document.

        Raises:
            DocumentError: the document was not fetched.
        """
        data = self.documents.get(uri)
        if data is None and uri in self.missing:
            raise DocumentError(f"`{uri}` could not be fetched: {self.missing[uri]}")
        if data is None:
            raise DocumentError(f"`{uri}` has a different origin than the document, so it is not fetched")
        return data


def _name_of(url: str) -> str:
    return URL(url).name or "openapi"


class RemoteDocuments:
    def __init__(self, *, services: Services, documents: DocumentStore | None) -> None:
        """Create the fetcher. If `documents` is given, fetched documents are stored there across restarts."""
        self._services: Final = services
        self._documents: Final = documents
        self._followed: dict[str, _RefreshedDocument] = {}
        self._following: Final = BackgroundTasks()
        self._is_at_start = True

    def opened(self, name: str) -> FetchedDocuments | None:
        """Return the last fetched document of an entry, or None. The entry's URL can have changed since the fetch."""
        followed = self._followed.get(name)
        return None if followed is None else followed.fetched

    def reason(self, name: str) -> str:
        """Return why a document is missing or stale, or an empty string."""
        followed = self._followed.get(name)
        return "" if followed is None else followed.reason

    async def follow(self, document: Document, changed: Callable[[], None]) -> None:
        """Keep the documents of a configuration up to date. The first call waits for them, up to `FIRST_SECONDS`."""

        def notify() -> None:
            # At the start, definitions are read after the documents have arrived, so no reload is needed.
            if not self._is_at_start:
                changed()

        before, self._followed = self._followed, {}
        new: list[_RefreshedDocument] = []
        for name, config in document.openapi.items():
            if not config.is_remote:
                continue
            connection = document.connections.get(config.connection or "")
            key = content_key(config, connection)
            known = before.pop(name, None)
            if known is not None and known.key == key:
                self._followed[name] = known
                continue
            if known is not None:
                known.task.cancel()
            made = _RefreshedDocument(
                name,
                config,
                key=key,
                documents=self._documents,
                # The old document is used until a new one is fetched.
                fetched=None if known is None else known.fetched,
            )
            fetch = compile_fetcher(config, connection, document=document, services=self._services)
            made.start(self._following, fetch, notify)
            self._followed[name] = made
            new.append(made)
        for each in before.values():
            each.task.cancel()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_SECONDS):
                    for each in new if self._is_at_start else ():
                        await each.known.wait()
        finally:
            self._is_at_start = False

    async def close(self) -> None:
        await self._following.cancel()

    def status(self) -> dict[str, JsonObject]:
        return {
            name: {
                "document": each.url,
                "problem": each.reason or None,
                "fetched_seconds_ago": None if each.at is None else round(time.monotonic() - each.at),
            }
            for name, each in self._followed.items()
        }


class _RefreshedDocument:
    def __init__(
        self,
        name: str,
        config: OpenApi,
        *,
        key: bytes,
        documents: DocumentStore | None,
        fetched: FetchedDocuments | None,
    ) -> None:
        self.url: Final = urldefrag(config.document)[0]
        self.key: Final = key
        self.fetched = fetched
        self.reason = ""
        self.at: float | None = None
        self.known: Final = asyncio.Event()
        """Set when the document is available, or the first attempt to fetch it has failed."""
        self.task: asyncio.Task[None]
        self._warning: Final = RepeatedWarning()
        self._name: Final = name
        self._refresh: Final = config.refresh.total_seconds()
        self._documents: Final = documents

    def start(self, tasks: BackgroundTasks, fetch: Fetch, changed: Callable[[], None]) -> None:
        self.task = tasks.begin(self._run(fetch, changed), name=f"follow openapi {self._name}")

    async def _run(self, fetch: Fetch, changed: Callable[[], None]) -> None:
        try:
            if self.fetched is None or self.fetched.uri != self.url:
                self.fetched = await self._recalled() or self.fetched
            if self.fetched is not None:
                changed()
                self.known.set()
            while True:
                if await self._fetched(fetch):
                    changed()
                self.known.set()
                await asyncio.sleep(self._refresh)
        finally:
            # Release a start that is waiting for the document.
            self.known.set()

    async def _fetched(self, fetch: Fetch) -> bool:
        try:
            fetched = await fetch_documents(self.url, fetch, self.fetched)
        except (DocumentError, ExecutionError) as error:
            self.reason = str(error)
            if self._warning.is_due():
                log.warning("OpenAPI document cannot be fetched", entry=self._name, reason=self.reason)
            return False
        self._warning.reset()
        self.reason = next((f"{url} could not be fetched: {why}" for url, why in fetched.missing.items()), "")
        self.at = time.monotonic()
        # Compare the contents, because servers can change the ETag of an unchanged document.
        if self.fetched is not None and fetched.documents == self.fetched.documents:
            return False
        self.fetched = fetched
        await self._remember(fetched)
        return True

    async def _recalled(self) -> FetchedDocuments | None:
        remembered = None if self._documents is None else await self._documents.read(f"openapi:{self.url}")
        if remembered is None:
            return None
        try:
            return msgspec.msgpack.decode(remembered, type=FetchedDocuments)
        except msgspec.DecodeError:  # stored by another version
            return None

    async def _remember(self, fetched: FetchedDocuments) -> None:
        if self._documents is None:
            return
        try:
            await self._documents.save(f"openapi:{self.url}", msgspec.msgpack.encode(fetched))
        except (OSError, ValueError) as error:
            log.warning("OpenAPI document cannot be stored", entry=self._name, reason=str(error))


async def fetch_documents(url: str, fetch: Fetch, known: FetchedDocuments | None) -> FetchedDocuments:
    """Fetch a document and the documents that it references on the same origin.

    Unchanged documents, and referenced documents that cannot be fetched, are taken from `known`.

    Raises:
        DocumentError: the document cannot be used, or references too many or too large documents.
        ExecutionError: the request failed or timed out, or the address is not allowed.
    """
    earlier = known or FetchedDocuments(documents={})
    documents: dict[str, bytes] = {}
    etags: dict[str, str] = {}
    missing: dict[str, str] = {}
    waiting, room = [url], MAX_BYTES
    while waiting:
        each = waiting.pop(0)
        if each in documents or each in missing:
            continue
        if len(documents) == _MAX_DOCUMENTS:
            raise DocumentError(f"it refers to more than {_MAX_DOCUMENTS} documents")
        try:
            etag = earlier.etags.get(each, "")
            data, etag = await fetch(each, etag) or (earlier.documents[each], etag)
        except (DocumentError, ExecutionError) as error:
            if each == url:
                raise
            log.warning("part of an OpenAPI document cannot be fetched", url=each, reason=str(error))
            if (last_good := earlier.documents.get(each)) is None:
                missing[each] = str(error)
                continue
            data, etag = last_good, earlier.etags.get(each, "")
        room -= len(data)
        if room < 0:
            raise DocumentError(f"the document and its references are larger than {MAX_BYTES // 2**20} MiB")
        documents[each] = data
        etags |= {each: etag} if etag else {}
        waiting += _references(each, data)
    read(documents[url], name=_name_of(url))  # raises an error for a malformed document
    return FetchedDocuments(documents=documents, etags=etags, missing=missing)


def _references(base: str, data: bytes) -> list[str]:
    found = set()
    for match in _REFERENCE.finditer(data):
        try:
            url, _ = urldefrag(urljoin(base, match[1].decode(errors="replace")))
            if origin_of(parse_url(url)) == origin_of(parse_url(base)):
                found.add(url)
        except ValueError:  # malformed: reported where the reference is used
            continue
    return sorted(found)
