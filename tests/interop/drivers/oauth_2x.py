"""Uses a server that requires tokens, with version 2.x of the official client."""

from typing import Any

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult

from tests.interop.drivers.oauth import METADATA, Browser, ChallengeRecorder, Memory, reasons, use
from tests.interop.drivers.plans import carry_out_plans


async def carry_out(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [await attempt(plan, token) for token in plan["tokens"]]


async def attempt(plan: dict[str, Any], token: str | None) -> dict[str, Any]:
    """Use the server with a token. Sign in first if the plan has none."""
    recorder = ChallengeRecorder()
    async with httpx2.AsyncClient() as plain:
        browser = Browser(plain)
        given: dict[str, Any] = {"headers": {"Authorization": f"Bearer {token}"} if token else {}}
        if plan["signs_in"]:
            given["auth"] = OAuthClientProvider(
                plan["url"],
                METADATA.model_copy(),
                Memory(),
                redirect_handler=browser.visit,
                callback_handler=lambda: came_back(browser),
            )
        async with httpx2.AsyncClient(**given, event_hooks={"response": [recorder.note]}, timeout=30) as http:
            outcome = await talk(plan, http)
    return {**outcome, "challenges": recorder.challenges}


async def came_back(browser: Browser) -> AuthorizationCodeResult:
    return AuthorizationCodeResult(**browser.answer)


async def talk(plan: dict[str, Any], http: Any) -> dict[str, Any]:
    try:
        server = streamable_http_client(plan["url"], http_client=http)
        async with Client(server, mode=plan["mode"], read_timeout_seconds=30) as client:
            used = await use(client.list_tools, lambda name: client.call_tool(name, {}), plan["tools"])
            return {**used, "revision": client.protocol_version}
    except Exception as error:  # noqa: BLE001 - the test checks the error
        return {"failed": reasons(error)}


carry_out_plans(carry_out)
