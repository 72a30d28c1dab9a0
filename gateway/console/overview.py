"""`/-/api/overview`: whether the daemon is well, and what happened in the last hour."""

from collections.abc import Callable
from typing import Final

from aiohttp import web

from gateway.console.answers import answered
from gateway.console.recorded import Recorded
from gateway.json_types import JsonObject
from gateway.transports.http.request import HttpRequest


class Overview:
    """Answers with the status, rates, problems, and snippets for clients."""

    def __init__(self, status: Callable[[], JsonObject], *, recorded: Recorded) -> None:
        self._status: Final = status
        self._recorded: Final = recorded

    async def answer(self, request: HttpRequest) -> web.Response:
        return answered(
            {"status": self._status(), "rates": self._recorded.rates(), "problems": [], "clients": []}, request
        )
