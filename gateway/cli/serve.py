"""The command `serve`."""

from argparse import Namespace

from gateway.app import Gateway
from gateway.cli.screen import Screen
from gateway.cli.settings import settings_of


async def serve(options: Namespace, _out: Screen, _hints: Screen) -> int:
    async with Gateway(settings_of(options)) as gateway:
        await gateway.serve()
    return 0
