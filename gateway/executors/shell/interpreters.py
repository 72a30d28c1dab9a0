"""Find the words of a command that an interpreter would read as code.

Threat: `sh -c "grep {{ word }} log"` gives a caller a shell, and so does `sudo nice bash -lc …`, `awk "/{{ word }}/"`
or `ssh host "{{ command }}"`. No quoting is right for all of them, so an expression there is refused when the file is
read. The most telling names are recognised wherever they stand in a command, whatever it is that starts them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import PurePosixPath
from typing import Final

from gateway.executors.templates.templating import EXPRESSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """An item of a command, as far as the file tells what it will be."""

    shape: str
    """Its text, with `EXPRESSION` where values stand."""
    programs: tuple[str, ...] = ()
    """What it may be, where that is known: its own text, or the values of an enum."""
    may_spread: bool = False
    """Whether it may become several arguments."""

    @property
    def has_expression(self) -> bool:
        return EXPRESSION in self.shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """Where a program's command line holds code, and how to tell the rest of it apart."""

    why: str
    """Completes "it would be read as code by …"."""
    code: tuple[str, ...] = ()
    """Options whose value is code: letters, and longer names as they are written."""
    valued: str = ""
    """Letters of other options that take a value."""
    attached: str = ""
    """Letters of options whose value can only follow in the same word."""
    long_valued: tuple[str, ...] = ()
    """Long options whose value is the next word."""
    operand: int | None = None
    """Which argument that is not an option is code, counted from 0 …"""
    is_rest: bool = False
    """… and whether all that follow are too; …"""
    operand_if: str = ""
    """… it is one only with this option, …"""
    operand_unless: tuple[str, ...] = ()
    """… and only without these."""
    stops: bool = False
    """Whether its options end where its first other argument stands; those that follow are a script's own."""
    is_telling: bool = False
    """Whether the name is so telling that it is looked for in every word."""
    reads_stdin: bool = False
    """Whether its standard input is code where nothing else is."""
    has_no_script: bool = False
    """Whether none of its arguments names a file of code, so that its standard input is code all the same."""
    takes_choices: bool = False
    """Whether a value that the file lists is harmless as an argument: it is the caller's own words that are code."""


def _language(name: str, *code: str, valued: str = "", attached: str = "", is_telling: bool = False) -> Interpreter:
    why = f"`{name} {code[0] if code[0].startswith('-') else '-' + code[0]}`"
    return Interpreter(
        why=why, code=code, valued=valued, attached=attached, stops=True, is_telling=is_telling, reads_stdin=True
    )


def _shell(name: str) -> Interpreter:
    return Interpreter(
        why=f"`{name} -c`",
        code=("--command",),
        valued="oO",
        long_valued=("--rcfile", "--init-file"),
        operand=0,
        operand_if="c",
        stops=True,
        is_telling=name in {"bash", "dash", "ksh", "sh", "zsh"},
        reads_stdin=True,
    )


def _shell_option(name: str, *, valued: str = "") -> Interpreter:
    return Interpreter(why=f"`{name} -c`, a shell", code=("c", "--command", "--session-command"), valued=valued)


_VIM: Final = Interpreter(why="`vim -c`, whose commands can start a shell", code=("c", "S", "--cmd"), valued="utTwWi")
_ED: Final = Interpreter(why="`ed`, whose `!` starts a shell", valued="p", reads_stdin=True, has_no_script=True)
_SSH: Final = Interpreter(
    why="`ssh`, which gives it to the other machine's shell",
    code=("o",),
    valued="BbcDEeFIiJLlmOPpQRSWw",
    operand=1,
    is_rest=True,
)
_AWK: Final = Interpreter(
    why="`awk`, whose programs can run commands",
    code=("e", "--source"),
    valued="Fvfi",
    long_valued=("--field-separator", "--assign", "--file", "--include"),
    operand=0,
    operand_unless=("f", "e", "--file", "--source"),
    stops=True,
)
_MAKE: Final = Interpreter(
    why="`make`, whose variables can run commands: `A:=$(shell …)`",
    code=("E", "--eval"),
    valued="CfIjloW",
    long_valued=("--directory", "--file", "--makefile", "--jobs", "--include-dir"),
    operand=0,
    is_rest=True,
    takes_choices=True,
)
_MYSQL: Final = Interpreter(
    why="`mysql`, whose SQL can start a shell",
    code=("e", "--execute"),
    valued="DhPSu",
    attached="p",
    long_valued=("--database", "--host", "--port", "--socket", "--user"),
    reads_stdin=True,
    has_no_script=True,
)
_SED: Final = Interpreter(
    why="`sed`, whose scripts can run commands and write files",
    code=("e", "--expression"),
    valued="lf",
    attached="i",
    long_valued=("--file", "--line-length"),
    operand=0,
    operand_unless=("e", "f", "--expression", "--file"),
)

INTERPRETERS: Final[Mapping[str, Interpreter]] = {
    "ansible": Interpreter(why="`ansible -a`, which may give it to a shell", code=("a", "--args"), valued="imMfeTulB"),
    "at": Interpreter(
        why="`at`, which gives it to a shell", code=("f",), valued="qt", reads_stdin=True, has_no_script=True
    ),
    "autossh": replace(_SSH, valued=_SSH.valued + "M"),
    "ex": replace(_VIM, reads_stdin=True, has_no_script=True),
    **dict.fromkeys(("gvim", "nvim", "rvim", "vi", "view", "vim"), _VIM),
    **{
        name: _shell(name)
        for name in ("ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "rbash", "sh", "tcsh", "zsh")
    },
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _AWK),
    **dict.fromkeys(("sed", "gsed"), _SED),
    "batch": Interpreter(
        why="`batch`, which gives it to a shell", code=("f",), valued="q", reads_stdin=True, has_no_script=True
    ),
    "bun": _language("bun", "e", "p", "--eval", "--print"),
    "dc": Interpreter(why="`dc`, whose `!` starts a shell", code=("e", "--expression"), valued="f", reads_stdin=True),
    "deno eval": Interpreter(why="`deno eval`", operand=0, stops=True),
    "deno repl": Interpreter(why="`deno repl --eval`", code=("--eval",), reads_stdin=True, has_no_script=True),
    "ed": _ED,
    "elixir": _language("elixir", "e", "--eval", valued="rS"),
    "emacs": _language("emacs", "--eval", "-eval", "--execute", "-execute"),
    "env": Interpreter(
        why="`env -S`, which splits it into words", code=("S", "--split-string"), valued="uC", stops=True
    ),
    "erl": Interpreter(why="`erl -eval`", code=("-eval",)),
    "eval": Interpreter(why="`eval`", operand=0, is_rest=True),
    "expect": _language("expect", "c"),
    "flock": _shell_option("flock", valued="wE"),
    "gdb": Interpreter(why="`gdb -ex`", code=("-ex", "--ex", "-eval-command", "--eval-command", "-iex", "--iex")),
    "git": Interpreter(
        why="`git -c`, whose settings can run commands", code=("c", "--exec-path"), valued="C", stops=True
    ),
    "git difftool": Interpreter(why="`git difftool -x`, which gives it to a shell", code=("x", "--extcmd"), valued="t"),
    "git filter-branch": Interpreter(
        why="`git filter-branch`, which gives it to a shell",
        code=tuple(f"--{what}-filter" for what in ("commit", "env", "index", "msg", "parent", "tag-name", "tree")),
    ),
    "git rebase": Interpreter(why="`git rebase -x`, which gives it to a shell", code=("x", "--exec"), valued="sXC"),
    "git submodule foreach": Interpreter(why="`git submodule foreach`, which gives it to a shell", operand=0),
    "gnuplot": _language("gnuplot", "e"),
    "gmake": _MAKE,
    "groovy": _language("groovy", "e"),
    "julia": _language("julia", "e", "E", "--eval", "--print", valued="JLptCm"),
    "lua": _language("lua", "e", valued="l"),
    "luajit": _language("luajit", "e", valued="ljbO"),
    "make": _MAKE,
    "mariadb": _MYSQL,
    "mysql": _MYSQL,
    "node": _language("node", "e", "p", "--eval", "--print", valued="rC"),
    "nodejs": _language("nodejs", "e", "p", "--eval", "--print", valued="rC"),
    "nu": _language("nu", "c", "e", "--commands", "--execute"),
    "octave": _language("octave", "--eval"),
    "osascript": _language("osascript", "e", valued="ls"),
    "parallel": Interpreter(why="`parallel`, which gives it to a shell", operand=0, is_rest=True, valued="jaSNnILd"),
    "perl": _language("perl", "e", "E", "m", "M", valued="I", attached="xCDiF", is_telling=True),
    "php": _language("php", "r", "B", "R", "E", "--run", "--process-begin", "--process-code", valued="cdfFSt"),
    "powershell": _language("powershell", "-c", "-C", "-Command", "-command"),
    "psql": Interpreter(
        why="`psql -c`, whose commands can start a shell",
        code=("c", "--command"),
        valued="dfhLoPpRTUvF",
        reads_stdin=True,
        has_no_script=True,
    ),
    "pwsh": _language("pwsh", "-c", "-C", "-Command", "-command"),
    "pypy": _language("pypy", "c", valued="mWX"),
    "python": _language("python", "c", valued="mWX", is_telling=True),
    "red": _ED,
    "r": Interpreter(why="`R -e`", code=("e",), valued="fg"),
    "rscript": _language("Rscript", "e"),
    "rsync": Interpreter(why="`rsync -e`, which runs it", code=("e", "--rsh", "--rsync-path"), valued="fBTM"),
    "ruby": _language("ruby", "e", valued="CEIr", attached="iFxKTW"),
    "runuser": _shell_option("runuser", valued="ugGsw"),
    "script": _shell_option("script", valued="tTEoIOBm"),
    "sqlite": Interpreter(why="`sqlite3`, whose dot commands can start a shell", operand=1, is_rest=True),
    "ssh": _SSH,
    "su": _shell_option("su", valued="gGsTw"),
    "tar": Interpreter(
        why="`tar`, which runs it",
        code=("I", "--to-command", "--checkpoint-action", "--use-compress-program", "--rsh-command"),
        valued="CfbTXgHLKNV",
    ),
    "tmux": Interpreter(why="`tmux`, which gives it to a shell", operand=1, is_rest=True, valued="cefFLnSstxy"),
    "vagrant": Interpreter(why="`vagrant ssh -c`", code=("c", "--command")),
    "watch": Interpreter(
        why="`watch`, which gives it to a shell",
        valued="nq",
        operand=0,
        is_rest=True,
        operand_unless=("x", "--exec"),
        stops=True,
    ),
}
"""By name, in lower case, without a version: python3.12 is python; some with the words that must follow it."""
_SUBCOMMANDS: Final = tuple((tuple(name.split()), row) for name, row in INTERPRETERS.items() if " " in name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """A program that runs the command which follows its own options."""

    valued: str = ""
    """Letters of its options that take a value."""
    long_valued: tuple[str, ...] = ()
    """Its long options whose value is the next word."""
    operands: int = 0
    """How many arguments of its own come before the command."""
    at: tuple[str, ...] = ()
    """Words after which commands stand, where it is not the operands that a command follows."""
    after: tuple[str, ...] = ()
    """Words, in this order, without which it starts nothing, and behind which its options begin."""


_CONTAINERS: Final = Starter(
    after=("exec",),
    valued="ewu",
    long_valued=("--detach-keys", "--env", "--env-file", "--index", "--preserve-fds", "--user", "--workdir"),
    operands=1,
)

STARTERS: Final[Mapping[str, Starter]] = {
    "busybox": Starter(),
    "bwrap": Starter(after=("--",)),
    "chroot": Starter(operands=1),
    "chrt": Starter(valued="TPD", operands=1),
    "command": Starter(),
    "doas": Starter(valued="Cua"),
    "docker": _CONTAINERS,
    "dumb-init": Starter(valued="r"),
    "env": Starter(valued="uCS", long_valued=("--unset", "--chdir")),
    "exec": Starter(valued="a"),
    "fakeroot": Starter(valued="lsib"),
    "find": Starter(at=("-exec", "-execdir", "-ok", "-okdir")),
    "flock": Starter(valued="wE", long_valued=("--timeout", "--wait"), operands=1),
    "git": Starter(after=("bisect", "run")),
    "gosu": Starter(operands=1),
    "incus": Starter(after=("--",)),
    "ionice": Starter(valued="cnpPu", long_valued=("--class", "--classdata")),
    "ip": Starter(after=("exec",), operands=1),
    "kubectl": Starter(after=("--",)),
    "lxc": Starter(after=("--",)),
    "nerdctl": _CONTAINERS,
    "nice": Starter(valued="n", long_valued=("--adjustment",)),
    "nohup": Starter(),
    "nsenter": Starter(valued="tSG", long_valued=("--target",)),
    "podman": _CONTAINERS,
    "prlimit": Starter(),
    "proxychains": Starter(valued="f"),
    "setpriv": Starter(long_valued=("--reuid", "--regid", "--groups")),
    "setsid": Starter(),
    "sshpass": Starter(valued="fdpP"),
    "stdbuf": Starter(valued="ioe", long_valued=("--input", "--output", "--error")),
    "strace": Starter(valued="aeEIoOpPsSuUX"),
    "su-exec": Starter(operands=1),
    "sudo": Starter(valued="CDghpRrTtUu", long_valued=("--user", "--group", "--chdir", "--host", "--prompt")),
    "systemd-run": Starter(valued="ptHMuE", long_valued=("--unit", "--property", "--uid", "--gid", "--setenv")),
    "taskset": Starter(operands=1),
    "time": Starter(valued="fo", long_valued=("--format", "--output")),
    "timeout": Starter(valued="ks", long_valued=("--kill-after", "--signal"), operands=1),
    "tini": Starter(valued="pe"),
    "torsocks": Starter(),
    "toybox": Starter(),
    "unbuffer": Starter(),
    "unshare": Starter(valued="SGRw"),
    "xargs": Starter(valued="aEIdLnPs", long_valued=("--arg-file", "--delimiter", "--max-args", "--max-procs")),
}
"""Programs behind which another program stands."""


def code_in(words: Sequence[Word]) -> Mapping[int, str]:
    """Return the index of each word that has an expression and would be read as code, and by what."""
    found: dict[int, str] = {}
    for _, interpreter, start in _interpreters(words):
        found |= dict.fromkeys(_code_of(interpreter, words, start), interpreter.why)
    return found


def reader_of_stdin(words: Sequence[Word]) -> str | None:
    """Say which interpreter would read its standard input as code, having been given no other."""
    for name, interpreter, start in _interpreters(words):
        if interpreter.reads_stdin and not _has_script(interpreter, words[start:]):
            return f"`{name}`"
    return None


def _interpreters(words: Sequence[Word]) -> Iterator[tuple[str, Interpreter, int]]:
    """Yield each interpreter that the words name, and where its arguments begin."""
    for index, name in chain(_commands(words), _telling_names(words)):
        if (interpreter := INTERPRETERS.get(name)) is not None:
            yield name, interpreter, index + 1
        for (first, *phrase), interpreter in _SUBCOMMANDS:
            if first == name and (start := _behind(phrase, words, index + 1)) is not None:
                yield name, interpreter, start


def _behind(phrase: Sequence[str], words: Sequence[Word], start: int) -> int | None:
    """Where the words go on behind those of a phrase, between which there may be others."""
    for expected in phrase:
        found = next((at for at in range(start, len(words)) if words[at].shape == expected), None)
        if found is None:
            return None
        start = found + 1
    return start


def _has_script(interpreter: Interpreter, words: Sequence[Word]) -> bool:
    """Whether an option or an argument says where the code is."""
    rest = iter(words)
    for word in rest:
        if word.shape[:1] != "-":
            if interpreter.has_no_script:
                continue
            return not word.has_expression  # which may be absent
        option = _option(interpreter, word.shape)
        if option.is_code or interpreter.operand_if in option.names or "m" in option.names:
            return True
        if option.takes_next:
            next(rest, None)
    return False


def started_programs(words: Sequence[Word]) -> Iterator[int]:
    """Yield the index of each word that names a program which another one starts."""
    yield from {index for index, _ in _commands(words) if index > 0}


def _names(word: Word) -> set[str]:
    return {_VERSION.sub("", PurePosixPath(program).name.lower()) for program in word.programs}


_VERSION: Final = re.compile(r"[-_]?[0-9.]+$")


def _commands(words: Sequence[Word], index: int = 0) -> Iterator[tuple[int, str]]:
    """Yield where a program stands, and what it is: the first word, and what its starters start."""
    if index >= len(words):
        return
    yield index, ""
    for name in _names(words[index]):
        yield index, name
        starter = STARTERS.get(name)
        if starter is not None:
            for start in _started(starter, words, index + 1):
                yield from _commands(words, start)


def _started(starter: Starter, words: Sequence[Word], index: int) -> Iterator[int]:
    if starter.at:
        yield from (at + 1 for at in range(index, len(words)) if words[at].shape in starter.at)
        return
    begin = _behind(starter.after, words, index)
    if begin is None:
        return
    index = begin
    operands = starter.operands
    while index < len(words):
        shape = words[index].shape
        if shape == "--":
            index += 1 + operands
            break
        if _ASSIGNMENT.match(shape):
            index += 1
        elif shape.startswith("-") and len(shape) > 1:
            index += 1 + _takes_next(shape, starter.valued, starter.long_valued)
        elif operands:
            operands -= 1
            index += 1
        else:
            break
    yield index


_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")


def _takes_next(option: str, valued: str, long_valued: Sequence[str]) -> bool:
    """Whether the value of an option is the next word."""
    if option.startswith("--"):
        return option in long_valued
    at = next((at for at, letter in enumerate(option) if at and letter in valued), None)
    return at == len(option) - 1


def _telling_names(words: Sequence[Word]) -> Iterator[tuple[int, str]]:
    for index, word in enumerate(words):
        yield from ((index, name) for name in _names(word) if name in INTERPRETERS and INTERPRETERS[name].is_telling)


def _code_of(interpreter: Interpreter, words: Sequence[Word], start: int) -> Iterator[int]:
    """Yield the words with expressions that `interpreter`, whose arguments begin at `start`, would read as code."""
    operands, seen, options_end = 0, set[str](), False
    rest = iter(range(start, len(words)))
    for index in rest:
        word = words[index]
        if options_end or word.shape[:1] not in {"-", "+"} or word.shape == "-":
            is_harmless = interpreter.takes_choices and bool(word.programs)
            if (
                word.has_expression
                and not is_harmless
                and _is_code_operand(interpreter, word, number=operands, options=seen)
            ):
                yield index
            # An expression may be absent: what follows is then still read as options, and takes its place.
            operands += not (word.has_expression and interpreter.operand_if)
            options_end = options_end or (interpreter.stops and not word.has_expression)
        elif word.shape == "--":
            options_end = True
        else:
            option = _option(interpreter, word.shape)
            seen |= option.names
            value = next(rest, index) if option.takes_next else index
            if option.is_code and words[value].has_expression:
                yield value


def _is_code_operand(interpreter: Interpreter, word: Word, *, number: int, options: set[str]) -> bool:
    if interpreter.operand is None or options & set(interpreter.operand_unless):
        return False
    if interpreter.operand_if and interpreter.operand_if not in options:
        return False
    if number < interpreter.operand:
        return interpreter.is_rest and word.may_spread  # its second element would stand where code does
    return number == interpreter.operand or interpreter.is_rest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    names: frozenset[str]
    is_code: bool = False
    """Whether its value is code."""
    takes_next: bool = False
    """Whether its value is the next word."""


def _option(interpreter: Interpreter, shape: str) -> _Option:
    name, equals, _ = shape.partition("=")
    if name in interpreter.code or shape.startswith("--"):
        is_code = name in interpreter.code
        takes_next = not equals and (is_code or name in interpreter.long_valued)
        return _Option(names=frozenset({name}), is_code=is_code, takes_next=takes_next)
    for at, letter in enumerate(shape[1:], start=2):
        names, is_last = frozenset(shape[1:at]), at == len(shape)
        if letter in interpreter.code or letter == EXPRESSION:  # which stands for any letter
            return _Option(names=names, is_code=True, takes_next=is_last and letter != EXPRESSION)
        if letter in interpreter.valued:
            return _Option(names=names, takes_next=is_last)
        if letter in interpreter.attached:
            return _Option(names=names)
    return _Option(names=frozenset(shape[1:]))
