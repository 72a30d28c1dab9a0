"""The URL of a store: one Redis server, a server that Sentinels know, or a Cluster; and clients of it.

`redis://`, `rediss://` and `unix://` are as redis-py reads them, with its parameters. `redis+sentinel://` has
Sentinels, with commas between them, and the name of the server that they watch:
`redis+sentinel://a:26379,b:26379/mymaster/0`. `redis+cluster://` has nodes of a Cluster. With `rediss+…` both are
spoken to over TLS.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Self
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from gateway.json_types import Json

_PLAIN: Final = frozenset({"redis", "rediss", "unix"})
_SENTINEL: Final = frozenset({"redis+sentinel", "rediss+sentinel"})
_CLUSTER: Final = frozenset({"redis+cluster", "rediss+cluster"})
_PORTS: Final = {**dict.fromkeys(_PLAIN | _CLUSTER, 6379), **dict.fromkeys(_SENTINEL, 26379)}
_PREFIX: Final = "prefix"


class RedisUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A checked URL."""

    url: str
    """The URL for redis-py, whose only host is the first. It may hold a password."""
    kind: frozenset[str]
    nodes: tuple[tuple[str, int], ...]
    service: str = ""
    """The name by which Sentinels know the server."""
    prefix: str = ""
    """The beginning of all keys, for several gateways on one server (the parameter `prefix`)."""
    masked: str
    """The URL without credentials and parameters, for logs and the status."""
    password: str = ""
    of_sentinels: Mapping[str, str] = MappingProxyType({})
    """The credentials for the Sentinels themselves (the parameters `sentinel_username` and `sentinel_password`)."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a URL.

        Raises:
            ValueError: it is none of a store; the text never quotes the URL, which may hold a password.
        """
        from redis.asyncio.connection import parse_url  # noqa: PLC0415 - of the extra

        parts = urlsplit(text.strip())
        kind = next((each for each in (_PLAIN, _SENTINEL, _CLUSTER) if parts.scheme in each), None)
        if kind is None:
            schemes = ", ".join(f"{each}://" for each in sorted(_PORTS))
            raise ValueError(f"expected a URL that begins with one of {schemes}")
        # The last one: a password may have an @ in it.
        credentials, _, hosts = parts.netloc.rpartition("@")
        nodes = tuple(_node(each, default=_PORTS[parts.scheme]) for each in hosts.split(",")) if hosts else ()
        if not nodes and parts.scheme != "unix":
            raise ValueError("expected a host")
        if kind is _PLAIN and len(nodes) > 1:
            raise ValueError("expected one host; several are for redis+sentinel:// and redis+cluster://")
        service, path = "", parts.path
        if kind is _SENTINEL:
            service, _, database = parts.path.strip("/").partition("/")
            path = f"/{database}"
            if not service:
                raise ValueError("expected the server's name in the path, such as redis+sentinel://host:26379/mymaster")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        prefix = query.pop(_PREFIX, "")
        of_sentinels = {
            name: query.pop(f"sentinel_{name}") for name in ("username", "password") if f"sentinel_{name}" in query
        }
        scheme = parts.scheme.partition("+")[0]
        first = _authority(nodes[:1], credentials)
        url = urlunsplit(SplitResult(scheme, first, path, urlencode(query), ""))
        parse_url(url)  # raises ValueError for parameters whose value cannot be
        return cls(
            url=url,
            kind=kind,
            nodes=nodes,
            service=service,
            prefix=f"mcp-gateway:{prefix}:" if prefix else "mcp-gateway:",
            masked=urlunsplit(SplitResult(parts.scheme, _authority(nodes), parts.path, "", "")),
            password=unquote(credentials.partition(":")[2]),
            of_sentinels=of_sentinels,
        )

    def client(self, *, connect_seconds: float) -> Json:
        """Return a client of redis-py that is not connected yet, and repeats nothing by itself.

        An answer is waited for without end: who asks bounds it. redis-py would bound each write by `asyncio.wait_for`,
        which until Python 3.12 may swallow a cancellation (https://github.com/python/cpython/issues/86296), and a task
        that is cancelled once would go on for ever.

        Args:
            connect_seconds: how long connecting may take.
        """
        from redis.asyncio import Redis, RedisCluster  # noqa: PLC0415 - of the extra
        from redis.asyncio.cluster import ClusterNode  # noqa: PLC0415 - of the extra
        from redis.asyncio.connection import parse_url  # noqa: PLC0415 - of the extra
        from redis.asyncio.retry import Retry  # noqa: PLC0415 - of the extra
        from redis.asyncio.sentinel import Sentinel, SentinelManagedSSLConnection  # noqa: PLC0415 - of the extra
        from redis.backoff import NoBackoff  # noqa: PLC0415 - of the extra

        times: dict[str, Json] = {
            "socket_connect_timeout": connect_seconds,
            "socket_timeout": None,  # since redis-py 8 there is one unless it is told otherwise
            "retry": Retry(NoBackoff(), 0),
            # RESP3 would give maps where `RedisConnection.read_stream` reads lists.
            "protocol": 2,
        }
        if self.kind is _PLAIN:
            return Redis.from_url(self.url, **times)
        options = {**parse_url(self.url), **times}
        for name in ("host", "port"):
            options.pop(name, None)
        # parse_url() tells of TLS by the connection's class; the clients below take a flag.
        if options.pop("connection_class", None) is not None:
            options["ssl"] = True
        if self.kind is _CLUSTER:
            # Redis Cluster specification: database 0 alone, and no SELECT.
            options.pop("db", None)
            nodes = [ClusterNode(host, port) for host, port in self.nodes]
            return RedisCluster(startup_nodes=nodes, **options)
        of_sentinels = {name: options[name] for name in (*times, "ssl") if name in options} | dict(self.of_sentinels)
        # The pool is told what a connection is, and nothing of TLS but its class, as `Redis` would have told it.
        of_server = {name: value for name, value in options.items() if name != "ssl"}
        if "ssl" in options:
            of_server["connection_class"] = SentinelManagedSSLConnection
        sentinel: Json = Sentinel(list(self.nodes), sentinel_kwargs=of_sentinels, **of_server)  # type: ignore[no-untyped-call]
        return sentinel.master_for(self.service)

    def secrets(self) -> Iterator[str]:
        """The texts that logs must not show."""
        for password in filter(None, (self.password, self.of_sentinels.get("password", ""))):
            # As it stands in URLs, too, which errors may quote.
            yield from {password, quote(password), quote(password, safe="")}


async def close(client: Json) -> None:
    """Close a client's connections, those to Sentinels, too, which it does not close itself."""
    from redis.asyncio.sentinel import SentinelConnectionPool  # noqa: PLC0415 - of the extra

    pool = getattr(client, "connection_pool", None)  # a client of a Cluster has none
    try:
        await client.aclose()
    finally:
        if isinstance(pool, SentinelConnectionPool):
            for each in pool.sentinel_manager.sentinels:
                await each.aclose()


def _node(text: str, *, default: int) -> tuple[str, int]:
    """Raises: ValueError: it is no host, or its port is no number."""
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("expected a host")
    return parts.hostname, parts.port or default


def _authority(nodes: Sequence[tuple[str, int]], credentials: str = "") -> str:
    hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in nodes)
    return f"{credentials}@{hosts}" if credentials else hosts
