"""The attacked daemon: a real process with seeded secrets, all of whose output is searched."""

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
from tests.attacks.client import PATIENCE_SECONDS, Client, Fields
from tests.attacks.tap import Sieve, Tap
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
"""Of the status: what no attack may leave behind."""
LOG_SECONDS: Final = 60.0
"""How long a line of the log is waited for: a start takes long where others use the machine."""
PYTHON: Final = os.path.realpath(sys.executable)
"""An interpreter for commands. With -IS it imports no `site` and no packages, which takes longer than all the rest."""
SPARE_DESCRIPTORS: Final = 4
"""Descriptors that can be opened late and stay open, such as an idle connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to attack."""

    file: str
    """YAML, beside which `seeds.FILE` is read; `@canary@`, `@port@`, `@trophy@`, `@backend@` and `@python@` are filled
    in."""
    files: Mapping[str, str] = field(default_factory=empty)
    """More files, by their names."""
    flags: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=empty)
    operator: tuple[tuple[str, str], ...] = ()
    """Header fields that give access to the status if there is `auth`."""
    tolerated: frozenset[str] = frozenset()
    """See `Target.tolerated`."""
    secrets: Sequence[str] = ()
    """More that must never be sent or logged."""
    is_stdio: bool = False
    """Whether standard input and output are served, too."""


@dataclass(kw_only=True)
class Target:
    """The daemon and its surroundings. Belongs to no event loop, so that a whole file of tests may share it."""

    folder: Path
    canary: Canary
    backend: Backend
    operator: Fields
    process: "subprocess.Popen[bytes]"
    sieve: Sieve
    log: list[str] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    """Of standard output."""
    tolerated: set[str]
    """Log events of errors that a test causes on purpose, by failing plugins or files."""
    is_hearing: threading.Event = field(default_factory=threading.Event)
    """Cleared, standard output is not read: its pipe fills up."""
    _said: threading.Condition = field(default_factory=threading.Condition)
    _port: int = 0
    _tap: Tap | None = None
    _baseline: Mapping[str, Json] = field(default_factory=dict)
    _read: int = 0
    """Lines of the log that were judged."""
    _has_ended: bool = False
    _ears: list[threading.Thread] = field(default_factory=list)

    def _repr_pretty_(self, printer: Printer, _cycle: object) -> None:
        """What hypothesis shows of it, which is not the point."""
        printer.text("target")

    @property
    def client(self) -> Client:
        """Talks through the tap."""
        assert self._tap is not None
        return Client(port=self._tap.port)

    @property
    def direct(self) -> Client:
        """Talks to the daemon itself, where the tap would be in the way."""
        return Client(port=self._port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.client.port}/mcp"

    def event(self, name: str, *, after: int = 0) -> Json:
        """The first log line of that name, once there is one."""
        with self._said:
            found = self._said.wait_for(lambda: self._find(name, after) or self._has_ended, LOG_SECONDS)
        assert isinstance(found, dict), (name, self.log)
        return found

    def send_line(self, *lines: bytes | Json) -> None:
        assert self.process.stdin is not None
        for line in lines:
            self.process.stdin.write((line if isinstance(line, bytes) else orjson.dumps(line)) + b"\n")
        self.process.stdin.flush()

    def line_with(self, request_id: Json) -> Json:
        """The message on standard output that answers a request."""

        def find() -> Json:
            messages = map(orjson.loads, self.lines)
            singles = (message for message in messages if isinstance(message, dict))
            return next((message for message in singles if message.get("id") == request_id), None)

        with self._said:
            found = self._said.wait_for(lambda: find() or self._has_ended, PATIENCE_SECONDS)
        assert isinstance(found, dict), (request_id, self.lines, self.log)
        return found

    def status(self) -> JsonObject:
        """What there is of everything."""
        answer = self.direct.request("GET", "/-/status", fields=self.operator)
        assert answer.status == 200, answer
        process = Path("/proc", str(self.process.pid))
        pids = (process / "task" / str(self.process.pid) / "children").read_text().split()
        return {
            **{name: answer.json[name] for name in COUNTED},
            "pids": pids,
            "descriptors": len(os.listdir(process / "fd")),  # noqa: PTH208 - counts links, does not read them
        }

    def rss(self) -> int:
        """Bytes of memory in use."""
        words = Path("/proc", str(self.process.pid), "statm").read_text().split()
        return int(words[1]) * os.sysconf("SC_PAGE_SIZE")

    def assert_unharmed(self, *, nothing_left: bool = True) -> None:
        """Check that the daemon did not crash, reveal a secret, reach the canary or leave anything behind."""
        assert self.process.poll() is None, f"the daemon ended: {self.log[-20:]}"
        if nothing_left:
            self._assert_nothing_left()
        self.assert_quiet()

    def assert_quiet(self) -> None:
        """Check like `assert_unharmed`, for a daemon that may have ended."""
        fresh, self._read = self.log[self._read :], len(self.log)
        broken = [line for line in fresh if _is_failure(line, self.tolerated)]
        assert not broken, broken
        assert not self.sieve.found, self.sieve.found
        assert not self.canary.reached, self.canary.reached
        assert not self.canary.trophy.exists(), "a payload ran"

    def _assert_nothing_left(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (more := self._more_than_before()) and time.monotonic() < deadline:
            time.sleep(0.02)
        before = self._baseline
        if more:
            self.take_stock()  # the next test shall not pay for this one
        assert not more, (more, before)

    def _more_than_before(self) -> Mapping[str, Json]:
        now, before = self.status(), self._baseline
        more = {name: now[name] for name in COUNTED if now[name] > before[name]}
        if set(now["pids"]) - set(before["pids"]):
            more["pids"] = now["pids"]
        if now["descriptors"] > before["descriptors"] + SPARE_DESCRIPTORS:
            more["descriptors"] = now["descriptors"]
        return more

    def _find(self, name: str, after: int) -> Json:
        for line in self.log[after:]:
            with suppress(orjson.JSONDecodeError):
                if (entry := orjson.loads(line)).get("event") == name:
                    return entry
        return None

    def _hear(self, stream: IO[bytes], heard: Callable[[bytes], None]) -> None:
        kept = b""
        for line in stream:
            kept = self.sieve.sift(kept, line)
            with self._said:
                heard(line)
                self._said.notify_all()
            if stream is self.process.stdout:
                self.is_hearing.wait()
        with self._said:
            self._has_ended = True
            self._said.notify_all()

    def start_hearing(self) -> None:
        """Read both outputs, in threads that end with them."""
        self.is_hearing.set()
        ears = {
            self.process.stderr: lambda line: self.log.append(line.decode(errors="replace")),
            self.process.stdout: self.lines.append,
        }
        for stream, heard in ears.items():
            assert stream is not None
            thread = threading.Thread(target=self._hear, args=(stream, heard), daemon=True)
            thread.start()
            self._ears.append(thread)

    def settle(self) -> None:
        """Wait until it listens, let it open what it opens late, and take stock."""
        self._port = int(self.event("listening")["url"].split(":")[2].split("/")[0])
        self._tap = Tap(self._port, sieve=self.sieve)
        self.take_stock()

    def take_stock(self) -> None:
        """What there is now may stay."""
        self._baseline = self.status()

    def end(self) -> None:
        if self._tap is not None:
            self._tap.close()
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        self.is_hearing.set()
        for ear in self._ears:
            ear.join(PATIENCE_SECONDS)  # whatever held the outputs open was left behind
            assert not ear.is_alive(), "a process still has the daemon's output"
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
    """A daemon that serves `plan` from a directory; it must end by itself when it is told to."""
    served, outside = folder / "served", folder / "outside"
    served.mkdir()
    outside.mkdir()
    canary, backend = Canary(outside), Backend()
    seeds.write_files(served)
    (served / "main.yaml").write_text(_filled_in(plan.file, canary, backend))
    for name, text in plan.files.items():
        (served / name).parent.mkdir(parents=True, exist_ok=True)
        (served / name).write_text(_filled_in(text, canary, backend))
    target = Target(
        folder=served,
        canary=canary,
        backend=backend,
        operator=plan.operator,
        tolerated=set(plan.tolerated),
        process=_started(plan, served),
        sieve=Sieve(
            [
                *seeds.written_forms(),
                ("canary", canary.content.encode()),
                *(("a secret", each.encode()) for each in plan.secrets),
            ]
        ),
    )
    try:
        target.start_hearing()
        target.settle()
        yield target
        target.process.send_signal(signal.SIGTERM)
        assert target.process.wait(PATIENCE_SECONDS) == 0, target.log
        target.assert_quiet()
    finally:
        target.end()
        canary.close()
        backend.close()


def _filled_in(text: str, canary: Canary, backend: Backend) -> str:
    paths = {"canary": canary.file, "trophy": canary.trophy, "python": PYTHON}
    for name, value in {**paths, "port": canary.port, "backend": backend.url}.items():
        text = text.replace(f"@{name}@", str(value))
    return dedent(text)


def _started(plan: Plan, served: Path) -> "subprocess.Popen[bytes]":
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
