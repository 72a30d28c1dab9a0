"""Fetches one document over HTTP with a conditional request."""

import asyncio
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.config.diagnostics.problems import Problems
from gateway.config.models.backends import Connection
from gateway.config.models.document import Document
from gateway.config.models.openapi import OpenApi
from gateway.config.secrets.redactor import Redactor
from gateway.executors.shared_services import Services
from gateway.net.address_guard import compile_policy
from gateway.net.authorization import Authorization, compile_connection
from gateway.net.request import Header, Request, bound, origin_of, parse_url
from gateway.net.sender import Sender, compile_sender
from gateway.openapi.document import MAX_BYTES, DocumentError

SECONDS: Final = 60.0
"""The time limit for one document."""
_MAX_REDIRECTS: Final = 3
_ACCEPT: Final = "application/json, application/yaml, application/vnd.oai.openapi+json, */*;q=0.5"


class DocumentFetcher(msgspec.Struct, frozen=True, kw_only=True):
    sender: Sender
    home: str
    """The connection's base URL. Header fields and credentials are only sent to its origin."""
    headers: tuple[Header, ...] = ()
    authorization: Authorization | None = None

    async def fetch(self, url: str, *, etag: str) -> tuple[bytes, str] | None:
        """Return a document and its ETag, or None if it still has the given `etag` (RFC 9110 §15.4.5).

        Raises:
            DocumentError: the server does not return the document.
            ExecutionError: the request failed, or the address is not allowed.
            DeadlineExceededError: the response took too long.
        """
        deadline = asyncio.get_running_loop().time() + SECONDS
        authorization = None
        headers = [Header(name="Accept", value=_ACCEPT, is_bound=False)]
        if etag:
            headers.append(Header(name="If-None-Match", value=etag, is_bound=False))
        if self.home and origin_of(parse_url(url)) == origin_of(parse_url(self.home)):
            # The connection's `Accept` is for API responses.
            headers += [each for each in self.headers if each.name.lower() != "accept"]
            authorization = self.authorization
        # Without `encoded`, yarl resolves `%2e%2e` and requests another document.
        request = Request(method="GET", url=parse_url(url, encoded=True), headers=tuple(headers))
        if authorization is not None:
            request = await authorization.sign(request, None, deadline=deadline)
        response = await self.sender.send(request, deadline=deadline)
        if response.status == 304:
            return None
        if response.status != 200:
            raise DocumentError(f"{url} answered {response.status} {response.reason}".rstrip())
        return response.body, response.headers.get("ETag", "")


def compile_fetcher(
    config: OpenApi, connection: Connection | None, *, document: Document, services: Services
) -> DocumentFetcher:
    """Compile the fetcher of an entry. Problems of the connection are reported elsewhere."""
    problems = Problems()
    sender, headers, authorization = Sender(clients=services.http), {}, None
    if connection is not None:
        sender = compile_sender(connection, problems, clients=services.http)
        # Templates need the arguments of a call.
        headers = {name: str(value) for name, value in connection.headers.items() if "{{" not in value}
        # There is no caller, so no token of a caller.
        if connection.auth is not None and not connection.auth.is_per_caller:
            issuers = [] if document.auth is None else document.auth.issuers
            authorization = compile_connection(
                connection, services=services, redactor=Redactor(), issuers=issuers, problems=problems
            )
    if config.allow_private is not None:
        sender = replace(sender, policy=compile_policy(config.allow_private, problems))
    return DocumentFetcher(
        sender=replace(sender, max_redirects=_MAX_REDIRECTS, max_bytes=MAX_BYTES),
        home="" if connection is None else connection.base_url,
        headers=bound(headers),
        authorization=authorization,
    )
