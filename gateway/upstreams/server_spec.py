"""Compiles an entry of `upstreams:` to a `ServerSpec`, which creates connections to the server."""

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec
from yarl import URL

from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.diagnostics.problems import Problems
from gateway.config.models.backends import Connection
from gateway.config.models.document import Document
from gateway.config.models.upstreams import Upstream
from gateway.config.secrets.redactor import Redactor
from gateway.executors.shared_services import Services
from gateway.executors.shell.argv import inherited_environment
from gateway.executors.shell.launcher import Launcher
from gateway.executors.shell.sandbox import compile_sandbox
from gateway.language.uris.urls import base_url_problem
from gateway.net.address_guard import compile_policy
from gateway.net.authorization import UserAuthorization, check_no_authorization, compile_authorization
from gateway.net.authorization_code import entry_key
from gateway.net.sender import Sender, warn_if_blocked
from gateway.net.tls import compile_tls
from gateway.processes.pipes import InputBuffer
from gateway.processes.process_tree import Command
from gateway.upstreams.client.http_link import HttpChannel, HttpLink
from gateway.upstreams.client.link import Link
from gateway.upstreams.client.sse_link import SseLink
from gateway.upstreams.client.stdio_link import LineTail, StdioLink

_TRANSPORTS: Final[Mapping[str | None, tuple[str, ...]]] = {"http": ("http",), "sse": ("sse",), None: ("http", "sse")}

_NO_CONNECTION: Final = Connection.model_construct(base_url="")


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    links: Mapping[str, Callable[[], Link]]
    stderr_tail: LineTail | None = None
    """The last lines of standard error, which can contain secrets. None if the server is not a child process."""
    signs_in_callers: bool = False
    has_sign_in: bool = False


def compile_spec(
    config: Upstream, *, document: Document, services: Services, redactor: Redactor, problems: Problems
) -> ServerSpec | None:
    """Compile one entry of `upstreams:`. Report errors in `problems`, and then return None."""
    if config.command is not None:
        return _over_stdio(config, services=services, problems=problems)
    return _over_http(config, document=document, services=services, redactor=redactor, problems=problems)


def _over_stdio(config: Upstream, *, services: Services, problems: Problems) -> ServerSpec:
    directory = config.cwd or os.getcwd()  # noqa: PTH109 - a path as text
    sandbox = compile_sandbox(config.sandbox, cwd=directory, env=config.env, problems=problems.at("sandbox"))
    launcher = Launcher(sandbox=sandbox)
    environment = {**inherited_environment(), **config.env}

    def command(lasting: InputBuffer) -> Command:
        return launcher.confined(
            Command(argv=config.argv, environment=environment, directory=directory, lasting_input=lasting)
        )

    stderr_tail = LineTail()
    links = {"stdio": lambda: StdioLink(command, processes=services.processes, stderr_tail=stderr_tail)}
    return ServerSpec(links=links, stderr_tail=stderr_tail)


def _over_http(
    config: Upstream, *, document: Document, services: Services, redactor: Redactor, problems: Problems
) -> ServerSpec | None:
    connections = document.connections
    shared = connections.get(config.connection or "", _NO_CONNECTION)
    if config.connection is not None and shared is _NO_CONNECTION:
        known = did_you_mean(config.connection, [*connections])
        problems.at("connection").error(f"unknown connection `{config.connection}`{known}")
        return None
    written = _url_of(config, shared)
    # An MCP endpoint can have a query. Fragments are not sent.
    if problem := base_url_problem(re.split("[?#]", written, maxsplit=1)[0]):
        problems.at("url").error(problem)
        return None
    private = shared.allow_private if config.allow_private is None else config.allow_private
    headers = {name: str(value) for name, value in shared.headers.items()} | config.headers
    place = problems if config.tls is not None else problems.root.at("connections", config.connection or "")
    trust = compile_tls(config.tls or shared.tls, place.at("tls"))
    policy = compile_policy(private, problems.at("allow_private"))
    is_of_connection = shared is not _NO_CONNECTION and "://" not in (config.url or "")
    warn_if_blocked(
        written,
        policy,
        problems.root.at("connections", config.connection or "", "base_url")
        if is_of_connection
        else problems.at("url"),
    )
    auth = config.auth or shared.auth
    authorization, sender = None, Sender(clients=services.http, policy=policy, proxy=shared.proxy, trust=trust)
    if auth is not None:
        if config.auth is not None:
            check_no_authorization(config.headers, problems.at("headers"))
        authorization = compile_authorization(
            auth,
            service_url=written,
            sender=sender,
            services=services,
            redactor=redactor,
            issuers=[] if document.auth is None else document.auth.issuers,
            # The connection itself reports problems with its `auth`.
            problems=(
                problems.at("auth")
                if config.auth is not None
                else Problems().at("connections", config.connection or "", "auth")
            ),
        )
    channel = partial(HttpChannel, URL(written), headers=headers, sender=sender, authorization=authorization)
    links: dict[str, Callable[[], Link]] = {"http": lambda: HttpLink(channel()), "sse": lambda: SseLink(channel())}
    signs_in_callers = authorization is not None and authorization.is_per_caller
    return ServerSpec(
        links={name: links[name] for name in _TRANSPORTS[config.kind]},
        signs_in_callers=signs_in_callers,
        has_sign_in=isinstance(authorization, UserAuthorization),
    )


def sign_in_keys(document: Document) -> frozenset[str]:
    """Return the `entry_key` of each connection and upstream server that users sign in to."""
    found: list[str] = []
    for name, connection in document.connections.items():
        if connection.auth is not None and (code := connection.auth.authorization_code) is not None:
            found.append(entry_key(f"connections.{name}", code, connection.base_url))
    for name, upstream in document.upstreams.items():
        shared = document.connections.get(upstream.connection or "", _NO_CONNECTION)
        auth = upstream.auth or shared.auth
        if upstream.command is None and auth is not None and (code := auth.authorization_code) is not None:
            place = f"upstreams.{name}" if upstream.auth is not None else f"connections.{upstream.connection}"
            found.append(entry_key(place, code, _url_of(upstream, shared)))
    return frozenset(found)


def _url_of(config: Upstream, shared: Connection) -> str:
    # Without a scheme, the URL is a path below the connection's base URL.
    written = config.url or ""
    if shared is not _NO_CONNECTION and "://" not in written:
        return f"{shared.base_url.rstrip('/')}/{written.lstrip('/')}" if written else shared.base_url
    return written
