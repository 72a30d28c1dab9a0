"""Writes log events to standard error, as JSON lines or as readable text.

Lines are masked, rendered and queued. A `BackgroundWriter` writes them, because a parent process that never reads
standard error must not block the event loop. Lines that do not fit into the queue are dropped and counted.
"""

import json
import logging
import os
import random
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self, get_args

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gateway.config.settings import LogFormat, LogLevel
from gateway.control_characters import visible
from gateway.json_types import Json, JsonObject
from gateway.telemetry.background_writer import BackgroundWriter, write_all
from gateway.telemetry.observer import CallFacts, CallResult, Outcome

log: Final = structlog.get_logger(__name__)

LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)
_PACKAGES: Final = frozenset(
    each.name for each in Path(__file__).parents[1].iterdir() if each.is_dir() and not each.name.startswith("_")
)
Mask = Callable[[str], str]
"""A function that masks the secrets in text. It is called for each event, because a reload can change the secrets."""

_MAX_TITLE: Final = 60
MAX_QUEUED_BYTES: Final = 2**20
SHUTDOWN_GRACE_SECONDS: Final = 1.0
"""The maximum time to wait at exit until queued lines are written."""
_QUIET_LIBRARIES: Final = ("watchfiles",)
_FIRST_KEYS: Final = ("timestamp", "level", "event")


CALL: Final = "call"
TRACE_ID: Final = "trace_id"
_ID_BYTES: Final = 6

LOG_CONTEXT: Final[ContextVar[Mapping[str, str]]] = ContextVar("facts of log lines", default=MappingProxyType({}))
"""Fields, such as the call id, that are added to all log lines of the gateway, libraries and plugins.

Tasks and threads inherit the value. The value contains only strings, because idle connections and timers can keep the
value in memory after the call.
"""


class Logs:
    """Configures logging in a `with` block, for structlog and the standard library.

    Inside the block, uncaught exceptions of plugin threads and finalizers are also logged, with secrets masked.
    """

    def __init__(  # noqa: PLR0913 - the settings of a log
        self,
        *,
        level: LogLevel,
        style: LogFormat | None,
        mask: Mask,
        worker: int | None = None,
        hidden_events: frozenset[str] = frozenset(),
        descriptor: int = 2,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """If there are several workers, each line contains the worker's number as `worker`."""
        self._hidden_events: Final = hidden_events
        is_terminal = os.isatty(descriptor)
        self.level: LogLevel = level
        self.package_levels: Final[dict[str, str]] = {}
        self._style = style or ("console" if is_terminal else "json")
        # no-color.org: any non-empty value of NO_COLOR disables colours.
        self._colours = is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        self._mask: Final = mask
        self._lines = _Lines(descriptor)
        self._handler = logging.StreamHandler(self._lines)
        self._worker: Final = worker
        self._subscribers: Final[list[Callable[[EventDict], None]]] = []

    def __enter__(self) -> Self:
        before: list[Processor] = [
            structlog.contextvars.merge_contextvars,
            self._with_context,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)
            if self._style == "console"
            else structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            # Format exceptions before masking, because tracebacks can contain arguments.
            structlog.processors.format_exc_info,
            self._masked,
        ]
        self._lines.start()
        structlog.configure(
            processors=[self._at_level, *before, self._renderer()],
            logger_factory=lambda name="": _PackageLogger(
                self._lines, package=name.split(".")[1] if "." in name else ""
            ),
            cache_logger_on_first_use=False,  # Module loggers outlive a configuration.
        )
        self._handler.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=[structlog.stdlib.ExtraAdder(), structlog.stdlib.add_logger_name, *before],
                processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, self._renderer()],
            )
        )
        # Add the handler to the root logger, so that lines of all libraries are masked.
        logging.getLogger().addHandler(self._handler)
        self.set_level(self.level)
        for name in _QUIET_LIBRARIES:
            logging.getLogger(name).setLevel(logging.WARNING)
        # `warnings` would otherwise write to standard error unmasked.
        logging.captureWarnings(capture=True)
        self._thread_hook, self._unraisable_hook = threading.excepthook, sys.unraisablehook
        threading.excepthook, sys.unraisablehook = self._log_thread_failure, self._log_unraisable
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        threading.excepthook, sys.unraisablehook = self._thread_hook, self._unraisable_hook
        logging.captureWarnings(capture=False)
        logging.getLogger().removeHandler(self._handler)
        structlog.reset_defaults()
        for package in ("", *self.package_levels):
            _levels_of(package).setLevel(logging.NOTSET)
        # Stop the writer last, because the steps above can log.
        self._lines.stop(SHUTDOWN_GRACE_SECONDS)

    def _log_thread_failure(self, failed: threading.ExceptHookArgs) -> None:
        # As in threading.excepthook: SystemExit ends a thread silently.
        if failed.exc_type is SystemExit:
            return
        name = "" if failed.thread is None else failed.thread.name
        log.error("thread failed", thread=name, exc_info=failed.exc_value or failed.exc_type())
        if self._thread_hook is not threading.__excepthook__:
            self._thread_hook(failed)

    def _log_unraisable(self, failed: "sys.UnraisableHookArgs") -> None:
        where = failed.err_msg or f"in {type(failed.object).__name__}"
        log.error("exception ignored", where=where, exc_info=failed.exc_value or failed.exc_type())
        if self._unraisable_hook is not sys.__unraisablehook__:
            self._unraisable_hook(failed)

    def subscribe(self, handler: Callable[[EventDict], None]) -> None:
        """Call the handler with each masked line, in the thread that writes the line.

        The handler must not block, raise or change the line.
        """
        self._subscribers.append(handler)

    def set_level(self, level: str) -> None:
        """Set the general level (`info`), or the level of one package of `gateway` (`state=debug`).

        Raise ValueError if the level or the package does not exist.
        """
        package, _, name = level.rpartition("=")
        if name not in LEVELS:
            raise ValueError(f"expected one of {', '.join(LEVELS)}, not {name!r}")
        if not package:
            self.level = name
            for other in self.package_levels:
                _levels_of(other).setLevel(logging.NOTSET)
            self.package_levels.clear()
            logging.getLogger().setLevel(max(_number(name), logging.INFO))  # Libraries must not log debug lines.
        elif package in _PACKAGES:
            self.package_levels[package] = name
        else:
            raise ValueError(f"expected one of {', '.join(sorted(_PACKAGES))}, not {package!r}")
        _levels_of(package).setLevel(_number(name))
        lowest = min(map(_number, (self.level, *self.package_levels.values())))
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(lowest))

    def _at_level(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        if event["event"] in self._hidden_events:
            raise structlog.DropEvent
        # `exception` is a method, not a level.
        if method in LEVELS and not _levels_of(logger.package).isEnabledFor(_number(method)):
            raise structlog.DropEvent
        return event

    def _renderer(self) -> Processor:
        if self._style == "console":
            console = structlog.dev.ConsoleRenderer(
                colors=self._colours, exception_formatter=structlog.dev.plain_traceback, pad_event_to=0
            )
            return lambda logger, method, event: console(logger, method, _visible(event))
        return structlog.processors.JSONRenderer(json_line)

    def _with_context(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        for name, fact in LOG_CONTEXT.get().items():
            event.setdefault(name, fact)
        if self._worker is not None:
            event.setdefault("worker", self._worker)
        return event

    def _masked(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        keys = dict.fromkeys((*_FIRST_KEYS, *event))
        masked = {key: self._masked_value(event[key]) for key in keys if key in event}
        for handler in self._subscribers:
            handler(masked)
        return masked

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


class _PackageLogger(structlog.WriteLogger):
    """Writes the log lines of one package of `gateway`, such as `state`."""

    def __init__(self, lines: "_Lines", *, package: str) -> None:
        super().__init__(lines)  # type: ignore[arg-type]  # only writes
        self.package: Final = package


def _levels_of(package: str) -> logging.Logger:
    """Return the logger that sets the level of a package of `gateway`, or of all packages if `package` is ""."""
    return logging.getLogger(f"gateway.{package}" if package else "gateway")


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


class _Lines(BackgroundWriter):
    """A text stream whose writes never block."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: Final = descriptor
        self._is_gone = False
        super().__init__(
            self._write_lines_to_descriptor,
            name="log writer",
            max_bytes=MAX_QUEUED_BYTES,
            on_drop=lambda count: b"(%d log lines dropped: standard error was not read)\n" % count,
        )

    def write(self, text: str) -> int:
        # Escape lone surrogates in caller text or file names, which would otherwise raise UnicodeEncodeError.
        self.put(text.encode(errors="backslashreplace"))
        return len(text)

    def _write_lines_to_descriptor(self, lines: Iterator[bytes]) -> None:
        for line in lines:
            # After a failed write, lines are discarded, because the descriptor will not recover.
            self._is_gone = self._is_gone or not write_all(self._descriptor, line)

    def flush(self) -> None:
        """Do nothing, because the thread writes continuously."""


def json_line(record: Mapping[str, Json], **_options: Json) -> str:
    """Encode a record as one line of JSON, with escapes for characters that are not printable.

    Such characters in text from callers could end the line for some readers, or control a terminal.
    """
    try:
        line = orjson.dumps(record).decode()
    except TypeError:  # A lone surrogate or an integer of more than 64 bits.
        return json.dumps(record, default=repr, separators=(",", ":"))
    return line if line.isprintable() else _NOT_ASCII.sub(_escaped, line)


_NOT_ASCII: Final = re.compile(r"[^ -~]")


def _escaped(match: re.Match[str]) -> str:
    return match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1]


def _visible(event: EventDict) -> EventDict:
    """Escape characters that affect a terminal. Tracebacks keep their line ends."""
    return {
        # The renderer shows other values with repr(), which escapes such characters.
        key: visible(value, has_lines=key in {"exception", "stack"}) if isinstance(value, str) else value
        for key, value in event.items()
    }


def new_id() -> str:
    """Return a new call id, which is not secret."""
    # Do not use `secrets`, which would call the kernel each time.
    return random.getrandbits(8 * _ID_BYTES).to_bytes(_ID_BYTES, "big").hex()


def current_call_id() -> str:
    fields = LOG_CONTEXT.get()
    return fields[CALL] if CALL in fields else new_id()


_GOOD: Final = frozenset({Outcome.OK, Outcome.INPUT_REQUIRED})


class AccessLog:
    """Logs all calls or only failed calls (`listen.access_log`)."""

    def __init__(self, *, logs_all: bool) -> None:
        self._logs_all: Final = logs_all

    def began(self, call: CallFacts) -> None: ...

    def ended(self, call: CallFacts, ending: CallResult) -> None:
        is_good = ending.outcome in _GOOD
        if is_good and not self._logs_all:
            return
        log.info(
            "call ended" if is_good else "call failed",
            method=call.method,
            name=call.name,
            outcome=ending.outcome.value,
            milliseconds=round(ending.seconds * 1000),
            client=title_of(call.terms.client_info),
            principal=call.caller.principal,
        )


def title_of(client_info: JsonObject) -> str:
    """Return the client's name and version in at most `_MAX_TITLE` characters, or `unnamed`."""
    found = (client_info.get("name"), client_info.get("version"))
    return " ".join(each for each in found if isinstance(each, str) and each)[:_MAX_TITLE] or "unnamed"
