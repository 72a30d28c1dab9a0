"""The client that the official suite tests is the gateway: `python client_under_test.py URL`.

This program runs a gateway with the suite's server as an upstream, and uses all its definitions through the gateway.
The variables `MCP_CONFORMANCE_SCENARIO` and `MCP_CONFORMANCE_CONTEXT` describe the scenario.
"""

import asyncio
import fcntl
import json
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.e2e.daemon import serving

SECONDS: Final = 60
WITHOUT_A_USER: Final = {
    "auth/client-credentials-basic",
    "auth/client-credentials-jwt",
    "auth/metadata-issuer-mismatch",
    "auth/resource-mismatch",
}
"""Scenarios in which the gateway signs in as itself. The last two only test metadata."""
CLIENT_DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
IDP: Final = {"issuer": "issuer", "client_id": "client_id", "subject_token": "id_token"}
"""Keys of `enterprise.idp`, and their names in the scenario."""
SAMPLES: Final[dict[str, Any]] = {
    "string": "x",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
}


class Client:
    """A session of revision 2025-11-25 that answers questions with their defaults."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._url = url
        self._http = http
        self._headers = {"Accept": "application/json, text/event-stream"}
        self._sent = 0

    async def open(self) -> None:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}},
            "clientInfo": {"name": "conformance", "version": "1"},
        }
        await self.ask("initialize", params)
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of a request, which is empty after an error."""
        self._sent += 1
        request = {"jsonrpc": "2.0", "id": self._sent, "method": method, "params": params or {}}
        async for message in self._messages(request):
            if message.get("id") == request["id"] and "method" not in message:
                result: dict[str, Any] = message.get("result", {})
                return result
            if message.get("method") == "elicitation/create":
                if "url" in message["params"]:
                    await sign_in(message["params"]["url"])
                await self._post({"jsonrpc": "2.0", "id": message["id"], "result": _answer(message["params"])})
        raise AssertionError(f"no answer to {method}")

    async def _post(self, message: dict[str, Any]) -> None:
        async with self._http.post(self._url, json=message, headers=self._headers):
            pass

    async def _messages(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        async with self._http.post(self._url, json=request, headers=self._headers) as response:
            if session := response.headers.get("Mcp-Session-Id"):
                self._headers["Mcp-Session-Id"] = session
            if response.content_type == "application/json":
                yield await response.json()
                return
            async for line in response.content:
                if line.startswith(b"data: {"):
                    yield json.loads(line.removeprefix(b"data: "))


async def sign_in(link: str) -> None:
    """Open a link in a browser, submit its form, and follow the redirects back to the gateway."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get(link) as page:
            await page.read()
        async with browser.post(link, data={"submit": "1"}) as page:
            sys.stderr.write(f"{page.status} {await page.text()}\n")


def _answer(params: dict[str, Any]) -> dict[str, Any]:
    if params.get("mode") == "url":
        return {"action": "accept"}
    fields = params["requestedSchema"]["properties"]
    content = {name: field.get("default", SAMPLES[field["type"]]) for name, field in fields.items()}
    return {"action": "accept", "content": content}


def config_for(url: str, scenario: str, context: dict[str, Any]) -> dict[str, Any]:
    """Return the file of the gateway for a scenario."""
    upstream: dict[str, Any] = {"url": url, "prefix": "", "allow_private": True}
    if "valid_jwt" in context:
        workload = {"client_id": context["client_id"], "assertion": context["valid_jwt"]}
        upstream["auth"] = {"client_credentials": workload}
    elif "idp_issuer" in context:
        idp = {name: context[f"idp_{key}"] for name, key in IDP.items()}
        client = {name: context[name] for name in ("client_id", "client_secret")}
        upstream["auth"] = {"enterprise": {"idp": idp, **client}}
    elif scenario in WITHOUT_A_USER and scenario.startswith("auth/client-credentials"):
        key = context.get("private_key_pem")
        credential = {"client_secret": context.get("client_secret", "unknown")} if key is None else {"private_key": key}
        upstream["auth"] = {"client_credentials": {"client_id": context.get("client_id", "unknown"), **credential}}
    elif scenario.startswith("auth/"):
        known = {name: context[name] for name in ("issuer", "client_id", "client_secret") if name in context}
        if scenario == "auth/basic-cimd":
            known = {"client_id": CLIENT_DOCUMENT}
        upstream["auth"] = {"authorization_code": known}
    return {"upstreams": {"suite": upstream}}


async def use(client: Client, context: dict[str, Any]) -> None:
    """Use all definitions, and call the tools that the scenario names."""
    await client.open()
    tools = await listed(client)
    for _ in range(20):
        if "sign_in" not in tools:
            break
        # The tools of the upstream are listed once a user has signed in.
        if (await client.ask("tools/call", {"name": "sign_in", "arguments": {}})).get("isError"):
            return
        await asyncio.sleep(0.5)
        tools = await listed(client)
    calls = context.get("toolCalls") or [
        {"name": name, "arguments": _arguments(tool["inputSchema"])} for name, tool in tools.items()
    ]
    for call in calls:
        if "schema" in call["arguments"]:  # must be sent as listed
            call["arguments"]["schema"] = next(
                tool["inputSchema"] for name, tool in tools.items() if name != call["name"]
            )
    await asyncio.gather(*(client.ask("tools/call", call) for call in calls))
    for resource in (await client.ask("resources/list")).get("resources", []):
        await client.ask("resources/read", {"uri": resource["uri"]})
    for prompt in (await client.ask("prompts/list")).get("prompts", []):
        await client.ask("prompts/get", {"name": prompt["name"]})


async def listed(client: Client) -> dict[str, dict[str, Any]]:
    return {tool["name"]: tool for tool in (await client.ask("tools/list")).get("tools", [])}


def _arguments(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: SAMPLES.get(schema["properties"][name].get("type"), None) for name in schema.get("required", [])}


@contextmanager
def limited_concurrency() -> Iterator[None]:
    """Limit concurrent scenarios to the number of processors, because the suite starts all scenarios at once."""
    number = secrets.randbelow(os.cpu_count() or 1)
    with Path(tempfile.gettempdir(), f"conformance-limited_concurrency-{os.getuid()}-{number}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def main(url: str) -> None:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.yaml")
        config.write_text(json.dumps(config_for(url, scenario, context)))
        flags = ("--http", "127.0.0.1:0", "--state-dir", "none")
        async with asyncio.timeout(SECONDS), serving(config, *flags, is_forked=False) as daemon:
            try:
                async with aiohttp.ClientSession() as http:
                    await use(Client(await daemon.url(), http), context)
            finally:
                sys.stderr.write("\n".join(daemon.errors))


if __name__ == "__main__":
    with limited_concurrency():
        asyncio.run(main(sys.argv[1]))
