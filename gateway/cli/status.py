"""The command `status`: what a running server says about itself."""

import os
from argparse import Namespace
from collections.abc import Iterator

from gateway.cli.contents import show_raw
from gateway.cli.remote import get_json, own_path
from gateway.cli.screen import Screen, say
from gateway.config.address import Address
from gateway.config.settings import variable_of
from gateway.json_types import JsonObject


async def status(options: Namespace, out: Screen, _hints: Screen) -> int:
    answer = await get_json(own_path(options.url or default_url(), "/-/status"))
    if options.json:
        show_raw(answer, out)
    else:
        width = max(map(len, answer))
        for key, text in _rows(answer):
            out.line(f"{out.styled(key.replace('_', ' ').ljust(width), 'bold')}  {text}")
    return 1 if answer.get("problems") else 0


def _rows(status: JsonObject) -> Iterator[tuple[str, str]]:
    """A line for each fact; several of a kind stand below each other."""
    for key, value in status.items():
        match value:
            case dict() if value:
                texts = [f"{name}: {say(fact)}" for name, fact in value.items()]
            case list() if value:
                texts = [say(fact) for fact in value]
            case _:
                texts = [say(value)]
        yield from zip([key, *[""] * (len(texts) - 1)], texts, strict=True)


def default_url() -> str:
    given = os.environ.get(variable_of("http"))
    address = Address.parse(given) if given else Address("127.0.0.1", 8000)
    return f"http://{address.from_here}"
