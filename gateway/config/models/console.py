"""The key `listen.console`: the page in the browser."""

from typing import Annotated

from gateway.config.models.auth import ScopeToken
from gateway.config.models.base import Model, ShortForm
from gateway.json_types import Json


class ConsolePage(Model):
    """The console: a page at `/-/console/` that shows what the daemon does and calls its tools."""

    scopes: list[ScopeToken] = ["console"]
    """Scopes that a caller needs, all of them, where there is `auth`. They open everything that the page shows."""


def _switch(value: Json) -> Json:
    return {True: {}, False: None}[value] if isinstance(value, bool) else value


WrittenConsole = Annotated[ConsolePage | None, ShortForm(_switch, {"type": "boolean"})]
"""`true` turns it on with its defaults; `false` is as if the key were not there."""
