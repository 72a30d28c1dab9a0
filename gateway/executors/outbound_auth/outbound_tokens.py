"""The access tokens that the gateway obtained for services, and the metadata of the servers that issue them."""

from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from gateway.config.secrets.redactor import ObtainedSecrets
from gateway.executors.outbound_auth.shared_fetches import SharedFetches

if TYPE_CHECKING:  # what fetches them is imported for connections that sign in
    from gateway.executors.outbound_auth.metadata import ServerMetadata
    from gateway.executors.outbound_auth.token_client import AccessToken


class OutboundTokens:
    """The access tokens that the gateway obtained; they outlive reloads. Use as an async context manager."""

    def __init__(self) -> None:
        self.tokens: Final[SharedFetches[AccessToken]] = SharedFetches()
        self.servers: Final[SharedFetches[ServerMetadata]] = SharedFetches()
        self.secrets: Final = ObtainedSecrets()
        """The tokens, for the redactor."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.tokens.close()
        await self.servers.close()
