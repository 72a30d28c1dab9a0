"""The connections of one process to the shared store."""

import secrets
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final, Self

from gateway.config.settings import variable_of
from gateway.distribution import install_command
from gateway.errors import ConfigError, Problem
from gateway.json_types import Json
from gateway.state.mailbox import Mailbox
from gateway.state.redis_connection import RedisConnection
from gateway.state.redis_limits import RedisRates, RedisSemaphores
from gateway.state.redis_sessions import RedisSessionStore
from gateway.state.redis_url import RedisUrl


class Replica:
    """The connections of one process to the shared store.

    `async with` connects, and `open` starts receiving messages.
    """

    def __init__(self, url: str, *, clock: Callable[[], float]) -> None:
        """Prepare the connections. Raise ConfigError if the URL is invalid or the Redis library is not installed."""
        self.name: Final = f"{secrets.token_hex(4)}{int(time.time()):x}"
        """The name of this process, which is unique for each start."""
        self.store: Final = _connect(url, replica=self.name)
        self.mailbox: Final = Mailbox(self.store, replica=self.name)
        self.sessions: Final = RedisSessionStore(self.store, self.mailbox, clock=clock)
        self.rates: Final = RedisRates(self.store)
        self.semaphores: Final = RedisSemaphores(self.store, self.name)
        self._stack: Final = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.store)
            # Closed in reverse order: pending session writes wait for replies from the mailbox.
            stack.push_async_callback(self.mailbox.close)
            stack.push_async_callback(self.sessions.close)
            await stack.enter_async_context(self.semaphores)
            self._stack.push_async_callback(stack.pop_all().aclose)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def open(self) -> None:
        """Start receiving messages. Call this method after all handlers are registered."""
        await self.store.open()

    def status(self) -> dict[str, Json]:
        return {
            "replica": self.name,
            **self.store.status(),
            "messages_sent": self.mailbox.sent,
            "messages_received": self.mailbox.received,
        }


def _connect(url: str, *, replica: str) -> RedisConnection:
    try:
        return RedisConnection(RedisUrl.parse(url), replica=replica)
    except ModuleNotFoundError as error:
        # Any other missing module is a bug, not a missing package.
        if not (error.name or "").startswith("redis"):
            raise
        problem = f"a store needs a package that is not installed: {install_command('redis')}"
        raise ConfigError([Problem(message=problem, path=variable_of("store"))]) from error
    except ValueError as error:
        raise ConfigError([Problem(message=str(error), path=variable_of("store"))]) from error
