"""Steps of both drivers with a server that requires tokens: get a token, use it, and request more scopes."""

from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

METADATA: Final = OAuthClientMetadata(
    client_name="driver",
    redirect_uris=[AnyUrl("http://127.0.0.1:9/callback")],
    grant_types=["authorization_code"],
    response_types=["code"],
    token_endpoint_auth_method="none",
)


class Memory:
    """A `TokenStorage` in memory."""

    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


class Browser:
    """Follows every link and approves every request."""

    def __init__(self, client: Any) -> None:
        """`client` must not follow redirects."""
        self._client = client
        self.answer: dict[str, str] = {}
        """The parameters of the callback URL."""

    async def visit(self, url: str) -> None:
        response = await self._client.get(url)
        query = urlsplit(response.headers["location"]).query
        self.answer = {name: values[0] for name, values in parse_qs(query).items()}


class ChallengeRecorder:
    """Records the challenges of the server."""

    def __init__(self) -> None:
        self.challenges: list[Any] = []

    async def note(self, response: Any) -> None:
        if (challenge := response.headers.get("www-authenticate")) is not None:
            self.challenges.append([response.status_code, challenge])


async def use(
    list_tools: Callable[[], Awaitable[Any]], call_tool: Callable[[str], Awaitable[Any]], tools: list[str]
) -> dict[str, Any]:
    """List the tools, and call some."""
    listed = [tool.name for tool in (await list_tools()).tools]
    texts = {name: (await call_tool(name)).content[0].text for name in tools}
    return {"listed": listed, "texts": texts}


def reasons(error: BaseException) -> list[str]:
    """Return the messages of an exception, including those of nested groups."""
    if isinstance(error, BaseExceptionGroup):
        return [reason for each in error.exceptions for reason in reasons(each)]
    return [str(error)]
