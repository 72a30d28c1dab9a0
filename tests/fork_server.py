"""A fork server: starts `mcp-gateway` as a fork of a process that has imported it.

The suite starts about five hundred daemons and commands, and most of the start time is spent on imports. A command
whose first word is `FORKED` becomes a child of the test process, with its own environment, directory and streams. It
runs `python -m gateway` with all modules already imported. `/proc/PID/cmdline` is that of the server. Commands with
options that a fork does not support are started as real processes (`REAL`). Tests of the imports use `sys.executable`.

A forked command differs from a real one in three ways:

- With `start_new_session`, a terminal on standard input becomes its controlling terminal.
- The descriptors of `pass_fds` become 3, 4, …, and are announced with LISTEN_PID and LISTEN_FDS (sd_listen_fds(3)).
- It exits without freeing objects, after threads, `atexit` functions and streams have ended.

`Popen._execute_child` is replaced because both asyncio and `subprocess` use it.
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
"""Used as the interpreter of pytest-xdist's workers. See `tests/worker_server.py`."""
REAL: Final = (sys.executable, "-m", "gateway")
_PROJECT: Final = Path(__file__).parents[1]
_STARTUP_PREFIXES: Final = ("PYTHON", "LC_", "LD_", "LANG", "MALLOC_", "OPENSSL_", "SSL_", "TZ")
"""Prefixes of variables that an interpreter or a library reads when it starts."""
_IGNORED_VARIABLES: Final = ("LANG", "PYTHONUNBUFFERED", "SSL_CERT_DIR", "SSL_CERT_FILE")
"""Startup variables that a child without them can inherit from its server without a difference in behaviour."""
_UNSUPPORTED_OPTIONS: Final = ("preexec_fn", "gids")
_MAX_PASSED_DESCRIPTORS: Final = 16
_FIRST_UNUSED_DESCRIPTOR: Final = 100
_PADDING: Final = {"PADDING": 16_384 * "x"}
"""Reserves the memory of `/proc/PID/environ`, which `_show_environ` overwrites with the variables of a fork."""
_PIPES: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_CLONE_PARENT: Final = 0x8000
"""The system call clone(2) per architecture, and its flag."""
_INTEGER_BYTES: Final = 4
"""The size of process ids and lengths in messages."""
_libc: Final = ctypes.PyDLL(None, use_errno=True)
"""The C library and the interpreter's functions. Calls hold the interpreter lock."""


class ForkServer:
    """Starts the server process on the first request. The process ends with this one."""

    def __init__(self, environ: Mapping[str, str], *, module: str = "tests.fork_server") -> None:
        self.environ: Final = environ
        """The environment of the server process."""
        self._module: Final = module
        self._connection: socket.socket | None = None
        self._lock: Final = threading.Lock()

    def start(
        self, *, words: Sequence[str], environ: Mapping[str, str], folder: str, has_session: bool, passed: Sequence[int]
    ) -> int:
        """Start a child of this process and return its id. `passed` starts with its three standard streams."""
        request = orjson.dumps({"words": words, "environ": environ, "folder": folder, "has_session": has_session})
        with self._lock:
            connection = self._connection = self._connection or self._connect()
            socket.send_fds(connection, [len(request).to_bytes(_INTEGER_BYTES)], passed)
            connection.sendall(request)
            response = connection.recv(_INTEGER_BYTES)
        assert response, "the fork server has ended"
        return int.from_bytes(response)

    def _connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", self._module, str(theirs.fileno()), *sys.argv[1:]],
                cwd=_PROJECT,
                env={**self.environ, **_PADDING},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(process.wait)
        atexit.register(ours.close)  # runs first, and ends the process
        return ours


def install() -> None:
    """Make every `Popen` of this process fork commands that start with `FORKED`."""
    original: Any = subprocess.Popen._execute_child  # type: ignore[attr-defined]
    signature = inspect.signature(original)
    common = dict(os.environ)
    ignored: dict[str, str] = {name: common[name] for name in _IGNORED_VARIABLES if name in common}
    servers = {_startup_variables(common): ForkServer(common)}
    workers = ForkServer(common, module="tests.worker_server")
    seen = set(servers)

    def execute_child(popen: Any, *positional: Any) -> None:
        bound = signature.bind(popen, *positional)
        arguments = bound.arguments
        words = [] if isinstance(arguments["args"], str) else [os.fsdecode(word) for word in arguments["args"]]
        if words[:1] not in ([FORKED], [WORKER]):
            original(popen, *positional)
            return
        streams = [
            number if arguments[name] == -1 else arguments[name]
            for number, name in enumerate(("p2cread", "c2pwrite", "errwrite"))
        ]
        environ = dict(os.environ if arguments["env"] is None else arguments["env"])
        passed = list(arguments["pass_fds"])
        has_unsupported = any(arguments[name] for name in _UNSUPPORTED_OPTIONS)
        is_real = has_unsupported or len(passed) > _MAX_PASSED_DESCRIPTORS
        key = _startup_variables(ignored | environ)
        if not is_real and key in seen and key not in servers:  # a server only pays off at the second use
            others = {name: value for name, value in common.items() if not name.startswith(_STARTUP_PREFIXES)}
            servers[key] = ForkServer({**others, **dict(key)})
        if is_real or key not in servers:
            seen.add(key)
            real = handing_over(passed, *REAL, *words[1:]) if passed else (*REAL, *words[1:])
            arguments.update(args=list(real), executable=real[0])
            original(*bound.args)
            return
        folder = os.fspath(arguments["cwd"] or Path.cwd())
        popen.pid = (servers[key] if words[0] == FORKED else workers).start(
            words=words[1:],
            environ=environ,
            folder=folder,
            has_session=arguments["start_new_session"],
            passed=[*streams, *passed],
        )
        popen._child_created = True
        popen._close_pipe_fds(*(arguments[name] for name in _PIPES))

    subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]


def _startup_variables(environ: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in environ.items() if name.startswith(_STARTUP_PREFIXES))


def serve(connection: socket.socket) -> None:
    """Fork for each request. Returns only in the children, and exits when the connection is closed."""
    while True:
        length, passed, *_ = socket.recv_fds(connection, _INTEGER_BYTES, FIRST + _MAX_PASSED_DESCRIPTORS)
        if not length:
            sys.exit()
        request = orjson.loads(connection.recv(int.from_bytes(length), socket.MSG_WAITALL))
        pid = _fork_sibling()
        if pid == 0:
            connection.close()
            _set_up(request, passed)
            return
        for each in passed:
            os.close(each)
        connection.sendall(pid.to_bytes(_INTEGER_BYTES))


def _fork_sibling() -> int:
    """Fork a child of this process's parent, which waits for the child. Return its id, or 0 in the child.

    `os.fork` does not support the flag CLONE_PARENT. A double fork would be slower, and would make the child an orphan.
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


def _set_up(request: Any, passed: Sequence[int]) -> None:
    """Set streams, environment, directory and arguments of the forked process, as `execve` would."""
    for number, source in enumerate([_move_descriptor(each) for each in passed]):
        os.dup2(source, number)
        os.close(source)
    if request["has_session"]:
        os.setsid()
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for name in ("stdin", "stdout", "stderr"):  # stream objects remember whether they can seek
        setattr(sys, name, _reopen(getattr(sys, name)))
        setattr(sys, f"__{name}__", getattr(sys, name))
    os.environ.clear()
    os.environ.update(request["environ"])
    if handed_over := len(passed) - FIRST:
        os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(handed_over)}
    _show_environ()
    os.chdir(request["folder"])
    sys.path[0] = request["folder"]
    sys.argv[1:] = request["words"]
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _show_environ() -> None:
    """Overwrite `/proc/PID/environ`, which shows the initial environment, with the current variables."""
    if not Path("/proc/self/stat").exists():
        return
    begin, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[47:49])  # proc(5): env_start
    shown = b"".join(b"%b=%b\0" % each for each in os.environb.items())[: end - begin]
    ctypes.memmove(begin, shown.ljust(end - begin, b"\0"), end - begin)


def _move_descriptor(descriptor: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD, _FIRST_UNUSED_DESCRIPTOR)
    os.close(descriptor)
    return moved


def _reopen(stream: TextIO) -> TextIO:
    buffer = os.fdopen(stream.fileno(), "rb" if stream is sys.stdin else "wb", closefd=False)
    by_lines = stream is sys.stderr or buffer.isatty()
    return TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=by_lines)


def end(code: int) -> None:
    """Exit without freeing objects, which would copy their shared pages (80 ms of CPU time)."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    with suppress(OSError):  # the interpreter reports the error at its exit
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _own_modules() -> Iterator[str]:
    """Yield the names of all modules of the project, including modules that only some configurations need."""
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
        model.model_rebuild()  # pydantic would do this at the first validation
    for section in Document.model_fields:
        section_uses(section)  # computed and cached at the first use of a section
    # Fill caches (metaschemas, abstract classes, patterns, bytecode), which saves a fifth of each start.
    with redirect_stderr(StringIO()):
        assert not cli.main(["validate", str(_PROJECT / "config/examples/tested-tools.yaml")])
    gc.freeze()  # otherwise, garbage collection at the exit of each child would copy all pages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the process that runs the tests
    serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        runpy.run_module("gateway", run_name="__main__", alter_sys=True)
    except SystemExit as exit_:
        if isinstance(exit_.code, int):
            end(exit_.code)
        raise
