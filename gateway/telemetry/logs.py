"""Log events on standard error, as JSON lines or for a person's eyes. Standard output belongs to the protocol alone.

A line is masked, rendered, and left with a thread that writes it: a parent that starts the daemon and never reads its
standard error fills a pipe of 64 KiB, and must not stop the event loop with it. Lines beyond a bound are dropped and
counted.
"""

import json
import logging
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Literal, Self, get_args

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gateway.json_types import Json
from gateway.protocol.log_facts import LOG_FACTS
from gateway.telemetry.stray_exceptions import StrayExceptions

Level = Literal["debug", "info", "warning", "error"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
Style = Literal["json", "console"]
Mask = Callable[[str], str]
"""Takes the secrets out of text; asked anew for each event, so that it may follow a reload."""

LONGEST_QUEUE: Final = 10_000
"""Lines waiting for a reader of standard error."""
FAREWELL_SECONDS: Final = 1.0
"""How long the end of the process waits for such a reader."""
_QUIET: Final = ("watchfiles",)
"""Libraries that log at level info what is for their authors."""
_FIRST: Final = ("timestamp", "level", "event")
"""Keys with which every line begins, so that a person can read JSON too."""


class Logs:
    """The process's logging, between `with` and its end; structlog's and the standard library's alike."""

    def __init__(
        self,
        *,
        level: Level,
        style: Style | None,
        mask: Mask,
        descriptor: int = 2,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        is_terminal = os.isatty(descriptor)
        self._level: Level = level
        self._style = style or ("console" if is_terminal else "json")
        self._colours = is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        self._mask = mask
        self._lines = _Lines(descriptor)
        self._handler = logging.StreamHandler(self._lines)
        self._stray_exceptions = StrayExceptions()

    def __enter__(self) -> Self:
        before: list[Processor] = [
            structlog.contextvars.merge_contextvars,
            _with_facts,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            self._masked,
        ]
        self._lines.start()
        structlog.configure(
            processors=[*before, self._renderer()],
            logger_factory=structlog.PrintLoggerFactory(self._lines),  # type: ignore[arg-type]  # it only writes
            cache_logger_on_first_use=False,  # loggers of modules outlive a configuration
        )
        self._handler.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=[structlog.stdlib.ExtraAdder(), structlog.stdlib.add_logger_name, *before],
                processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, self._renderer()],
            )
        )
        logging.getLogger().addHandler(self._handler)
        self.set_level(self._level)
        for name in _QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.captureWarnings(capture=True)
        self._stray_exceptions.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stray_exceptions.stop()
        logging.captureWarnings(capture=False)
        logging.getLogger().removeHandler(self._handler)
        structlog.reset_defaults()
        logging.getLogger("gateway").setLevel(logging.NOTSET)
        self._lines.stop()

    @property
    def level(self) -> Level:
        """The mildest that is written."""
        return self._level

    def set_level(self, level: str) -> None:
        """Write lines of this level, and graver ones, from now on.

        Raises:
            ValueError: there is no such level.
        """
        if level not in LEVELS:
            raise ValueError(f"expected one of {', '.join(LEVELS)}, not {level!r}")
        self._level = level
        number = logging.getLevelNamesMapping()[level.upper()]
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(number))
        logging.getLogger("gateway").setLevel(number)
        logging.getLogger().setLevel(max(number, logging.INFO))  # a library's debug lines are for its authors

    def _renderer(self) -> Processor:
        if self._style == "console":
            console = structlog.dev.ConsoleRenderer(
                colors=self._colours, exception_formatter=structlog.dev.plain_traceback, pad_event_to=32
            )
            return lambda logger, method, event: console(logger, method, _visible(event))
        return structlog.processors.JSONRenderer(_json)

    def _masked(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        keys = dict.fromkeys((*_FIRST, *event))
        return {key: self._masked_value(event[key]) for key in keys if key in event}

    def _masked_value(self, value: Json) -> Json:
        match value:
            case str():
                return self._mask(value)
            case None | bool() | int() | float():
                return value
            case dict():
                return {self._mask(str(key)): self._masked_value(item) for key, item in value.items()}
            case list() | tuple() | set() | frozenset():
                return [self._masked_value(item) for item in value]
            case _:
                return self._mask(str(value))


def _with_facts(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the id of the call that the line belongs to, and of its trace."""
    for name, fact in LOG_FACTS.get().items():
        event.setdefault(name, fact)
    return event


class _Lines:
    """A text stream whose writes never wait: its own thread passes them on."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: deque[str] = deque()
        self._dropped = 0
        self._wake = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._pass_on, name="log writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._wake:
            self._ending = True
            self._wake.notify()
        self._thread.join(FAREWELL_SECONDS)

    def write(self, text: str) -> int:
        with self._wake:
            if len(self._waiting) < LONGEST_QUEUE:
                self._waiting.append(text)
                self._wake.notify()
            else:
                self._dropped += 1
        return len(text)

    def flush(self) -> None:
        """Nothing to do: the thread writes as soon as it can."""

    def _pass_on(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._ending)
                text, dropped = "".join(self._waiting), self._dropped
                self._waiting.clear()
                self._dropped = 0
                if not text and self._ending:
                    return
            if dropped:
                text += f"({dropped} log lines dropped: standard error was not read)\n"
            if not _written(self._descriptor, text.encode(errors="backslashreplace")):
                return  # nobody will ever read it: later lines are dropped at the bound


def _written(descriptor: int, data: bytes) -> bool:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            # A parent that shares the pipe may have made it non-blocking.
            threading.Event().wait(0.01)
        except OSError:
            return False
    return True


def _json(event: EventDict, **_options: Json) -> str:
    try:
        line = orjson.dumps(event).decode()
    except TypeError:  # a lone surrogate, or an integer of more than 64 bits
        return json.dumps(event)
    return line if line.isprintable() else _DECEPTIVE.sub(_escaped, line)


_DECEPTIVE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Controls, line ends and overrides of direction: what a terminal would not show, but do. Others chose what we log."""


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _visible(event: EventDict) -> EventDict:
    """What a terminal shows as it is; only a traceback has lines."""
    return {key: _visible_value(value, has_lines=key in _OF_LINES) for key, value in event.items()}


_OF_LINES: Final = frozenset({"exception", "stack"})


def _visible_value(value: Json, *, has_lines: bool) -> Json:
    if not isinstance(value, str) or value.isprintable():
        return value  # what is no text is shown as Python writes it, which escapes
    return _DECEPTIVE.sub(lambda match: match[0] if has_lines and match[0] in "\n\t" else _escaped(match), value)
