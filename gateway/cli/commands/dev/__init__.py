import asyncio
import html
import os
import sys
import termios
import threading
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TextIO

import structlog

from gateway.app.gateway import Gateway
from gateway.app.signals import cancelled_by_signals
from gateway.catalog.skill_snapshot import watched
from gateway.cli.commands.dev.event_lines import EventLines, StatusSnapshot, plain_lines
from gateway.cli.console import Console, has_browser, open_in_browser
from gateway.cli.options import ALLOW_ANONYMOUS, HTTP, POLL, Option, add_config, add_log_level, add_option, settings_of
from gateway.cli.parser import EXIT_CODES, Parser
from gateway.config.definition_source import load_definitions
from gateway.config.machine_facts import is_directory
from gateway.config.reading.file_pattern import FilePattern
from gateway.config.reading.inclusion import SUFFIXES
from gateway.config.settings import NO_STATE, Settings
from gateway.distribution import install_command
from gateway.errors import ConfigError
from gateway.reload.planning import plan
from gateway.reload.watch_plan import Snapshot, WatchPlan, watch_loaded
from gateway.reload.watcher import Watcher

log: Final = structlog.get_logger(__name__)

_SNAPSHOT_SECONDS: Final = 0.25
_POLL: Final = timedelta(seconds=2)
"""How often an invalid file is checked for changes on file systems without change events."""
ShowConsole = Callable[[str], None]
"""A function that receives the URL of the console."""
_LIVE: Final = "gateway.cli.commands.dev.live_view"
"""The module is imported only if the output is a terminal, because it needs the extra `dev`."""
_PAGE: Final = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={url}">\n'
_SHOW_CURSOR: Final = b"\x1b[?25h\r\n"
_LOCAL_MODES: Final = 3
"""Index of the local modes in the result of `termios.tcgetattr`."""


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        summary="Serve the file while you edit it, and show calls, clients and changes.",
        epilog=f"""\
examples:
  {name} config.yaml
  {name} config.yaml --http :9000
  {name} config.yaml --open                  the console in the browser
  {name} config.yaml --log-level debug       every message, too

An invalid file is shown with its errors, and served as soon as they are fixed. Without a terminal,
the output is plain lines. Ctrl-C stops the server.

{EXIT_CODES}""",
    )
    add_config(arguments)
    for option in (HTTP, ALLOW_ANONYMOUS, POLL):
        add_option(arguments.add_argument, option)
    add_option(
        arguments.add_argument, Option("drain_timeout", "TIME", "time limit of calls after Ctrl-C"), default="1s"
    )
    add_log_level(arguments.add_argument, default=None)
    arguments.add_argument("--open", action="store_true", help="also serve the console, and open it in the browser")
    return arguments


async def run(options: Namespace, out: Console, _hints: Console) -> int:
    settings = settings_of(options)
    drain = {} if "drain_timeout" in settings.model_fields_set else {"drain_timeout": timedelta(seconds=1)}
    settings = settings.model_copy(
        # Keep no state, because a daemon that serves the same file can already use the state directory.
        update={"stdio": False, "no_watch": False, "log_format": "json", "state_dir": NO_STATE, **drain}
    )
    with ExitStack() as stack:
        stream, hand_over, leave = stack.enter_context(raw_terminal())
        console = Console(stream)
        lines = EventLines(plain_lines(console), shows_all_problems=True)
        if out.is_terminal and os.environ.get("TERM") != "dumb":
            try:
                live = import_module(_LIVE).LiveView
            except ImportError:
                console.line(f"(for the live view: {install_command('dev')})")
            else:
                lines = stack.enter_context(live(console, stream, config=str(settings.config)))
        hand_over(lines.written)
        show_console: Callable[[str], None] | None = None
        if options.open:
            folder = stack.enter_context(TemporaryDirectory(prefix="mcp-gateway-dev-"))  # mode 0700
            show_console = partial(_open_in_browser, folder=Path(folder))
        with cancelled_by_signals(on_exit=leave):
            await develop(settings, lines, on_exit=leave, show_console=show_console)
    return 0


def _open_in_browser(url: str, *, folder: Path) -> None:
    # Open a private page that redirects to the URL, because the URL contains a token, and other users could see the
    # token in the arguments of the browser process.
    if has_browser():
        page = folder / "console.html"
        page.write_text(_PAGE.format(url=html.escape(url)))
        open_in_browser(page.as_uri())


async def develop(
    settings: Settings, lines: EventLines, *, on_exit: Callable[[], None], show_console: ShowConsole | None = None
) -> None:
    """Serve the file until SIGINT or SIGTERM. If the file is invalid, wait for a change and try again.

    `on_exit` is called if the process exits without cleanup, and must be safe to call from any thread. With
    `show_console`, serve the console and pass its URL to the function.
    """
    while True:
        # Take the time before loading the file, so that a change during loading is noticed.
        began_at = time.time_ns()
        gateway = Gateway(settings, observers=[lines], opens_console=show_console is not None)
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(gateway)
            except ConfigError as error:
                lines.take_snapshot(StatusSnapshot(status={}, url=None, problems=tuple(error.problems)))
                await _wait_for_change(settings.config, since=began_at)
                continue
            async with _taking_snapshots(gateway, lines, show_console):
                await gateway.serve(on_exit=on_exit)
            return


@asynccontextmanager
async def _taking_snapshots(
    gateway: Gateway, lines: EventLines, show_console: ShowConsole | None
) -> AsyncIterator[None]:
    task = asyncio.create_task(_take_snapshots(gateway, lines, show_console), name="status snapshots")
    try:
        yield
    finally:
        task.cancel()
        [ended] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ended, Exception):  # an error in the view must not stop the server
            log.error("view failed", exc_info=ended)


async def _take_snapshots(gateway: Gateway, lines: EventLines, show_console: ShowConsole | None) -> None:
    served, generation, apps = await gateway.manifest(), gateway.status()["generation"], gateway.apps
    while True:
        status = gateway.status()
        if status["generation"] != generation:
            before, served, generation = served, await gateway.manifest(), status["generation"]
            apps = gateway.apps
            lines.reloaded(generation, plan(before, served).changes)
        lines.take_snapshot(StatusSnapshot(status=status, url=gateway.url, problems=gateway.problems, apps=apps))
        if show_console is not None and gateway.console_link is not None:
            show_console(gateway.console_link)
            show_console = None
        await asyncio.sleep(_SNAPSHOT_SECONDS)


async def _wait_for_change(path: Path, *, since: int) -> None:
    seen = Snapshot(taken_at=since)
    while True:
        watched = await asyncio.to_thread(_watch_plan, path)
        async with Watcher(watched, poll=_POLL) as watcher:
            # Start watching before comparing the files, so that no change is missed.
            now = await asyncio.to_thread(watched.snapshot)
            if await asyncio.to_thread(now.differs_from, seen):
                return
            seen = now
            await watcher.hint()


def _watch_plan(path: Path) -> WatchPlan:
    itself = WatchPlan(
        files=frozenset({path}),
        directories=frozenset({path if is_directory(path) else path.parent}),
        patterns=frozenset(FilePattern(path.absolute(), f"*{suffix}") for suffix in SUFFIXES),
    )
    try:
        loaded = load_definitions(path)
    except ConfigError:
        return itself
    skills = (
        FilePattern.parse(each.dir, directory=loaded.sources.directory(("skills", index)))
        for index, each in enumerate(loaded.document.skills)
    )
    used = WatchPlan(
        trees=frozenset(loaded.root / directory for directory in loaded.document.plugins),
        globs=frozenset(map(watched, skills)),
    )
    return itself | watch_loaded(loaded) | used


@contextmanager
def raw_terminal() -> Iterator[tuple[TextIO, Callable[[Callable[[str], None]], None], Callable[[], None]]]:
    """Capture standard output and standard error, including the output of plugins.

    Yield the real terminal and two functions. The first function takes a callback, and passes each captured line to the
    callback. The second function restores the terminal if the process exits without cleanup, and can be called from any
    thread.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    out, errors = os.dup(1), os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.dup2(writing, 2)
    # Close this end of the pipe, so that the pipe ends when descriptors 1 and 2 are closed.
    os.close(writing)
    readers: list[threading.Thread] = []

    def hand_over(take: Callable[[str], None]) -> None:
        readers.append(threading.Thread(target=_read_lines, args=(reading, take), name="own output", daemon=True))
        readers[0].start()

    restore = _suppress_echo() if os.isatty(out) else lambda: None

    def leave() -> None:
        restore()
        if os.isatty(out):
            os.write(out, _SHOW_CURSOR)

    stream = os.fdopen(os.dup(out), "w", encoding="utf-8", errors="backslashreplace")
    try:
        yield stream, hand_over, leave
    finally:
        restore()
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(out, 1)  # closes the last writers of the pipe, so the reader ends
        os.dup2(errors, 2)
        for reader in readers:
            # Wait only a second, because a child process of a plugin can keep the pipe open.
            reader.join(1.0)
        with suppress(BrokenPipeError):
            stream.close()
        os.close(out)
        os.close(errors)


def _read_lines(descriptor: int, take: Callable[[str], None]) -> None:
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            take(line.rstrip("\n"))


def _suppress_echo() -> Callable[[], None]:
    """Turn off the echo of typed characters such as `^C`, which would damage the view.

    Return a function that turns the echo on again. Do nothing in a background process.
    """
    try:
        if os.tcgetpgrp(0) != os.getpgrp():  # termios(3): a background process would be stopped by SIGTTOU
            return lambda: None
        before = termios.tcgetattr(0)
    except (OSError, termios.error):
        return lambda: None
    quiet = [*before]
    quiet[_LOCAL_MODES] = before[_LOCAL_MODES] & ~termios.ECHO
    with suppress(termios.error):
        termios.tcsetattr(0, termios.TCSANOW, quiet)

    def restore() -> None:
        with suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, before)

    return restore
