"""The snippets to paste into clients, so that they find this server by its URL."""

from collections.abc import Iterator
from typing import Final

from gateway.clients.clients import CLIENTS, HttpServer
from gateway.config.settings import PREFIX
from gateway.json_types import Json

KEY_VARIABLE: Final = PREFIX + "TOKEN"
"""The variable of the client's environment in which it has its key; no key is ever shown."""


def snippets(url: str, *, name: str, needs_key: bool) -> Iterator[dict[str, Json]]:
    """Yield a snippet for each client; the first is a command."""
    server = HttpServer(name=name, url=url, key_variable=KEY_VARIABLE if needs_key else None)
    yield _claude_code(server)
    for key, client in CLIENTS.items():
        entry, questions = client.http(server), client.questions(server)
        inputs = {"inputs": [*questions]} if questions else {}
        yield {
            "name": key,
            "title": client.title,
            "text": client.notation.render({**inputs, client.section: {name: entry}}),
            "notation": client.notation.name,
            "file": client.file,
            "link": None if client.link is None else client.link(name, entry, questions),
        }


def _claude_code(server: HttpServer) -> dict[str, Json]:
    header = f' --header "Authorization: Bearer ${server.key_variable}"' if server.key_variable else ""
    text = f"claude mcp add --transport http {server.name} {server.url}{header}"
    return {
        "name": "claude-code",
        "title": "Claude Code",
        "text": text,
        "notation": "shell",
        "file": "~/.claude.json",
        "link": None,
    }
