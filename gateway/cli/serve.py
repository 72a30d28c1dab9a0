"""The command `serve`."""

from argparse import Namespace
from typing import Final

import structlog

from gateway.app import Gateway
from gateway.cli.screen import Screen
from gateway.cli.settings import settings_of
from gateway.errors import ConfigError

log: Final = structlog.get_logger(__name__)


async def serve(options: Namespace, _out: Screen, _hints: Screen) -> int:
    async with Gateway(settings_of(options)) as gateway:
        try:
            await gateway.serve()
        except ConfigError:
            raise
        except Exception:  # Boundary: what ends the daemon is told by its log, which masks secrets.
            log.exception("daemon failed")
            return 1
    return 0
