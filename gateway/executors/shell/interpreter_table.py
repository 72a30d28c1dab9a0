"""Tables of programs that run arguments as code and of programs that start other programs. See `interpreters`."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """The command-line syntax of a program, as far as needed to find code."""

    why: str
    """Completes "would be run as code by …"."""
    code: tuple[str, ...] = ()
    """Options with code as their value: letters or full names."""
    valued: str = ""
    """Letters of other options with a value."""
    attached: str = ""
    """Letters of options whose value is always in the same word."""
    long_valued: tuple[str, ...] = ()
    """Long options whose value is the next word."""
    whole: tuple[str, ...] = ()
    """Long options without a value that must not be taken for an abbreviation."""
    operand: int | None = None
    """The index of the operand that is code."""
    is_rest: bool = False
    """Whether all following operands are code too."""
    operand_if: str = ""
    """The option that turns the operand into code."""
    operand_unless: tuple[str, ...] = ()
    """Options after which the operand is not code."""
    stops: bool = False
    """Whether options end at the first operand, because the rest belongs to a script."""
    is_specific: bool = False
    """Whether the name is distinctive enough to be searched for in every word."""
    reads_stdin: bool = False
    """Whether standard input is run as code if no other code is given."""
    has_no_script: bool = False
    """Whether no argument can name a file with code."""
    allows_enum_values: bool = False
    """Whether values from an `enum` are harmless as arguments."""

    @property
    def long_options(self) -> tuple[str, ...]:
        named = (*self.code, *self.long_valued, *self.operand_unless)
        return tuple(name for name in named if len(name) > len("-c"))


def _language(name: str, *code: str, valued: str = "", attached: str = "", is_specific: bool = False) -> Interpreter:
    why = f"`{name} {code[0] if code[0].startswith('-') else '-' + code[0]}`"
    return Interpreter(
        why=why,
        code=code,
        valued=valued,
        attached=attached,
        stops=True,
        is_specific=is_specific,
        reads_stdin=True,
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
        is_specific=name in {"bash", "dash", "ksh", "sh", "zsh"},
        reads_stdin=True,
    )


def _shell_option(name: str, *, valued: str = "") -> Interpreter:
    return Interpreter(why=f"`{name} -c`, a shell", code=("c", "--command", "--session-command"), valued=valued)


_VIM: Final = Interpreter(why="`vim -c`, whose commands can start a shell", code=("c", "S", "--cmd"), valued="utTwWi")
_ED: Final = Interpreter(why="`ed`, whose `!` starts a shell", valued="p", reads_stdin=True, has_no_script=True)
# The first operand is the host, and the rest is the command (ssh(1)). `-o ProxyCommand=…` runs a local command.
_SSH: Final = Interpreter(
    why="`ssh`, which passes it to the remote shell",
    code=("o",),
    valued="BbcDEeFIiJLlmOPpQRSWw",
    operand=1,
    is_rest=True,
)
# The program is the first operand unless an option supplies one (POSIX.1-2017 XCU, awk).
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
    allows_enum_values=True,
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
# Options are case-insensitive (about_Pwsh).
_POWERSHELL: Final = _language("pwsh", "-c", "-C", "-command", "-e", "-E", "-ec", "-encodedcommand")
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
    "ansible": Interpreter(why="`ansible -a`, which can pass it to a shell", code=("a", "--args"), valued="imMfeTulB"),
    "at": Interpreter(
        why="`at`, which passes it to a shell", code=("f",), valued="qt", reads_stdin=True, has_no_script=True
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
        why="`batch`, which passes it to a shell", code=("f",), valued="q", reads_stdin=True, has_no_script=True
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
    # `-c alias.x=!cmd` and `-c core.pager=cmd` run commands. --exec-path selects git's own programs.
    "git": Interpreter(
        why="`git -c`, whose settings can run commands", code=("c", "--exec-path"), valued="C", stops=True
    ),
    "git difftool": Interpreter(
        why="`git difftool -x`, which passes it to a shell", code=("x", "--extcmd"), valued="t"
    ),
    "git filter-branch": Interpreter(
        why="`git filter-branch`, which passes it to a shell",
        code=tuple(f"--{what}-filter" for what in ("commit", "env", "index", "msg", "parent", "tag-name", "tree")),
    ),
    "git rebase": Interpreter(why="`git rebase -x`, which passes it to a shell", code=("x", "--exec"), valued="sXC"),
    "git submodule foreach": Interpreter(why="`git submodule foreach`, which passes it to a shell", operand=0),
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
    "parallel": Interpreter(why="`parallel`, which passes it to a shell", operand=0, is_rest=True, valued="jaSNnILd"),
    # -m and -M become a `use` statement, which more code can follow (perlrun(1)).
    "perl": _language("perl", "e", "E", "m", "M", valued="I", attached="xCDiF", is_specific=True),
    "php": _language("php", "r", "B", "R", "E", "--run", "--process-begin", "--process-code", valued="cdfFSt"),
    "powershell": _POWERSHELL,
    "psql": Interpreter(
        why="`psql -c`, whose commands can start a shell",
        code=("c", "--command"),
        valued="dfhLoPpRTUvF",
        reads_stdin=True,
        has_no_script=True,
    ),
    "pwsh": _POWERSHELL,
    "pypy": _language("pypy", "c", valued="mWX"),
    "python": _language("python", "c", valued="mWX", is_specific=True),
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
    # `--checkpoint-action=exec=…`, `--to-command` and `-I` run commands.
    "tar": Interpreter(
        why="`tar`, which runs it",
        code=("I", "--to-command", "--checkpoint-action", "--use-compress-program", "--rsh-command"),
        whole=("--checkpoint",),
        valued="CfbTXgHLKNV",
    ),
    "tmux": Interpreter(why="`tmux`, which passes it to a shell", operand=1, is_rest=True, valued="cefFLnSstxy"),
    "vagrant": Interpreter(why="`vagrant ssh -c`", code=("c", "--command")),
    "watch": Interpreter(
        why="`watch`, which passes it to a shell",
        valued="nq",
        operand=0,
        is_rest=True,
        operand_unless=("x", "--exec"),
        stops=True,
    ),
}
"""By lower-case name without version (python for python3.12). Some keys include subcommands."""


class CommandWrapper(msgspec.Struct, frozen=True, kw_only=True):
    """A program whose arguments contain another command."""

    valued: str = ""
    """Letters of options with a value."""
    long_valued: tuple[str, ...] = ()
    """Long options whose value is the next word."""
    whole: tuple[str, ...] = ()
    """Long options without a value that must not be taken for an abbreviation."""
    operands: int = 0
    """The number of operands before the command."""
    at: tuple[str, ...] = ()
    """Words that precede a command. If set, operands are not counted."""
    after: tuple[str, ...] = ()
    """Words that must precede the options, in this order."""


_CONTAINERS: Final = CommandWrapper(
    after=("exec",),
    valued="ewu",
    whole=("--detach",),
    long_valued=("--detach-keys", "--env", "--env-file", "--index", "--preserve-fds", "--user", "--workdir"),
    operands=1,
)

COMMAND_WRAPPERS: Final[Mapping[str, CommandWrapper]] = {
    "busybox": CommandWrapper(),
    "bwrap": CommandWrapper(after=("--",)),
    "chroot": CommandWrapper(operands=1),
    "chrt": CommandWrapper(valued="TPD", operands=1),
    "command": CommandWrapper(),
    "doas": CommandWrapper(valued="Cua"),
    "docker": _CONTAINERS,
    "dumb-init": CommandWrapper(valued="r"),
    "env": CommandWrapper(valued="uCS", long_valued=("--unset", "--chdir")),
    "exec": CommandWrapper(valued="a"),
    "fakeroot": CommandWrapper(valued="lsib"),
    "find": CommandWrapper(at=("-exec", "-execdir", "-ok", "-okdir")),
    "flock": CommandWrapper(valued="wE", long_valued=("--timeout", "--wait"), operands=1),
    "git": CommandWrapper(after=("bisect", "run")),
    "gosu": CommandWrapper(operands=1),
    "ionice": CommandWrapper(valued="cnpPu", long_valued=("--class", "--classdata")),
    "ip": CommandWrapper(after=("exec",), operands=1),
    "kubectl": CommandWrapper(after=("--",)),
    "nerdctl": _CONTAINERS,
    "nice": CommandWrapper(valued="n", long_valued=("--adjustment",)),
    "nohup": CommandWrapper(),
    "nsenter": CommandWrapper(valued="tSG", long_valued=("--target",)),
    "podman": _CONTAINERS,
    "prlimit": CommandWrapper(),
    "proxychains": CommandWrapper(valued="f"),
    "setpriv": CommandWrapper(long_valued=("--reuid", "--regid", "--groups")),
    "setsid": CommandWrapper(),
    "sshpass": CommandWrapper(valued="fdpP"),
    "stdbuf": CommandWrapper(valued="ioe", long_valued=("--input", "--output", "--error")),
    "strace": CommandWrapper(valued="aeEIoOpPsSuUX"),
    "su-exec": CommandWrapper(operands=1),
    "sudo": CommandWrapper(valued="CDghpRrTtUu", long_valued=("--user", "--group", "--chdir", "--host", "--prompt")),
    "systemd-run": CommandWrapper(valued="ptHMuE", long_valued=("--unit", "--property", "--uid", "--gid", "--setenv")),
    "taskset": CommandWrapper(operands=1),
    "time": CommandWrapper(valued="fo", long_valued=("--format", "--output")),
    "timeout": CommandWrapper(valued="ks", long_valued=("--kill-after", "--signal"), operands=1),
    "tini": CommandWrapper(valued="pe"),
    "torsocks": CommandWrapper(),
    "toybox": CommandWrapper(),
    "unshare": CommandWrapper(valued="SGRw"),
    "xargs": CommandWrapper(valued="aEIdLnPs", long_valued=("--arg-file", "--delimiter", "--max-args", "--max-procs")),
}
