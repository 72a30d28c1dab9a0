"""Sandboxes of children: `shell.sandbox`, as a command line of bubblewrap (bwrap(1)).

Threats answered here: a command, tricked by its arguments or by what it reads, that reaches the network, reads what is
nobody's business (homes, keys, secrets under /run, the configuration), changes what it should not, looks at other
processes, or gains rights.

What is visible is listed, and nothing else is there:

1. programs and libraries: /usr, /bin, /sbin, /lib*, and the stores of Nix and Guix, read-only;
2. of /etc only what programs need to run: `_SETTINGS`, read-only;
3. the program where the command names it by a path, and a script with its inputs, read-only;
4. a `cwd` that is written in the file, without expressions, read-only, unless it is `/`;
5. the paths under `readable`, read-only, and those under `writable`;
6. a /proc that knows the sandbox's processes alone, a /dev without devices, and a /tmp of the call's own, which is
   HOME and TMPDIR, too.

Its processes have a user namespace in which they are nobody but themselves: no capabilities, no new privileges, and no
way to more namespaces. They are in namespaces of their own for processes, IPC, host name, cgroups and, unless
`network` is true, the network. They die with the daemon. A session of its own every child has (see `process_tree`).

Not answered here: system calls are not filtered (no seccomp), so that the whole of the kernel is in reach; a file that
is left under `writable` may be set-user-ID, which has no effect inside and gives its owner's rights outside; and with
`network: true` come the abstract sockets of Unix, which belong to the network's namespace (unix(7)).
"""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import exists, is_directory, is_file, program_path
from gateway.config.models.backends import Sandbox as SandboxConfig
from gateway.executors.shell.sandbox_probe import sandbox_problem

_PRIVATE: Final = "/tmp"  # noqa: S108 - the sandbox's own
"""The directory that belongs to the call."""
_PRIVATE_NAMES: Final = ("TMPDIR", "HOME")
"""Variables that lead there, where the file does not set them."""

_PROGRAM: Final = "bwrap"
_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/nix/store", "/gnu/store"),
)
_SETTINGS: Final = (
    # the loader, and what stands behind names in /usr/bin
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-x86_64.path", "ld-musl-aarch64.path", "alternatives"),
    # names of users, hosts and services
    *("passwd", "group", "nsswitch.conf", "hosts", "host.conf", "gai.conf", "services", "protocols", "networks"),
    # time, language, types of files, terminals, letters
    *("localtime", "timezone", "locale.conf", "locale.alias", "mime.types", "magic", "magic.mime", "terminfo", "fonts"),
    # whom to trust; never private keys
    *("ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust"),
)
"""Under /etc."""
_NETWORK_SETTINGS: Final = ("resolv.conf",)
_OWN_FOR_GOOD: Final = ("/proc", "/dev")
"""Every sandbox has its own, and nothing else below it."""

_ISOLATION: Final = (
    *("--unshare-user", "--disable-userns", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL", "--die-with-parent"),
)


class CompiledSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled sandbox."""

    base: tuple[str, ...]
    """The arguments of bubblewrap that are the same in each call."""
    visible: frozenset[str]
    """The paths that each call sees, with everything below them."""
    home: str
    """The working directory of commands that have no `cwd`; it is there, though what it holds is not."""

    def before(self, *, program: str, directory: str, folder: str | None) -> list[str]:
        """Return the words that stand before a command that runs inside, in `directory`.

        `folder` is the call's own directory outside, if there is one.
        """
        arguments = list(self.base)
        if folder is not None and not self._shows(folder):
            arguments += _shown(folder)
        place = os.path.normpath(Path(directory, program))
        if "/" in program and not self._shows(place) and is_file(place):
            arguments += _shown(place)
        if os.path.normpath(directory) == self.home and not self._shows(self.home):
            # Read-only in a /tmp of the call's own, too: what was written there would be lost unseen.
            arguments += ("--dir", directory, "--chmod", "0555", directory)
        # The root is a tmpfs (bwrap(1)) that `tmp_size` does not bound: read-only once all mount points are in it.
        return [*arguments, "--remount-ro", "/", "--chdir", directory, "--"]

    def _shows(self, path: str) -> bool:
        return _is_shown(path, self.visible)


def compile_sandbox(
    config: SandboxConfig | None, *, cwd: str | None, env: Collection[str], problems: Problems
) -> CompiledSandbox | None:
    """Make the sandbox ready; None without one, and where there can be none, which is then reported.

    `cwd` is the working directory if it is written in the file, without expressions; `env` are the variables that the
    file sets.
    """
    if config is None:
        return None
    home = _absolute("", problems)
    system = dict(_system(network=config.network))
    # Without the entry's own places, so that one answer serves all sandboxes of its kind.
    if problem := sandbox_problem(_base(system.items(), SandboxConfig(network=config.network))):
        problems.error(problem)
        return None
    program = program_path(_PROGRAM) or _PROGRAM  # not by the PATH of the command, which may lead to what it wrote
    writable = _places(config.writable, problems.at("writable"))
    _check_writable(writable, home=home, problems=problems.at("writable"))
    readable = _places(config.readable, problems.at("readable"))
    _check_nesting(readable, writable, problems=problems.at("readable"))
    readable += [path for path in _directory(cwd, problems) if not _is_shown(path, {*readable, *writable})]
    # Only the wider one of two that would be in each other's way.
    system = {path: mount for path, mount in system.items() if not _covered(path, readable)}
    readable = [path for path in readable if not _covered(path, system)]
    mounts = [
        *system.items(),
        *((path, _shown(path)) for path in readable),
        *((path, ("--bind", path, path)) for path in writable),
    ]
    visible = frozenset(path for path, _ in mounts)
    variables = [word for name in _PRIVATE_NAMES if name not in env for word in ("--setenv", name, _PRIVATE)]
    return CompiledSandbox(base=(program, *_base(mounts, config)[1:], *variables), visible=visible, home=home)


def _check_writable(writable: Sequence[str], *, home: str, problems: Problems) -> None:
    if "/" in writable:
        problems.error("a sandbox in which everything can be written is none; name what is needed")
    elif _covered(home, writable):
        problems.warning("holds this file's own directory: what runs inside can rewrite the file")
    for place in writable:
        if os.geteuid() == 0 and _honours_set_user_id(place):
            why = "may leave a set-user-ID program there, with which any user of this machine becomes root"
            problems.warning(f"what may write to `{place}` {why}; mount it nosuid, or run the daemon as another user")


def _honours_set_user_id(place: str) -> bool:
    """Whether it does outside: inside, bubblewrap mounts each place nosuid."""
    try:
        return not os.statvfs(place).f_flag & os.ST_NOSUID
    except OSError:
        return False


def _check_nesting(readable: Sequence[str], writable: Sequence[str], *, problems: Problems) -> None:
    """Refuse a readable place whose parent could be moved, and a link to anywhere put where it was for the next call.

    Right below a writable place it is held by being mounted there.
    """
    for path in readable:
        for place in writable:
            if _covered(path, [place]) and len(Path(path).parts) > len(Path(place).parts) + 1:
                problems.error(f"`{path}` lies deep in the writable `{place}`: what runs inside could put a link there")


def _directory(cwd: str | None, problems: Problems) -> list[str]:
    """A working directory that is to be seen."""
    if cwd is None or not is_directory(place := _absolute(cwd, problems)):
        return []
    return [] if place in {"/", _PRIVATE} or _covered(place, _OWN_FOR_GOOD) else [place]


_Mount = tuple[str, Sequence[str]]
"""A path in the sandbox, and the arguments that create it."""


def _base(mounts: Iterable[_Mount], config: SandboxConfig) -> tuple[str, ...]:
    """The arguments, outer places before those inside them."""
    placed = sorted([*mounts, *_own(str(config.tmp_size))], key=lambda mount: len(Path(mount[0]).parts))
    apart = () if config.network else ("--unshare-net",)
    return (_PROGRAM, *_ISOLATION, *apart, *(argument for _, arguments in placed for argument in arguments))


def _own(room: str) -> Iterator[_Mount]:
    # Read-only as a whole: to the owner of its files, which root is in every sandbox of root's, the kernel's settings
    # under /proc/sys would be writable without any capability.
    yield "/proc", ("--proc", "/proc", "--remount-ro", "/proc")
    shared = "/dev/shm"  # noqa: S108 - the sandbox's own
    yield "/dev", ("--dev", "/dev", "--size", room, "--tmpfs", shared, "--remount-ro", "/dev")
    yield _PRIVATE, ("--perms", "1777", "--size", room, "--tmpfs", _PRIVATE)


def _system(*, network: bool) -> tuple[_Mount, ...]:
    return tuple(_system_mounts(network=network))


def _system_mounts(*, network: bool) -> Iterator[_Mount]:
    for path in _SYSTEM:
        if Path(path).is_symlink():
            # Where /usr is merged, /bin and /lib are links into it, and stay links.
            yield path, ("--symlink", str(Path(path).readlink()), path)
        elif Path(path).is_dir():
            yield path, _shown(path)
    for name in (*_SETTINGS, *(_NETWORK_SETTINGS if network else ())):
        if Path(path := f"/etc/{name}").exists():
            yield path, _shown(path)


def _shown(path: str) -> tuple[str, str, str]:
    return "--ro-bind", path, path


def _places(paths: Sequence[str], problems: Problems) -> list[str]:
    """Return the paths, absolute; a path that cannot be shown is reported."""
    places = []
    for index, path in enumerate(paths):
        place = _absolute(path, problems)
        if place == _PRIVATE or _covered(place, _OWN_FOR_GOOD):
            problems.at(index).error("a sandbox has its own /proc, /dev and /tmp")
        elif not exists(place):
            problems.at(index).error(f"there is no `{path}`")
        else:
            places.append(place)
    return places


def _absolute(path: str, problems: Problems) -> str:
    return os.path.normpath(problems.directory / path)


def _is_shown(path: str, places: Collection[str]) -> bool:
    """Whether a path is there because of one of the places; `/` does not bring what lies under the private one."""
    if _covered(path, [_PRIVATE]):
        places = [place for place in places if _covered(place, [_PRIVATE])]
    return _covered(path, places)


def _covered(path: str, places: Collection[str]) -> bool:
    """Whether a path is one of the places, or below one."""
    return any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in places)
