"""Fetches one document over HTTP, guarded like every request of the daemon, and asks only whether it has changed."""

import asyncio
from typing import Final

import msgspec

from gateway.access.credentials import Credential
from gateway.config.diagnostics.problems import Problems
from gateway.config.models.backends import Connection
from gateway.config.models.document import Document
from gateway.config.models.openapi import OpenApi
from gateway.config.secrets.redactor import Redactor
from gateway.executors.shared_services import Services
from gateway.net.address_guard import compile_policy
from gateway.net.authorization import AUTHORIZATION, Authorization, compile_connection
from gateway.net.request import Header, Request
from gateway.net.sender import Sender
from gateway.net.tls import ClientIdentity, compile_tls
from gateway.net.url import origin_of, parse_url
from gateway.openapi.document import MAX_BYTES, DocumentError

SECONDS: Final = 60.0
"""The longest that one document may take."""
_MAX_REDIRECTS: Final = 3
_ACCEPT: Final = "application/json, application/yaml, application/vnd.oai.openapi+json, */*;q=0.5"
_NO_TOKEN: Final[Credential | None] = None


class NotModified(Exception):  # noqa: N818 - an answer, and no error
    """The document is as it was (RFC 9110 §15.4.5)."""


class DocumentFetcher(msgspec.Struct, frozen=True, kw_only=True):
    """A way to fetch documents."""

    sender: Sender
    home: str
    """The base URL to whose origin the header fields and credentials go."""
    headers: tuple[Header, ...] = ()
    authorization: Authorization | None = None

    async def fetch(self, url: str, *, etag: str) -> tuple[bytes, str]:
        """Return a document with its ETag, where it has one.

        Raises:
            NotModified: it is the one with this `etag`.
            DocumentError: the server has none.
            ExecutionError: no answer came, or an address is refused.
            DeadlineExceededError: none came in time.
        """
        deadline = asyncio.get_running_loop().time() + SECONDS
        headers = [Header(name="Accept", value=_ACCEPT, is_bound=False)]
        if etag:
            headers.append(Header(name="If-None-Match", value=etag, is_bound=False))
        if self.home and origin_of(parse_url(url)) == origin_of(parse_url(self.home)):
            # The connection's `Accept` is about its answers, and a document is asked for in other types.
            headers += [each for each in self.headers if each.name.lower() != "accept"]
            if self.authorization is not None:
                value = await self.authorization.header(_NO_TOKEN, deadline=deadline)
                headers.append(Header(name=AUTHORIZATION, value=value, is_bound=True))
        # As it is written: yarl would otherwise resolve `%2e%2e`, and another document would be fetched.
        request = Request(method="GET", url=parse_url(url, encoded=True), headers=tuple(headers))
        response = await self.sender.send(request, deadline=deadline)
        if response.status == 304:
            raise NotModified
        if response.status != 200:
            raise DocumentError(f"{url} answered {response.status} {response.reason}".rstrip())
        return response.body, response.headers.get("ETag", "")


def compile_fetcher(
    config: OpenApi, connection: Connection | None, *, document: Document, services: Services
) -> DocumentFetcher:
    """Compile the way to a document; what is wrong with its connection is reported where that is compiled."""
    problems = Problems()
    private = config.allow_private
    if private is None:
        private = False if connection is None else connection.allow_private
    authorization = None
    # Token exchange needs a caller's token, and nobody calls here.
    if connection is not None and connection.auth is not None and connection.auth.token_exchange is None:
        issuers = [] if document.auth is None else document.auth.issuers
        authorization = compile_connection(
            connection, services=services, redactor=Redactor(), issuers=issuers, problems=problems
        )
    return DocumentFetcher(
        sender=Sender(
            clients=services.http,
            policy=compile_policy(private, problems),
            proxy=None if connection is None else connection.proxy,
            identity=ClientIdentity() if connection is None else compile_tls(connection.tls, problems),
            max_redirects=_MAX_REDIRECTS,
            max_bytes=MAX_BYTES,
        ),
        home="" if connection is None else connection.base_url,
        headers=()
        if connection is None
        else tuple(
            Header(name=name, value=str(value), is_bound=True)
            for name, value in connection.headers.items()
            # A template needs the arguments of a call.
            if "{{" not in value
        ),
        authorization=authorization,
    )
