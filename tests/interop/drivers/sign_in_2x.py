"""Runs the steps of `sign_in` with version 2.x of the official client."""

from typing import Any

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.interop.drivers.plans import carry_out_plans
from tests.interop.drivers.sign_in import SignInUser, use


async def carry_out(plan: dict[str, Any]) -> dict[str, Any]:
    user = SignInUser(plan)

    async def elicit(_context: Any, params: Any) -> types.ElicitResult:
        await user.answer(params)
        return types.ElicitResult(action="accept")

    callback = elicit if plan["asks"] else None
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {plan['key']}"}, timeout=60) as http:
        server = streamable_http_client(plan["url"], http_client=http)
        async with Client(server, mode=plan["mode"], read_timeout_seconds=60, elicitation_callback=callback) as client:
            used = await use(user, lambda: client.call_tool(plan["tool"], {}))
            return {**used, "revision": client.protocol_version}


carry_out_plans(carry_out)
