"""Whether a tool's backend does what cannot be undone, by the looks of what it runs. Pure.

Why a short table: clients ask their user before a tool that says it is destructive. A program that is missed costs one
question; one that is named wrongly costs the operator's trust in all other warnings.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from gateway.config.backends import Conditional, Http, Shell
from gateway.config.primitives import Tool

_ALWAYS: Final[tuple[frozenset[str], ...]] = (frozenset(),)


def _any(*words: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(each.split()) for each in words)


_PROGRAMS: Final[Mapping[str, tuple[frozenset[str], ...]]] = {
    **dict.fromkeys(
        ("rm", "unlink", "shred", "wipefs", "mkfs", "shutdown", "reboot", "poweroff", "halt", "dropdb", "dropuser"),
        _ALWAYS,
    ),
    **dict.fromkeys(("userdel", "groupdel", "deluser", "lvremove", "vgremove", "pvremove"), _ALWAYS),
    **dict.fromkeys(("docker", "podman"), _any("rm", "rmi", "prune")),
    **dict.fromkeys(("gcloud", "az", "gh", "glab", "oc"), _any("delete")),
    **dict.fromkeys(("terraform", "tofu", "pulumi", "zfs", "zpool"), _any("destroy")),
    "crontab": _any("-r"),
    "find": _any("-delete"),
    "git": _any(
        "push --force", "push -f", "push --force-with-lease", "push --delete", "push --mirror", "reset --hard", "clean"
    ),
    "helm": _any("delete", "uninstall"),
    "kubectl": _any("delete", "drain"),
    "redis-cli": _any("flushall", "flushdb"),
    "systemctl": _any("poweroff", "reboot", "halt"),
}
"""Program → the words with which it destroys something, any of the sets; an empty set is met by itself."""

_STARTERS: Final = frozenset(
    (
        *("command", "doas", "env", "exec", "ionice", "nice", "nohup", "setsid", "stdbuf", "sudo", "time", "timeout"),
        "xargs",
    )
)
"""Programs that run another, which stands among their arguments."""
_SHELLS: Final = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox"))
_SQL: Final = re.compile(
    r"\b(DROP\s+(?:TABLE|DATABASE|SCHEMA|VIEW|INDEX|USER|ROLE)|TRUNCATE\s+TABLE|DELETE\s+FROM)\b", re.IGNORECASE
)
_COMMANDS: Final = re.compile(r"[;&|(){}\n`]|\$\(|\b(?:then|do|else|if|while|until)(?=\s)")
"""What stands between the commands of a script."""
_SCRATCH: Final = re.compile(r"te?mp", re.IGNORECASE)
"""What a script makes for itself it may take away again."""


def destruction_in(config: Tool) -> str | None:
    """Say what a tool does that cannot be undone; None if nothing looks like it."""
    if config.http is not None:
        return "sends DELETE" if config.http.method == "DELETE" else None
    if config.shell is None:
        return None
    found = next(_of_shell(config.shell), None)
    return None if found is None else f"runs `{found}`"


def changes(http: Http | None) -> str | None:
    """The method of a request that is not for reading; POST may be, as searches are."""
    return http.method if http is not None and http.method in {"PUT", "PATCH", "DELETE"} else None


def _of_shell(shell: Shell) -> Iterator[str]:
    words = list(_words(shell))
    if words:
        yield from _of_command(words)
    is_shell_script = shell.script is not None and PurePosixPath(shell.interpreter[0]).name in _SHELLS
    if is_shell_script:
        yield from _of_script(shell.script or "")
    for text in (*words, shell.script or "", shell.stdin or ""):
        if (match := _SQL.search(text)) is not None:
            yield " ".join(match[1].upper().split())


def _words(shell: Shell) -> Iterator[str]:
    for item in shell.command or ():
        match item:
            case str():
                yield item
            case Conditional(then=then):
                yield from then
            case _:
                yield from item


def _of_command(words: list[str]) -> Iterator[str]:
    program = PurePosixPath(words[0]).name
    candidates = range(len(words)) if program in _STARTERS else range(1)
    for index in candidates:
        if (found := _destroys(words[index], words[index + 1 :])) is not None:
            yield found
        elif PurePosixPath(words[index]).name in _SHELLS:
            yield from (found for word in words[index + 1 :] if " " in word for found in _of_script(word))


def _of_script(script: str) -> Iterator[str]:
    for line in script.replace("\\\n", " ").split("\n"):
        for command in _COMMANDS.split(re.sub(r"(?:^|\s)#.*", "", line)):
            words = [word.strip("'\"") for word in command.split()]
            while words and ("=" in words[0] or words[0] in {"!", "trap"}):
                del words[0]  # variables of one command
            if words and not any(map(_SCRATCH.search, words)):
                yield from _of_command(words)


def _destroys(word: str, rest: Iterable[str]) -> str | None:
    """How a program is called with which something is lost, if it is one and is called so."""
    rest = tuple(rest)
    program = PurePosixPath(word).name
    if program == "dd":
        return "dd" if any(each.startswith("of=") and each != "of=/dev/null" for each in rest) else None
    if program.startswith("mkfs."):
        return program
    for needed in _PROGRAMS.get(program, ()):
        if needed <= set(rest):
            return " ".join([program, *(each for each in rest if each in needed)])
    return None
