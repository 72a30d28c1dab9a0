"""An upstream over HTTP with results from a table."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from aiohttp import web

from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
from gateway.errors import RpcError
from gateway.json_types import Json, JsonObject
from tests import local_server
from tests.behaviour.inside import Client

Answers = dict[str, Json | Callable[[JsonObject], Json]]
"""By method: the result, or a function of the parameters. For a notification: the text of an HTTP error."""
OBJECT: Final[JsonObject] = {"type": "object"}


class ScriptedServer:
    """A server without sessions. Methods that are not in the table are unknown."""

    def __init__(self, answers: Answers, *, revision: str = "2025-11-25") -> None:
        has: dict[str, Json] = {
            kind: {} for kind in ("tools", "prompts", "resources") if any(key.startswith(kind) for key in answers)
        }
        capabilities = {**has, **({"completions": {}} if "completion/complete" in answers else {})}
        self.answers: Final[Answers] = {
            "initialize": {"protocolVersion": revision, "capabilities": capabilities, "serverInfo": {}},
            "ping": {},
            **answers,
        }
        self.asked: Final[list[tuple[str, JsonObject]]] = []

    def params_of(self, method: str) -> list[JsonObject]:
        return [params for asked, params in self.asked if asked == method]

    async def answer(self, request: web.Request) -> web.Response:
        message: JsonObject = await request.json()
        if "id" not in message:
            refusal = self.answers.get(message["method"])
            return web.Response(status=202) if refusal is None else web.Response(status=500, text=str(refusal))
        method, params = message["method"], message.get("params", {})
        self.asked.append((method, params))
        reply: dict[str, Json] = {"jsonrpc": "2.0", "id": message["id"]}
        answer = self.answers.get(method)
        if answer is None:
            reply["error"] = {"code": -32601, "message": "unknown"}
        else:
            try:
                reply["result"] = answer(params) if callable(answer) else answer
            except RpcError as error:
                reply["error"] = {"code": error.code, "message": error.message, "data": error.data}
        return web.json_response(reply)


@asynccontextmanager
async def scripted(answers: Answers, **given: str) -> AsyncIterator[tuple[ScriptedServer, str]]:
    """Yield the server and the keys of its entry."""
    server = ScriptedServer(answers, **given)
    app = web.Application()
    app.router.add_post("/mcp", server.answer)
    async with local_server.listening(app) as port:
        yield server, f"url: 'http://127.0.0.1:{port}/mcp', type: http, era: legacy, allow_private: true"


@asynccontextmanager
async def relayed(
    folder: Path, answers: Answers, more: str = "", *, text: str = ""
) -> AsyncIterator[tuple[ScriptedServer, Client, Gateway]]:
    """Yield the server, a client of a gateway in front of it, and the gateway. `more` are other keys of the entry."""
    config = folder / "config.yaml"
    async with scripted(answers) as (server, entry):
        config.write_text(f"upstreams: {{up: {{{entry}, prefix: ''{more}}}}}\n{text}", encoding="utf-8")
        settings = read_settings({"config": config, "log_level": "error", "no_watch": True, "state_dir": "none"})
        async with Gateway(settings, serves_one_request=True) as gateway:  # waits longer for lists
            yield server, Client(gateway), gateway
