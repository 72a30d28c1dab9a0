"""The command `status`: what a running server says about itself."""

import os
from argparse import Namespace

from gateway.cli.contents import show_raw
from gateway.cli.remote import endpoint, get_json
from gateway.cli.screen import Screen, say
from gateway.config.address import Address
from gateway.config.settings import variable_of


async def status(options: Namespace, out: Screen, _hints: Screen) -> int:
    answer = await get_json(endpoint(options.url or _default_url(), path="/-/status"))
    if options.json:
        show_raw(answer, out)
    else:
        out.table((key.replace("_", " "), say(value)) for key, value in answer.items())
    return 1 if answer.get("problems") else 0


def _default_url() -> str:
    given = os.environ.get(variable_of("http"))
    address = Address.parse(given) if given else Address("127.0.0.1", 8000)
    return f"http://{address.from_here}"
