"""Runs the steps of `sign_in` with version 1.x of the official client."""

from typing import Any

import httpx
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client

from tests.interop.drivers.plans import carry_out_plans
from tests.interop.drivers.sign_in import SignInUser, use


async def carry_out(plan: dict[str, Any]) -> dict[str, Any]:
    user = SignInUser(plan)

    async def elicit(_context: Any, params: Any) -> types.ElicitResult:
        await user.answer(params)
        return types.ElicitResult(action="accept")

    headers = {"Authorization": f"Bearer {plan['key']}"}
    async with (
        httpx.AsyncClient(headers=headers, timeout=60) as http,
        streamable_http_client(plan["url"], http_client=http) as (read, write, *_),
        ClientSession(read, write, elicitation_callback=elicit if plan["asks"] else None) as session,
    ):
        revision = (await session.initialize()).protocolVersion
        return {**await use(user, lambda: session.call_tool(plan["tool"], {})), "revision": revision}


carry_out_plans(carry_out)
