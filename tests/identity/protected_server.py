"""An MCP server on the official SDK that requires access tokens: `python protected_server.py PORT ISSUER SECRET`."""

# mypy: disable-error-code="untyped-decorator"

import sys
from typing import Final

import httpx2
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings

PORT, ISSUER, SECRET = int(sys.argv[1]), sys.argv[2], sys.argv[3]
URL: Final = f"http://127.0.0.1:{PORT}/mcp"


class Introspection:
    """Verifies tokens at the issuer (RFC 7662)."""

    async def verify_token(self, token: str) -> AccessToken | None:
        async with httpx2.AsyncClient() as http:
            form = {"token": token, "client_id": "resource-server", "client_secret": SECRET}
            claims = (await http.post(f"{ISSUER}/token/introspection", data=form)).json()
        if not claims.get("active"):
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims.get("scope", "").split(),
            expires_at=claims["exp"],
            resource=claims.get("aud"),
            subject=claims["sub"],
        )


auth = AuthSettings(issuer_url=ISSUER, resource_server_url=URL, required_scopes=["read"], validate_token_resource=True)
server = MCPServer("notes", token_verifier=Introspection(), auth=auth)


@server.tool()
def whoami() -> str:
    """Return the user of the access token."""
    token = get_access_token()
    return f"{token.subject} at the MCP server" if token is not None else "nobody"


server.run("streamable-http", port=PORT)
