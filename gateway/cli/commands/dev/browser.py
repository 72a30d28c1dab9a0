"""Opens the console in the user's browser, where there is one.

Why through a file: the arguments of a program are visible to everybody on the machine, and the link has a token in it.
"""

import html
import os
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Final

_PAGE: Final = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={url}">\n'
_WITH_WINDOWS: Final = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables of which one is set where a browser has a window: one in the terminal would take that away."""


def open_in_browser(url: str, *, folder: Path) -> None:
    """Open a URL by a file in a folder that nobody else may read, if there is a browser; does not wait for it."""
    if sys.platform != "darwin" and not any(os.environ.get(name) for name in _WITH_WINDOWS):
        return
    page = folder / "console.html"
    page.write_text(_PAGE.format(url=html.escape(url)))
    # A daemon thread: some browsers end only when their window is closed.
    threading.Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True, name="browser").start()
