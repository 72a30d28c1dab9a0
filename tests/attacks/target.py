"""The attacked daemon: a separate process with seeded secrets, whose whole output is searched for them."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import IO, Final

import orjson
from hypothesis.vendor.pretty import RepresentationPrinter as Printer

from gateway.json_types import Json, JsonObject, empty
from tests.attacks import seeds
from tests.attacks.backend import Backend
from tests.attacks.canary import Canary
from tests.attacks.client import TIMEOUT_SECONDS, Client, Fields
from tests.attacks.tap import Scanner, Tap
from tests.fork_server import FORKED

COUNTED: Final = (
    "sessions",
    "streams",
    "calls_running",
    "calls_waiting",
    "children",
    "children_ending",
    "threads_stuck",
    "worker_threads_stuck",
    "tasks",
)
"""Members of the status that must not increase."""
LOG_SECONDS: Final = 60.0
"""The time limit for a log line. On a busy machine, starting takes long."""
PYTHON: Final = os.path.realpath(sys.executable)
"""An interpreter for commands. With -IS, it starts faster, because it does not import `site`."""
SPARE_DESCRIPTORS: Final = 4
"""Additional descriptors that can stay open, such as idle connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The files and settings of the daemon."""

    file: str
    """YAML with the placeholders `@canary@`, `@port@`, `@payload_file@`, `@backend@` and `@python@`. `seeds.FILE` is
    served in addition."""
    files: Mapping[str, str] = field(default_factory=empty)
    """Other files by name."""
    flags: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=empty)
    operator: tuple[tuple[str, str], ...] = ()
    """Header fields for the status, if the file has `auth`."""
    tolerated: frozenset[str] = frozenset()
    """See `Target.tolerated`."""
    secrets: Sequence[str] = ()
    """Other secrets that must never be sent or logged."""
    is_stdio: bool = False
    """Whether the daemon also serves standard input and output."""


@dataclass(kw_only=True)
class Target:
    """The daemon and its environment. Does not depend on an event loop, so that all tests of a file can share it."""

    folder: Path
    canary: Canary
    backend: Backend
    operator: Fields
    process: "subprocess.Popen[bytes]"
    scanner: Scanner
    log: list[str] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    """The lines of standard output."""
    tolerated: set[str]
    """Log events of errors that a test causes on purpose."""
    is_reading: threading.Event = field(default_factory=threading.Event)
    """Clear it to stop reading standard output, so that its pipe fills up."""
    _output_changed: threading.Condition = field(default_factory=threading.Condition)
    _port: int = 0
    _tap: Tap | None = None
    _baseline: Mapping[str, Json] = field(default_factory=dict)
    _read: int = 0
    """The number of checked log lines."""
    _has_ended: bool = False
    _readers: list[threading.Thread] = field(default_factory=list)

    def _repr_pretty_(self, printer: Printer, _cycle: object) -> None:
        """Shorten the output of hypothesis."""
        printer.text("target")

    @property
    def client(self) -> Client:
        """A client that connects through the tap."""
        assert self._tap is not None
        return Client(port=self._tap.port)

    @property
    def direct(self) -> Client:
        """A client that connects to the daemon without the tap."""
        return Client(port=self._port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.client.port}/mcp"

    def event(self, name: str, *, after: int = 0) -> Json:
        """Wait for a log event, and return it."""
        with self._output_changed:
            found = self._output_changed.wait_for(lambda: self._find_event(name, after) or self._has_ended, LOG_SECONDS)
        assert isinstance(found, dict), (name, self.log)
        return found

    def line_with(self, request_id: Json) -> Json:
        """Wait for the response to a request on standard output."""

        def find() -> Json:
            messages = map(orjson.loads, self.lines)
            singles = (message for message in messages if isinstance(message, dict))
            return next((message for message in singles if message.get("id") == request_id), None)

        with self._output_changed:
            found = self._output_changed.wait_for(lambda: find() or self._has_ended, TIMEOUT_SECONDS)
        assert isinstance(found, dict), (request_id, self.lines, self.log)
        return found

    def status(self) -> JsonObject:
        """Return the counts of everything that an attack could leave behind."""
        answer = self.direct.request("GET", "/-/status", fields=self.operator)
        assert answer.status == 200, answer
        process = Path("/proc", str(self.process.pid))
        pids = (process / "task" / str(self.process.pid) / "children").read_text().split()
        return {
            **{name: answer.json[name] for name in COUNTED},
            "pids": pids,
            "descriptors": len(os.listdir(process / "fd")),  # noqa: PTH208 - only counts entries
        }

    def rss(self) -> int:
        """Return the resident memory in bytes."""
        words = Path("/proc", str(self.process.pid), "statm").read_text().split()
        return int(words[1]) * os.sysconf("SC_PAGE_SIZE")

    def assert_unharmed(self, *, nothing_left: bool = True) -> None:
        """Check that the daemon did not crash, reveal a secret, reach the canary or leave anything behind."""
        assert self.process.poll() is None, f"the daemon ended: {self.log[-20:]}"
        if nothing_left:
            self._assert_nothing_left()
        self.assert_quiet()

    def assert_quiet(self) -> None:
        """Check a daemon that can have exited for errors, leaked secrets and reached canaries."""
        fresh, self._read = self.log[self._read :], len(self.log)
        broken = [line for line in fresh if _is_failure(line, self.tolerated)]
        assert not broken, broken
        assert not self.scanner.found, self.scanner.found
        assert not self.canary.reached, self.canary.reached
        assert not self.canary.payload_file.exists(), "a payload ran"

    def _assert_nothing_left(self) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (more := self._more_than_before()) and time.monotonic() < deadline:
            time.sleep(0.02)
        before = self._baseline
        if more:
            self.record_baseline()  # otherwise, the next test would fail too
        assert not more, (more, before)

    def _more_than_before(self) -> Mapping[str, Json]:
        now, before = self.status(), self._baseline
        more = {name: now[name] for name in COUNTED if now[name] > before[name]}
        if set(now["pids"]) - set(before["pids"]):
            more["pids"] = now["pids"]
        if now["descriptors"] > before["descriptors"] + SPARE_DESCRIPTORS:
            more["descriptors"] = now["descriptors"]
        return more

    def _find_event(self, name: str, after: int) -> Json:
        for line in self.log[after:]:
            with suppress(orjson.JSONDecodeError):
                if (entry := orjson.loads(line)).get("event") == name:
                    return entry
        return None

    def _read_lines(self, stream: IO[bytes], handle: Callable[[bytes], None]) -> None:
        kept = b""
        for line in stream:
            kept = self.scanner.scan(kept, line)
            with self._output_changed:
                handle(line)
                self._output_changed.notify_all()
            if stream is self.process.stdout:
                self.is_reading.wait()
        with self._output_changed:
            self._has_ended = True
            self._output_changed.notify_all()

    def start_reading(self) -> None:
        """Read standard output and standard error in threads."""
        self.is_reading.set()
        handlers = {
            self.process.stderr: lambda line: self.log.append(line.decode(errors="replace")),
            self.process.stdout: self.lines.append,
        }
        for stream, handle in handlers.items():
            assert stream is not None
            thread = threading.Thread(target=self._read_lines, args=(stream, handle), daemon=True)
            thread.start()
            self._readers.append(thread)

    def settle(self) -> None:
        """Wait until the daemon listens, and record the baseline."""
        self._port = int(self.event("listening")["url"].split(":")[2].split("/")[0])
        self._tap = Tap(self._port, scanner=self.scanner)
        self.record_baseline()

    def record_baseline(self) -> None:
        self._baseline = self.status()

    def end(self) -> None:
        if self._tap is not None:
            self._tap.close()
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)
        self.is_reading.set()
        for reader in self._readers:
            reader.join(TIMEOUT_SECONDS)  # fails if a child process was left behind
            assert not reader.is_alive(), "a process still has the daemon's output"
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def _is_failure(line: str, tolerated: Container[str]) -> bool:
    """Return whether a line reports a crash or an unexpected error."""
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError:
        return "Traceback" in line or "Exception" in line or "Error" in line
    is_bad = entry.get("level") in {"error", "critical"} or "Traceback" in line or "was never" in line
    return is_bad and entry.get("event") not in tolerated


@contextmanager
def attacking(plan: Plan, folder: Path) -> Iterator[Target]:
    """Run a daemon with a plan in a directory. It must exit on SIGTERM."""
    served, outside = folder / "served", folder / "outside"
    served.mkdir()
    outside.mkdir()
    canary, backend = Canary(outside), Backend()
    seeds.write_files(served)
    (served / "main.yaml").write_text(_fill_in(plan.file, canary, backend))
    for name, text in plan.files.items():
        (served / name).parent.mkdir(parents=True, exist_ok=True)
        (served / name).write_text(_fill_in(text, canary, backend))
    target = Target(
        folder=served,
        canary=canary,
        backend=backend,
        operator=plan.operator,
        tolerated=set(plan.tolerated),
        process=_start(plan, served),
        scanner=Scanner(
            [
                *seeds.written_forms(),
                ("canary", canary.content.encode()),
                *(("a secret", each.encode()) for each in plan.secrets),
            ]
        ),
    )
    try:
        target.start_reading()
        target.settle()
        yield target
        target.process.send_signal(signal.SIGTERM)
        assert target.process.wait(TIMEOUT_SECONDS) == 0, target.log
        target.assert_quiet()
    finally:
        target.end()
        canary.close()
        backend.close()


def _fill_in(text: str, canary: Canary, backend: Backend) -> str:
    paths = {"canary": canary.file, "payload_file": canary.payload_file, "python": PYTHON}
    for name, value in {**paths, "port": canary.port, "backend": backend.url}.items():
        text = text.replace(f"@{name}@", str(value))
    return dedent(text)


def _start(plan: Plan, served: Path) -> "subprocess.Popen[bytes]":
    own = {name: value for name, value in os.environ.items() if not name.startswith("MCP_GATEWAY_")}
    flags = ["--http", "127.0.0.1:0", "--log-format", "json", *plan.flags]
    return subprocess.Popen(
        [FORKED, "serve", str(served), *flags, *(["--stdio"] if plan.is_stdio else [])],
        stdin=subprocess.PIPE if plan.is_stdio else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={
            **own,
            "MCP_GATEWAY_STATE_DIR": "none",
            **seeds.environment(unreachable="http://127.0.0.1:9"),
            **plan.environment,
        },
    )
