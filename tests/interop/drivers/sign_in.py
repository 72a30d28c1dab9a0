"""Steps of both drivers with a tool whose service requires a sign-in: open links in a browser, and call the tool."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from tests.identity.browser import Browser


class SignInUser:
    """Opens links, and records the requests of the server."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self.asked: list[str] = []

    async def open(self, url: str) -> None:
        page = await asyncio.to_thread(Browser(self._plan["user"], key=self._plan["key"]).visit, url)
        assert page.status == 200, page.text

    async def answer(self, params: Any) -> None:
        self.asked.append(params.message)
        await self.open(params.url)


async def use(user: SignInUser, call_tool: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
    """Call the tool. If the result is an error with a link, open the link and call again."""
    texts = [(await call_tool()).content[0].text]
    if (link := re.search(r"http://\S+/-/sign-in/[\w-]+", texts[0])) is not None:
        await user.open(link[0])
        texts.append((await call_tool()).content[0].text)
    return {"texts": texts, "asked": user.asked}
