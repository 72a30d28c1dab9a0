"""The URL of the shared store: a Redis server, a server behind Sentinels, or a Cluster.

redis-py parses `redis://`, `rediss://` and `unix://` with their parameters. `redis+sentinel://` lists Sentinels and
the name of their server: `redis+sentinel://a:26379,b:26379/mymaster/0`. `redis+cluster://` lists nodes of a Cluster.
`rediss+sentinel://` and `rediss+cluster://` use TLS.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Self
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from gateway.json_types import Json

_PORTS: Final = {"": 6379, "cluster": 6379, "sentinel": 26379}
"""The default port for each kind of URL, which follows the `+` in the scheme."""
_SCHEMES: Final = (
    "redis",
    "rediss",
    "unix",
    *(f"{tls}+{kind}" for tls in ("redis", "rediss") for kind in _PORTS if kind),
)
_PREFIX: Final = "prefix"


class RedisUrl(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    """The URL for redis-py, with the first host only. It can contain a password."""
    kind: str
    nodes: tuple[tuple[str, int], ...]
    service: str = ""
    prefix: str = ""
    """The prefix of all keys. The parameter `prefix` separates several gateways on one server."""
    masked: str
    """The URL without credentials and parameters, for logs and the status."""
    of_sentinels: Mapping[str, str] = MappingProxyType({})
    """The credentials for the Sentinels (parameters `sentinel_username` and `sentinel_password`)."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a URL. Raise ValueError without quoting the URL, because it can contain a password."""
        from redis.asyncio.connection import parse_url  # noqa: PLC0415 - optional dependency

        parts = urlsplit(text.strip())
        if parts.scheme not in _SCHEMES:
            schemes = ", ".join(f"{each}://" for each in _SCHEMES)
            raise ValueError(f"expected a URL that starts with one of {schemes}")
        scheme, _, kind = parts.scheme.partition("+")
        # Split at the last @, because passwords can contain an @.
        credentials, _, hosts = parts.netloc.rpartition("@")
        nodes = tuple(_node(each, default=_PORTS[kind]) for each in hosts.split(",")) if hosts else ()
        if not nodes and scheme != "unix":
            raise ValueError("expected a host")
        if not kind and len(nodes) > 1:
            raise ValueError("expected one host. For several hosts, use redis+sentinel:// or redis+cluster://")
        service, path = "", parts.path
        if kind == "sentinel":
            service, _, database = parts.path.strip("/").partition("/")
            path = f"/{database}"
            if not service:
                raise ValueError("expected the server's name in the path, such as redis+sentinel://host:26379/mymaster")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        prefix = query.pop(_PREFIX, "")
        of_sentinels = {
            name: query.pop(f"sentinel_{name}") for name in ("username", "password") if f"sentinel_{name}" in query
        }
        first = _authority(nodes[:1], credentials)
        url = urlunsplit(SplitResult(scheme, first, path, urlencode(query), ""))
        parse_url(url)  # Raises ValueError for invalid parameters.
        return cls(
            url=url,
            kind=kind,
            nodes=nodes,
            service=service,
            prefix=f"mcp-gateway:{prefix}:" if prefix else "mcp-gateway:",
            masked=urlunsplit(SplitResult(parts.scheme, _authority(nodes), parts.path, "", "")),
            of_sentinels=of_sentinels,
        )

    def client(self, *, connect_seconds: float) -> Json:
        """Return a redis-py client that is not connected yet and does not retry.

        Callers must limit the time, because the client has no read timeout. A timeout would make redis-py call
        `asyncio.wait_for`, which can swallow cancellations before Python 3.12 (github.com/python/cpython/issues/86296).
        """
        from redis.asyncio import Redis, RedisCluster  # noqa: PLC0415 - optional dependency
        from redis.asyncio.cluster import ClusterNode  # noqa: PLC0415 - optional dependency
        from redis.asyncio.connection import parse_url  # noqa: PLC0415 - optional dependency
        from redis.asyncio.retry import Retry  # noqa: PLC0415 - optional dependency
        from redis.asyncio.sentinel import Sentinel, SentinelManagedSSLConnection  # noqa: PLC0415 - optional dependency
        from redis.backoff import NoBackoff  # noqa: PLC0415 - optional dependency

        times: dict[str, Json] = {
            "socket_connect_timeout": connect_seconds,
            "socket_timeout": None,  # redis-py 8 has a default timeout.
            "retry": Retry(NoBackoff(), 0),
            # `RedisConnection.read_stream` expects lists, but RESP3 returns maps.
            "protocol": 2,
        }
        if not self.kind:
            return Redis.from_url(self.url, **times)
        options = {**parse_url(self.url), **times}
        for name in ("host", "port"):
            options.pop(name, None)
        # parse_url() represents TLS by a connection class. The clients below use a flag.
        if options.pop("connection_class", None) is not None:
            options["ssl"] = True
        if self.kind == "cluster":
            # Redis Cluster specification: a Cluster has only database 0 and no SELECT.
            options.pop("db", None)
            nodes = [ClusterNode(host, port) for host, port in self.nodes]
            return RedisCluster(startup_nodes=nodes, **options)
        of_sentinels = {name: options[name] for name in (*times, "ssl") if name in options} | dict(self.of_sentinels)
        # The connection pool has no `ssl` flag. It needs the connection class instead.
        of_server = {name: value for name, value in options.items() if name != "ssl"}
        if "ssl" in options:
            of_server["connection_class"] = SentinelManagedSSLConnection
        sentinel: Json = Sentinel(list(self.nodes), sentinel_kwargs=of_sentinels, **of_server)  # type: ignore[no-untyped-call]
        return sentinel.master_for(self.service)


async def close(client: Json) -> None:
    """Close the connections of a client, and the connections to Sentinels, which `aclose` leaves open."""
    from redis.asyncio.sentinel import SentinelConnectionPool  # noqa: PLC0415 - optional dependency

    pool = getattr(client, "connection_pool", None)  # Cluster clients have no pool.
    try:
        await client.aclose()
    finally:
        if isinstance(pool, SentinelConnectionPool):
            for each in pool.sentinel_manager.sentinels:
                await each.aclose()


def _node(text: str, *, default: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("expected a host")
    return parts.hostname, parts.port or default


def _authority(nodes: Sequence[tuple[str, int]], credentials: str = "") -> str:
    hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in nodes)
    return f"{credentials}@{hosts}" if credentials else hosts
