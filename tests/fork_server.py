"""A fork server: starts `mcp-gateway` as a fork of a process that has imported it.

Imports are most of what a start costs, and the suite starts some five hundred. A command whose first word is `FORKED`
becomes a child of the test's process as any other, with its own environment, directory and standard streams, and runs
`python -m gateway` from its first line; only its modules are there already, and `/proc/PID/cmdline` is the server's.
Tests of what comes before that line start `sys.executable` themselves. So does a `FORKED` with an option that only a
real start can have.

A `FORKED` differs from another command in three: in a session of its own, a terminal on standard input is the one that
Ctrl-C is typed on; descriptors of `pass_fds` are those from 3 on, handed over with LISTEN_PID (sd_listen_fds(3)); and
after threads, `atexit` and streams it exits at once, where an interpreter would free each object.

Why by `Popen._execute_child`: asyncio and `subprocess` both start through it, and all else of them stays as it is.
"""

import atexit
import ctypes
import fcntl
import gc
import inspect
import os
import runpy
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from importlib import import_module
from io import StringIO, TextIOWrapper
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, Final, TextIO

import orjson
from pydantic import BaseModel

import gateway
from tests.e2e.handover import FIRST, handing_over

FORKED: Final = "forked mcp-gateway"
WORKER: Final = "forked pytest worker"
"""The interpreter of pytest-xdist's workers: `tests/worker_server.py`."""
REAL: Final = (sys.executable, "-m", "gateway")
_PROJECT: Final = Path(__file__).parents[1]
_INTERPRETER: Final = ("PYTHON", "LC_", "LD_", "LANG", "MALLOC_", "OPENSSL_", "SSL_", "TZ")
"""What begins like this is read by an interpreter or a library as it starts."""
_MACHINES: Final = ("LANG", "PYTHONUNBUFFERED", "SSL_CERT_DIR", "SSL_CERT_FILE")
"""A child without one of these variables can be a fork of a process that has it. Python uses UTF-8 in both cases, a
fork reopens its streams, and the certificates are the machine's. Another server costs more than its few forks save."""
_UNUSUAL: Final = ("preexec_fn", "gids")
_MOST_PASSED: Final = 16
_UNUSED: Final = 100
"""Descriptors from here on are unused."""
_ROOM: Final = {"ROOM": 16_384 * "x"}
"""A variable in place of which a fork's own are to be seen in `/proc/PID/environ`. Each daemon reads all of these."""
_PIPES: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_CLONE_PARENT: Final = 0x8000
"""clone(2), its number for each kind of machine, and its flag."""
_NUMBER: Final = 4
"""Bytes of a process id, and of a length."""
_libc: Final = ctypes.PyDLL(None, use_errno=True)
"""With the interpreter's own functions; calls keep its lock."""


class ForkServer:
    """The process to fork, from the first order on; it ends with this one."""

    def __init__(self, environ: Mapping[str, str], *, module: str = "tests.fork_server") -> None:
        self.environ: Final = environ
        """Environment variables that its interpreter reads."""
        self._module: Final = module
        self._connection: socket.socket | None = None
        self._lock: Final = threading.Lock()

    def start(
        self, *, words: Sequence[str], environ: Mapping[str, str], folder: str, has_session: bool, passed: Sequence[int]
    ) -> int:
        """Start a child of this process and return its id; the first three that it is passed are its streams."""
        order = orjson.dumps({"words": words, "environ": environ, "folder": folder, "has_session": has_session})
        with self._lock:
            connection = self._connection = self._connection or self._connected()
            socket.send_fds(connection, [len(order).to_bytes(_NUMBER)], passed)
            connection.sendall(order)
            answer = connection.recv(_NUMBER)
        assert answer, "the fork server has ended"
        return int.from_bytes(answer)

    def _connected(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", self._module, str(theirs.fileno()), *sys.argv[1:]],
                cwd=_PROJECT,
                env={**self.environ, **_ROOM},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(process.wait)
        atexit.register(ours.close)  # before, which ends it
        return ours


def install() -> None:
    """Let each `Popen` of this process start what begins with `FORKED` by a fork."""
    original: Any = subprocess.Popen._execute_child  # type: ignore[attr-defined]
    signature = inspect.signature(original)
    common = dict(os.environ)
    machines: dict[str, str] = {name: common[name] for name in _MACHINES if name in common}
    servers = {_read_of(common): ForkServer(common)}
    workers = ForkServer(common, module="tests.worker_server")
    seen = set(servers)

    def execute_child(popen: Any, *given: Any) -> None:
        asked = signature.bind(popen, *given)
        arguments = asked.arguments
        words = [] if isinstance(arguments["args"], str) else [os.fsdecode(word) for word in arguments["args"]]
        if words[:1] not in ([FORKED], [WORKER]):
            original(popen, *given)
            return
        streams = [
            number if arguments[name] == -1 else arguments[name]
            for number, name in enumerate(("p2cread", "c2pwrite", "errwrite"))
        ]
        environ = dict(os.environ if arguments["env"] is None else arguments["env"])
        passed = list(arguments["pass_fds"])
        is_unusual = any(arguments[name] for name in _UNUSUAL) or len(passed) > _MOST_PASSED
        read = _read_of(machines | environ)
        if not is_unusual and read in seen and read not in servers:  # a server is made for what comes again
            servers[read] = ForkServer({**{name: common[name] for name in common if not _is_read(name)}, **dict(read)})
        if is_unusual or read not in servers:
            seen.add(read)
            real = handing_over(passed, *REAL, *words[1:]) if passed else (*REAL, *words[1:])
            arguments.update(args=list(real), executable=real[0])
            original(*asked.args)
            return
        folder = os.fspath(arguments["cwd"] or Path.cwd())
        popen.pid = (servers[read] if words[0] == FORKED else workers).start(
            words=words[1:],
            environ=environ,
            folder=folder,
            has_session=arguments["start_new_session"],
            passed=[*streams, *passed],
        )
        popen._child_created = True
        popen._close_pipe_fds(*(arguments[name] for name in _PIPES))

    subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]


def _read_of(environ: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """Return the variables that an interpreter has read once it runs."""
    return frozenset((name, value) for name, value in environ.items() if _is_read(name))


def _is_read(name: str) -> bool:
    return name.startswith(_INTERPRETER)


def serve(connection: socket.socket) -> None:
    """Fork for each order; return in a child that is ready to run, and exit with the connection."""
    while True:
        length, passed, *_ = socket.recv_fds(connection, _NUMBER, FIRST + _MOST_PASSED)
        if not length:
            sys.exit()
        order = orjson.loads(connection.recv(int.from_bytes(length), socket.MSG_WAITALL))
        pid = _fork_sibling()
        if pid == 0:
            connection.close()
            _take_on(order, passed)
            return
        for each in passed:
            os.close(each)
        connection.sendall(pid.to_bytes(_NUMBER))


def _fork_sibling() -> int:
    """Fork a child of this process's parent; return its id, and 0 in it.

    Like `os.fork`, with a flag that it does not support. The requester waits for the child, and a second fork, which
    would make it an orphan, costs as much as the rest of a start.
    """
    _libc.PyOS_BeforeFork()
    call = (_CLONE[os.uname().machine], _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    child = int(_libc.syscall(*(ctypes.c_long(each) for each in call)))
    if child == 0:
        _libc.PyOS_AfterFork_Child()
        return 0
    _libc.PyOS_AfterFork_Parent()
    if child < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return child


def _take_on(order: Any, passed: Sequence[int]) -> None:
    """Become the requested process, as far as `execve` would do it."""
    for number, source in enumerate([_moved_away(each) for each in passed]):
        os.dup2(source, number)
        os.close(source)
    if order["has_session"]:
        os.setsid()
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for name in ("stdin", "stdout", "stderr"):  # which remember whether they can seek
        setattr(sys, name, _reopened(getattr(sys, name)))
        setattr(sys, f"__{name}__", getattr(sys, name))
    os.environ.clear()
    os.environ.update(order["environ"])
    if handed_over := len(passed) - FIRST:
        os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(handed_over)}
    _show_environ()
    os.chdir(order["folder"])
    sys.path[0] = order["folder"]
    sys.argv[1:] = order["words"]
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _show_environ() -> None:
    """Let `/proc/PID/environ`, which is what a process was started with, show the variables that there are now."""
    if not Path("/proc/self/stat").exists():
        return
    begin, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[47:49])  # proc(5): env_start
    shown = b"".join(b"%b=%b\0" % each for each in os.environb.items())[: end - begin]
    ctypes.memmove(begin, shown.ljust(end - begin, b"\0"), end - begin)


def _moved_away(descriptor: int) -> int:
    """Move the descriptor out of the way."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD, _UNUSED)
    os.close(descriptor)
    return moved


def _reopened(stream: TextIO) -> TextIO:
    buffer = os.fdopen(stream.fileno(), "rb" if stream is sys.stdin else "wb", closefd=False)
    by_lines = stream is sys.stderr or buffer.isatty()
    return TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=by_lines)


def end(code: int) -> None:
    """Exit as the interpreter does, but leave the memory to the system: to free an object copies its page first.

    That took 80 ms of processor time, five times what else `--version` takes.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    with suppress(OSError):  # which is the interpreter's to report
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _own_modules() -> Iterator[str]:
    """Yield the names of the project's modules, including modules that a start imports because of files it reads."""
    for each in walk_packages(gateway.__path__, "gateway."):
        if not each.name.endswith("__main__"):
            yield each.name


def _models(parent: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in parent.__subclasses__():
        yield model
        yield from _models(model)


if __name__ == "__main__":
    from gateway.config.models.base import Model
    from gateway.config.models.document import Document
    from gateway.config.reading.interpolation import section_uses

    cli = import_module("gateway.cli")
    for module in ("jsonschema", *_own_modules()):
        import_module(module)
    for model in _models(Model):
        model.model_rebuild()  # what pydantic defers until the first value is validated
    for section in Document.model_fields:
        section_uses(section)  # derived from them when the first file has it
    # Fills the caches of the first command (metaschema, abstract classes, patterns, bytecode): a fifth of each start.
    with redirect_stderr(StringIO()):
        assert not cli.main(["validate", str(_PROJECT / "config/examples/tested-tools.yaml")])
    gc.freeze()  # else the collection at each child's exit would copy every page
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which is for who runs the tests
    serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        runpy.run_module("gateway", run_name="__main__", alter_sys=True)
    except SystemExit as exit_:
        if isinstance(exit_.code, int):
            end(exit_.code)
        raise
