"""The command `dev`: serve a file while it is written, and show what happens."""

import os
from argparse import Namespace
from contextlib import ExitStack
from datetime import timedelta
from importlib import import_module
from typing import Final

from gateway.app import develop
from gateway.cli.dev.own_terminal import own_terminal
from gateway.cli.dev.plain_view import PlainView, View
from gateway.cli.screen import Screen
from gateway.cli.settings import settings_of

_DRAIN: Final = timedelta(seconds=1)
_LIVE: Final = "gateway.cli.dev.live_view"
"""Needs the extra `dev`, hence imported where it is wanted."""


async def dev(options: Namespace, out: Screen, _hints: Screen) -> int:
    settings = settings_of(options)
    patience = {} if "drain_timeout" in settings.model_fields_set else {"drain_timeout": _DRAIN}
    settings = settings.model_copy(update={"stdio": False, "no_watch": False, "log_format": "json", **patience})
    with ExitStack() as stack:
        terminal = stack.enter_context(own_terminal())
        screen = Screen(terminal.stream)
        view: View = PlainView(screen)
        if out.is_terminal and os.environ.get("TERM") != "dumb":
            try:
                live = import_module(_LIVE).LiveView
            except ImportError:
                screen.line("(a live view comes with the extra: pip install 'mcp-gateway-daemon[dev]')")
            else:
                view = stack.enter_context(live(screen, terminal.stream, config=str(settings.config)))
        terminal.hand_over(view.written)
        await develop(settings, view.tell, on_leave=terminal.leave)
    return 0
