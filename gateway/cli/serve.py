"""The command `serve`."""

from argparse import Namespace
from typing import Final

import structlog

from gateway.app import Gateway
from gateway.cli.screen import Screen
from gateway.cli.settings import settings_of
from gateway.cli.words import refusal
from gateway.config.settings import flag_of, variable_of
from gateway.errors import ConfigError

log: Final = structlog.get_logger(__name__)


async def serve(options: Namespace, _out: Screen, _hints: Screen) -> int:
    settings = settings_of(options)
    if settings.scopes is not None and not settings.stdio:  # or they would be thought to bind callers over HTTP
        where = flag_of("scopes") if "scopes" in options else variable_of("scopes")
        raise refusal(where, "is for the caller on stdio: add --stdio; over HTTP, scopes belong to keys (`auth`)")
    async with Gateway(settings) as gateway:
        try:
            await gateway.serve()
        except ConfigError:
            raise
        except Exception:  # Boundary: what ends the daemon is told by its log, which masks secrets.
            log.exception("daemon failed")
            return 1
    return 0
