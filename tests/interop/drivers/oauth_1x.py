"""Uses a server that requires tokens, with version 1.x of the official client."""

from typing import Any

import httpx
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.interop.drivers.oauth import METADATA, Browser, ChallengeRecorder, Memory, reasons, use
from tests.interop.drivers.plans import carry_out_plans


async def carry_out(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [await attempt(plan, token) for token in plan["tokens"]]


async def attempt(plan: dict[str, Any], token: str | None) -> dict[str, Any]:
    """Use the server with a token. Sign in first if the plan has none."""
    recorder = ChallengeRecorder()
    async with httpx.AsyncClient() as plain:
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
        if plan["url"].endswith("/sse"):
            return {**await converse(plan, sse_client(plan["url"], **given)), "challenges": []}
        async with httpx.AsyncClient(**given, event_hooks={"response": [recorder.note]}, timeout=30) as http:
            outcome = await converse(plan, streamable_http_client(plan["url"], http_client=http))
    return {**outcome, "challenges": recorder.challenges}


async def came_back(browser: Browser) -> tuple[str, str | None]:
    return browser.answer["code"], browser.answer["state"]


async def converse(plan: dict[str, Any], transport: Any) -> dict[str, Any]:
    try:
        async with transport as (read, write, *_), ClientSession(read, write) as session:
            answer = await session.initialize()
            used = await use(session.list_tools, lambda name: session.call_tool(name, {}), plan["tools"])
            return {**used, "revision": answer.protocolVersion}
    except Exception as error:  # noqa: BLE001 - the test checks the error
        return {"failed": reasons(error)}


carry_out_plans(carry_out)
