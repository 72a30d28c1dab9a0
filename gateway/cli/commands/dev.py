import asyncio
import html
import os
import signal
import time
from argparse import Namespace
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import orjson
import structlog

from gateway.app.gateway import Gateway
from gateway.app.signals import cancelled_by_signals
from gateway.catalog.skill_snapshot import watched
from gateway.cli.console import SIGN_STYLES, Console, has_browser, open_in_browser
from gateway.cli.options import ALLOW_ANONYMOUS, HTTP, POLL, Option, add_config, add_log_level, add_option, settings_of
from gateway.cli.parser import EXIT_CODES, Parser
from gateway.config.definition_source import load_definitions
from gateway.config.diagnostics.render import render
from gateway.config.machine_facts import is_directory
from gateway.config.reading.file_pattern import FilePattern
from gateway.config.reading.inclusion import SUFFIXES
from gateway.config.settings import NO_STATE, Settings
from gateway.errors import ConfigError, Problem
from gateway.json_types import Json, JsonObject
from gateway.reload.planning import Change, plan
from gateway.reload.watch_plan import Snapshot, WatchPlan, watch_loaded
from gateway.reload.watcher import Watcher
from gateway.telemetry.logs import title_of
from gateway.telemetry.observer import CallFacts, CallResult, Outcome

log: Final = structlog.get_logger(__name__)

_STATUS_SECONDS: Final = 0.25
_POLL: Final = timedelta(seconds=2)
"""How often an invalid file is checked for changes on file systems without change events."""
_PAGE: Final = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={url}">\n'
_HIDDEN_EVENTS: Final = frozenset({"reload refused"})
"""Log records that are not written, because `show_problems` prints the same errors."""
_MAX_REASON: Final = 300
_MAX_ARGUMENTS_LENGTH: Final = 120
_OUTCOMES: Final = {
    Outcome.OK: "",
    Outcome.TOOL_ERROR: "tool error",
    Outcome.PROTOCOL_ERROR: "refused",
    Outcome.INPUT_REQUIRED: "asks the user",
    Outcome.CANCELLED: "cancelled",
}


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        summary="Serve the file while you edit it, and show calls, clients and changes.",
        epilog=f"""\
examples:
  {name} config.yaml
  {name} config.yaml --http 127.0.0.1:9000
  {name} config.yaml --open                  the console in the browser
  {name} config.yaml --log-level debug       every message, too

An invalid file is shown with its errors, and served as soon as they are fixed. The log is written
to standard error. Ctrl-C stops the server.

{EXIT_CODES}""",
    )
    add_config(arguments)
    for option in (HTTP, ALLOW_ANONYMOUS, POLL):
        add_option(arguments.add_argument, option)
    add_option(
        arguments.add_argument, Option("drain_timeout", "TIME", "time limit of calls after Ctrl-C"), default="1s"
    )
    add_log_level(arguments.add_argument, default="warning")
    arguments.add_argument("--open", action="store_true", help="also serve the console, and open it in the browser")
    return arguments


async def run(options: Namespace, out: Console, _hints: Console) -> int:
    settings = settings_of(options)
    defaults = {"drain_timeout": timedelta(seconds=1), "log_level": "warning"}
    settings = settings.model_copy(
        update={
            "stdio": False,
            "no_watch": False,
            "log_format": "console",
            # Keep no state, because a daemon that serves the same file can already use the state directory.
            "state_dir": NO_STATE,
            **{name: value for name, value in defaults.items() if name not in settings.model_fields_set},
        }
    )
    with (
        TemporaryDirectory(prefix="mcp-gateway-dev-") as folder,  # mode 0700
        cancelled_by_signals(),
    ):
        await develop(settings, ActivityLines(out), browser_folder=Path(folder) if options.open else None)
    return 0


async def develop(settings: Settings, lines: "ActivityLines", *, browser_folder: Path | None = None) -> None:
    """Serve the file until SIGINT or SIGTERM. If the file is invalid, wait for a change and try again.

    With `browser_folder`, serve the console and open it in the browser.
    """
    while True:
        # Take the time before loading the file, so that a change during loading is noticed.
        began_at = time.time_ns()
        gateway = Gateway(
            settings, observers=[lines], opens_console=browser_folder is not None, hidden_events=_HIDDEN_EVENTS
        )
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(gateway)
            except ConfigError as error:
                lines.show_problems(error.problems, generation=None)
                await _wait_for_change(settings.config, since=began_at)
                continue
            async with _following(gateway, lines, browser_folder):
                await gateway.serve()
            return


@asynccontextmanager
async def _following(gateway: Gateway, lines: "ActivityLines", browser_folder: Path | None) -> AsyncIterator[None]:
    task = asyncio.create_task(_follow(gateway, lines, browser_folder), name="status lines")
    try:
        yield
    finally:
        task.cancel()
        [ended] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ended, Exception):  # an error in the output must not stop the server
            log.error("activity cannot be shown", exc_info=ended)


async def _follow(gateway: Gateway, lines: "ActivityLines", browser_folder: Path | None) -> None:
    served, generation = await gateway.manifest(), gateway.status()["generation"]
    is_open = False
    while True:
        status = gateway.status()
        if status["generation"] != generation:
            before, served, generation = served, await gateway.manifest(), status["generation"]
            lines.reloaded(generation, plan(before, served).changes)
        if gateway.url is not None:
            lines.show_address("serving", gateway.url)
        lines.show_problems(gateway.problems, generation=generation)
        lines.show_clients(status)
        if browser_folder is not None and gateway.console_link is not None and not is_open:
            is_open = True
            lines.show_address("console", gateway.console_link)
            _open_in_browser(gateway.console_link, browser_folder)
        await asyncio.sleep(_STATUS_SECONDS)


def _open_in_browser(url: str, folder: Path) -> None:
    # Open a private page that redirects to the URL, because the URL contains a token, and other users could see the
    # token in the arguments of the browser process.
    if has_browser():
        page = folder / "console.html"
        page.write_text(_PAGE.format(url=html.escape(url)))
        open_in_browser(page.as_uri())


class ActivityLines:
    """Prints calls, reloads, problems and clients as lines. Implements `Observer`."""

    def __init__(self, console: Console) -> None:
        self._console: Final = console
        self._addresses: dict[str, str] = {}
        self._problems: Sequence[Problem] = ()
        self._clients: Counter[str] = Counter()

    def began(self, call: CallFacts) -> None: ...

    def ended(self, call: CallFacts, ending: CallResult) -> None:
        params, redactor = call.params, call.catalog.redactor
        asked: Json = params.get("name") or params.get("uri") or params.get("ref")
        arguments = params.get("arguments") or params.get("argument") or ({"uri": asked} if "uri" in params else {})
        shown = _as_json(redactor.json(arguments))
        if len(shown) > _MAX_ARGUMENTS_LENGTH:
            shown = shown[: _MAX_ARGUMENTS_LENGTH - 1] + "…"
        is_good = ending.outcome in {Outcome.OK, Outcome.INPUT_REQUIRED}
        reason = redactor.text(ending.reason)[:_MAX_REASON]
        facts = (
            (shown, ""),
            (": ".join(filter(None, (_OUTCOMES[ending.outcome], reason))), "" if is_good else "red"),
            (_shown_seconds(ending.seconds), "dim"),
            (title_of(call.terms.client_info), "dim"),
        )
        mark = ("✓ ", "green") if is_good else ("✗ ", "red")
        spaced = ((f"  {text}", style) for text, style in facts if text)
        self._show(mark, (call.name or f"{asked} (unknown)", "bold"), *spaced)

    def reloaded(self, generation: int, changes: Sequence[Change]) -> None:
        note = "" if changes else ": no changes"
        self._show(("↻ ", "cyan"), (f"generation {generation}{note}", "bold"))
        for change in changes:
            place = (f"{change.sign} {change.place}", SIGN_STYLES[change.sign])
            self._show(place, (f"  {change.what}", "dim"))

    def show_address(self, label: str, url: str) -> None:
        """Print a URL with a label, unless the last URL with this label is the same."""
        if self._addresses.get(label) != url:
            self._addresses[label] = url
            self._show((f"{label} ", ""), (url, "bold"))

    def show_problems(self, problems: Sequence[Problem], *, generation: int | None) -> None:
        """Print the problems if they have changed. `generation` is still served, or None if nothing is served."""
        if list(problems) == list(self._problems):
            return
        self._problems = problems
        if not problems:
            self._show(("✓ ", "green"), ("the file is valid again", "bold"))
            return
        served = (
            "nothing is served until it is fixed" if generation is None else f"generation {generation} is still served"
        )
        excerpts = render(problems, colour=False).rstrip("\n")
        self._show(("✗ ", "red"), (f"the file is invalid; {served}", "red"), (f"\n{excerpts}", ""))

    def show_clients(self, status: JsonObject) -> None:
        clients = Counter(_clients(status))
        for client in clients - self._clients:
            self._show(("+ ", "green"), (client, ""), (" connected", "dim"))
        for client in self._clients - clients:
            self._show(("- ", "red"), (client, ""), (" left", "dim"))
        self._clients = clients

    def _show(self, *parts: tuple[str, str]) -> None:
        """Print a line with the time. Each part is a text and a style, or an empty style."""
        console = self._console
        cleaned = [(datetime.now().astimezone().strftime("%H:%M:%S   "), "dim"), *parts]
        texts = [
            console.styled(console.clean(text), style) if style else console.clean(text) for text, style in cleaned
        ]
        try:
            console.line("".join(texts))
        except BrokenPipeError:  # the reader has closed the pipe
            # Stop like after a signal, because an exception here would fail the call that is shown.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.kill(os.getpid(), signal.SIGTERM)


def _shown_seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _clients(status: JsonObject) -> Iterator[str]:
    for entry in status["clients"].get("sessions", ()):
        if entry["client"] is not None:
            yield from [f"{entry['client']} ({entry['revision']}, {entry['transport']})"] * entry["sessions"]


def _as_json(value: Json) -> str:
    try:
        return orjson.dumps(value).decode() if value else ""
    except TypeError:  # orjson rejects integers of more than 64 bits and lone surrogates
        return repr(value)


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
