"""Compiles sandboxes of child processes (`shell.sandbox`) to command lines of bubblewrap (bwrap(1)).

Threats: a command that uses the network, reads private files (homes, keys, /run, the configuration), changes files,
inspects other processes, or gains privileges.

A sandboxed command can see only:

1. read-only, programs and libraries: /usr, /bin, /sbin, /lib*, and the stores of Nix and Guix
2. read-only, the files of /etc in `_SETTINGS`
3. read-only, a program that is named by a path, and a script with its inputs
4. read-only, the `cwd`, if it contains no expressions and is not `/`
5. the paths in `readable` (read-only) and `writable`
6. a /proc with the sandbox's processes only, a /dev without devices, and a private /tmp, also as HOME and TMPDIR

Processes run in new namespaces for users, processes, IPC, host name, cgroups and, without `network: true`, the network.
Sandboxed processes have no capabilities, cannot gain privileges or create user namespaces, and end with the daemon.

Not covered: system calls are not filtered (no seccomp). A file under `writable` can be set-user-ID, which has an effect
only outside the sandbox. With `network: true`, abstract Unix sockets of the host are reachable (unix(7)).
"""

import os
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import exists, is_directory, is_file
from gateway.config.models.backends import Sandbox as SandboxConfig
from gateway.platform_facilities import IS_LINUX

_PRIVATE: Final = "/tmp"  # noqa: S108 - the sandbox's own
_PRIVATE_NAMES: Final = ("TMPDIR", "HOME")
"""Environment variables with the value `_PRIVATE`, unless the configuration sets them."""

_PROGRAM: Final = "bwrap"
_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/nix/store", "/gnu/store"),
)
_SETTINGS: Final = (
    # the loader, and links in /usr/bin
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-x86_64.path", "ld-musl-aarch64.path", "alternatives"),
    # names of users, hosts and services
    *("passwd", "group", "nsswitch.conf", "hosts", "host.conf", "gai.conf", "services", "protocols", "networks"),
    # time, language, file types, terminals, fonts
    *("localtime", "timezone", "locale.conf", "locale.alias", "mime.types", "magic", "magic.mime", "terminfo", "fonts"),
    # certificates, but no private keys
    *("ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust"),
)
_RESERVED: Final = ("/proc", "/dev")
"""Every sandbox has its own /proc and /dev, so nothing can be mounted below these directories."""

_ISOLATION: Final = (
    *("--unshare-user", "--disable-userns", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL", "--die-with-parent"),
)


class CompiledSandbox(msgspec.Struct, frozen=True, kw_only=True):
    base: tuple[str, ...]
    """The arguments of bubblewrap that all calls share."""
    visible: frozenset[str]
    home: str
    """The default working directory, which is an empty directory inside the sandbox."""

    def wrapper(self, *, program: str, directory: str, folder: str | None) -> list[str]:
        """Return the command line that precedes a command. `folder` is the scratch directory of the call, if any."""
        arguments = list(self.base)
        if folder is not None and not _is_shown(folder, self.visible):
            arguments += _shown(folder)
        place = os.path.normpath(Path(directory, program))
        if "/" in program and not _is_shown(place, self.visible) and is_file(place):
            arguments += _shown(place)
        if os.path.normpath(directory) == self.home and not _is_shown(self.home, self.visible):
            # Make the directory read-only, because files written there would be lost.
            arguments += ("--dir", directory, "--chmod", "0555", directory)
        # Make the root read-only: it is a tmpfs without the size limit (bwrap(1)).
        return [*arguments, "--remount-ro", "/", "--chdir", directory, "--"]


def compile_sandbox(
    config: SandboxConfig | None, *, cwd: str | None, env: Collection[str], problems: Problems
) -> CompiledSandbox | None:
    """Compile the sandbox, or report a problem if sandboxes do not work on this machine.

    `cwd` is None if the working directory contains expressions. `env` contains the names of configured variables.
    """
    if config is None:
        return None
    home = _absolute("", problems)
    system = dict(_system_mounts(network=config.network))
    # Test a sandbox without the backend's paths, so that one cached result covers all sandboxes.
    program = shutil.which(_PROGRAM)  # not from the command's PATH, where other users could place files
    problem = sandbox_problem(program, _base(system.items(), SandboxConfig(network=config.network)))
    if problem is not None or program is None:
        problems.error(problem or "")
        return None
    writable = _places(config.writable, problems.at("writable"))
    _check_writable(writable, home=home, problems=problems.at("writable"))
    readable = _places(config.readable, problems.at("readable"))
    _check_nesting(readable, writable, problems=problems.at("readable"))
    readable += [path for path in _directory(cwd, problems) if not _is_shown(path, {*readable, *writable})]
    # Keep only the outer path if two overlap.
    system = {path: mount for path, mount in system.items() if not _covered(path, readable)}
    readable = [path for path in readable if not _covered(path, system)]
    mounts = [
        *system.items(),
        *((path, _shown(path)) for path in readable),
        *((path, ("--bind", path, path)) for path in writable),
    ]
    visible = frozenset(path for path, _ in mounts)
    variables = [word for name in _PRIVATE_NAMES if name not in env for word in ("--setenv", name, _PRIVATE)]
    return CompiledSandbox(base=(program, *_base(mounts, config), *variables), visible=visible, home=home)


def _check_writable(writable: Sequence[str], *, home: str, problems: Problems) -> None:
    if "/" in writable:
        problems.error("`/` makes everything writable. List only the paths that the command needs")
    elif _covered(home, writable):
        problems.warning("contains the configuration file's directory, so the command can change the configuration")
    for place in writable:
        if os.geteuid() == 0 and _allows_set_user_id(place):
            problems.warning(
                f"the command can create a set-user-ID program in `{place}`, which runs as root for any user. Mount"
                " it with nosuid, or run the daemon as another user"
            )


def _allows_set_user_id(place: str) -> bool:
    # Checks the mount outside the sandbox. Inside the sandbox, bubblewrap mounts with nosuid.
    try:
        return not os.statvfs(place).f_flag & os.ST_NOSUID
    except OSError:
        return False


def _check_nesting(readable: Sequence[str], writable: Sequence[str], *, problems: Problems) -> None:
    """Reject a readable path whose parent is writable, because the command could replace the parent with a link."""
    for path in readable:
        for place in writable:
            if _covered(path, [place]) and len(Path(path).parts) > len(Path(place).parts) + 1:
                problems.error(
                    f"`{path}` is not directly in the writable `{place}`, so the command could replace its parent"
                )


def _directory(cwd: str | None, problems: Problems) -> list[str]:
    """Return the working directory in a list, which is empty if the directory need not be mounted."""
    if cwd is None or not is_directory(place := _absolute(cwd, problems)):
        return []
    return [] if place in {"/", _PRIVATE} or _covered(place, _RESERVED) else [place]


_Mount = tuple[str, Sequence[str]]
"""A path in the sandbox, and the bubblewrap arguments that create this path."""


def _base(mounts: Iterable[_Mount], config: SandboxConfig) -> tuple[str, ...]:
    placed = sorted([*mounts, *_own(str(config.tmp_size))], key=lambda mount: len(Path(mount[0]).parts))
    apart = () if config.network else ("--unshare-net",)
    return (*_ISOLATION, *apart, *(argument for _, arguments in placed for argument in arguments))


def _own(room: str) -> Iterator[_Mount]:
    # Mount /proc read-only, because root owns /proc/sys and could write there without any capability.
    yield "/proc", ("--proc", "/proc", "--remount-ro", "/proc")
    shared = "/dev/shm"  # noqa: S108 - the sandbox's own
    yield "/dev", ("--dev", "/dev", "--size", room, "--tmpfs", shared, "--remount-ro", "/dev")
    yield _PRIVATE, ("--perms", "1777", "--size", room, "--tmpfs", _PRIVATE)


def _system_mounts(*, network: bool) -> Iterator[_Mount]:
    for path in _SYSTEM:
        if Path(path).is_symlink():
            # With a merged /usr, /bin and /lib are links.
            yield path, ("--symlink", str(Path(path).readlink()), path)
        elif Path(path).is_dir():
            yield path, _shown(path)
    for name in (*_SETTINGS, *(("resolv.conf",) if network else ())):
        if Path(path := f"/etc/{name}").exists():
            yield path, _shown(path)


def _shown(path: str) -> tuple[str, str, str]:
    return "--ro-bind", path, path


def _places(paths: Sequence[str], problems: Problems) -> list[str]:
    places = []
    for index, path in enumerate(paths):
        place = _absolute(path, problems)
        if place == _PRIVATE or _covered(place, _RESERVED):
            problems.at(index).error("must not be in /proc, /dev or /tmp, because a sandbox has its own")
        elif not exists(place):
            problems.at(index).error(f"`{path}` does not exist")
        else:
            places.append(place)
    return places


def _absolute(path: str, problems: Problems) -> str:
    return os.path.normpath(problems.directory / path)


def _is_shown(path: str, places: Collection[str]) -> bool:
    """Return whether a path is visible below one of `places`. The host's /tmp stays hidden if `/` is mounted."""
    if _covered(path, [_PRIVATE]):
        places = [place for place in places if _covered(place, [_PRIVATE])]
    return _covered(path, places)


def _covered(path: str, places: Collection[str]) -> bool:
    return any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in places)


@lru_cache(maxsize=16)  # a configuration can have hundreds of sandboxes of the same kind
def sandbox_problem(program: str | None, options: tuple[str, ...]) -> str | None:
    """Return why bubblewrap cannot create a sandbox with these options, or None. This function blocks.

    Clear the cache before a reload, because kernel settings can have changed.
    """
    if not IS_LINUX:
        return "sandboxes require Linux"
    if program is None:
        return (
            "requires the program `bwrap`, which is not installed. Install the package bubblewrap (apt-get, dnf or apk)"
        )
    # Run `true` as the first process of the sandbox, so that no other process remains.
    code, said = _run([program, *options, "--as-pid-1", "--", "true"])
    return None if code == 0 else f"bubblewrap cannot create a sandbox ({said or f'exit code {code}'}). {_REMEDY}"


def _run(argv: Sequence[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=10,
            check=False,
            start_new_session=True,
        )
    except OSError as error:
        return -1, error.strerror or str(error)
    except subprocess.TimeoutExpired:
        return -1, "it did not finish within 10 s"
    return done.returncode, " ".join(done.stdout.decode(errors="replace").split()).removeprefix("bwrap: ")[:200]


_REMEDY: Final = (
    "It requires bubblewrap 0.8 or later and user namespaces. The kernel settings user.max_user_namespaces,"
    " kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns can disable them. In a"
    " container, the runtime must allow user namespaces and mounts (seccomp, AppArmor)"
)
