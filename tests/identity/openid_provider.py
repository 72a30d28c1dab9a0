"""A real OpenID Provider (`oidc-provider` from npm), and an MCP server that accepts its tokens."""

import asyncio
import base64
import hashlib
import json
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp

from tests.identity.browser import Browser
from tests.node import NodePackage, find_package
from tests.ports import free_port
from tests.programs import need_named_by, skip_or_fail

HERE: Final = Path(__file__).parent
START_SECONDS: Final = 90
SECRET: Final = "client-secret-of-this-test-0123456789"
REDIRECT: Final = "http://127.0.0.1:9/callback"
JWT: Final = "https://gateway.example.com/jwt"
"""A resource whose access tokens are JWTs."""
OPAQUE: Final = "https://gateway.example.com/opaque"
CLIENTS: Final[Sequence[Mapping[str, Any]]] = (
    {
        "client_id": "desktop",
        "redirect_uris": [REDIRECT],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    },
    {
        "client_id": "gateway",
        "client_secret": SECRET,
        "redirect_uris": [
            "http://127.0.0.1/-/sign-in/callback/connections.profile",
            "http://127.0.0.1/-/sign-in/browser/callback",
        ],
        # The port of a loopback redirect URI is ignored (RFC 8252 §7.3).
        "application_type": "native",
    },
    {
        "client_id": "resource-server",
        "client_secret": SECRET,
        "redirect_uris": [],
        "grant_types": [],
        "response_types": [],
        "token_endpoint_auth_method": "client_secret_post",
    },
)
GROUPS: Final = {"root": ["platform-admins"]}
SENSITIVE: Final = ("code", "code_verifier", "access_token", "refresh_token", "id_token", "token", "client_secret")


@dataclass(kw_only=True)
class OpenIdProvider:
    issuer: str
    http: aiohttp.ClientSession

    async def configure(self, **options: Any) -> None:
        """Replace all options of `provider.mjs`."""
        async with self.http.post(f"{self.issuer}/control", json=options) as response:
            await response.read()

    async def requests(self, path: str = "", **parameters: str) -> list[dict[str, Any]]:
        """Return all requests, or those to a path and with the given parameters."""
        async with self.http.get(f"{self.issuer}/control") as response:
            found = await response.json()
        return [
            each
            for each in found
            if (not path or each["path"] == path) and parameters.items() <= each["parameters"].items()
        ]

    async def start_over(self) -> None:
        async with self.http.delete(f"{self.issuer}/control") as response:
            await response.read()
        await self.configure()

    async def secrets(self) -> set[str]:
        """Return all codes, verifiers, tokens and secrets that were sent or issued."""
        found: set[str] = set()
        for each in await self.requests():
            location = {name: values[0] for name, values in parse_qs(urlsplit(each["location"]).query).items()}
            for part in (each["parameters"], each["body"] or {}, location):
                found.update(str(part[name]) for name in SENSITIVE if part.get(name))
            # JSON of an introspection response, or of a client registration
            found.update(filter(None, [(each["body"] or {}).get("registration_access_token")]))
        return found

    async def register(self, *redirect_uris: str, **metadata: Any) -> dict[str, Any]:
        """Register a client (RFC 7591)."""
        async with self.http.post(f"{self.issuer}/reg", json={"redirect_uris": redirect_uris, **metadata}) as response:
            found: dict[str, Any] = await response.json()
        assert response.status == 201, found
        return found

    async def token(
        self, user: str, resource: str, *, scope: str = "tools.use", headers: Mapping[str, str] | None = None
    ) -> str:
        """Sign a user in with the client `desktop`, and return an access token for a resource."""
        verifier = secrets.token_urlsafe(32)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": "desktop",
            "redirect_uri": REDIRECT,
            "scope": scope,
            "resource": resource,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        browser = Browser(user)
        page = await asyncio.to_thread(browser.visit, f"{self.issuer}/auth?{urlencode(query)}", until=REDIRECT)
        [code] = parse_qs(urlsplit(page.url).query)["code"]
        form = {
            "grant_type": "authorization_code",
            "client_id": "desktop",
            "code": code,
            "redirect_uri": REDIRECT,
            "code_verifier": verifier,
            "resource": resource,
        }
        async with self.http.post(f"{self.issuer}/token", data=form, headers=headers) as response:
            found = await response.json()
        assert response.status == 200, found
        return str(found["access_token"])


@contextmanager
def running_provider(log: Path, *, host: str = "127.0.0.1") -> Iterator[str]:
    """Start the provider, and yield its issuer URL. Browsers treat `localhost` and 127.0.0.1 as different sites."""
    package = find_package(HERE, name="oidc-provider", variable="MCP_GATEWAY_TEST_OPENID_PROVIDER")
    if not isinstance(package, NodePackage):
        skip_or_fail(package)
    port = free_port()
    issuer = f"http://{host}:{port}"
    configuration = json.dumps({"clients": CLIENTS, "groups": GROUPS})
    command: list[str | Path] = [package.node, HERE / "provider.mjs", package.directory, issuer, configuration]
    with _running(command, port, log):
        yield issuer


@contextmanager
def protected_server(issuer: str, log: Path) -> Iterator[str]:
    """Start an MCP server on the official SDK that requires tokens of the issuer, and yield its URL."""
    python = need_named_by("MCP_GATEWAY_TEST_CLIENT_2", what="a Python with tests/interop/client-2x.txt installed")
    port = free_port()
    with _running([python, HERE / "protected_server.py", str(port), issuer, SECRET], port, log):
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def _running(command: Sequence[str | Path], port: int, log: Path) -> Iterator[None]:
    with log.open("ab") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _listens(port):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield
        finally:
            process.kill()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False
