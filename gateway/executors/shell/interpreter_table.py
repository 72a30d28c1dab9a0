"""The programs that read some of their arguments as code, and those that start another program: data alone.

Each value stays one argument whatever stands here (see `argv`); the table adds a refusal at load where that is not
enough.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """The grammar of a program's command line, as far as it tells code from other arguments."""

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
    whole: tuple[str, ...] = ()
    """Long options that take no further word, and are not short for one of the others that begins so."""
    operand: int | None = None
    """The number of the operand that is code, counted from 0 …"""
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

    @property
    def long_options(self) -> tuple[str, ...]:
        """The names that are written out here: more than a letter."""
        named = (*self.code, *self.long_valued, *self.operand_unless)
        return tuple(name for name in named if len(name) > len("-c"))


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
# The first operand is the host, and the rest the command (ssh(1)); `-o ProxyCommand=…` runs one on this machine.
_SSH: Final = Interpreter(
    why="`ssh`, which gives it to the other machine's shell",
    code=("o",),
    valued="BbcDEeFIiJLlmOPpQRSWw",
    operand=1,
    is_rest=True,
)
# The program is the first operand, unless an option has brought one (POSIX.1-2017 XCU, awk).
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
# Its options are read in any case (about_Pwsh).
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
    # `-c alias.x=!cmd` and `-c core.pager=cmd` run commands; --exec-path says where its own programs are.
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
    # -m and -M become a `use` statement, which may be followed by more code (perlrun(1)).
    "perl": _language("perl", "e", "E", "m", "M", valued="I", attached="xCDiF", is_telling=True),
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
    # `--checkpoint-action=exec=…`, `--to-command` and `-I` name commands that it starts.
    "tar": Interpreter(
        why="`tar`, which runs it",
        code=("I", "--to-command", "--checkpoint-action", "--use-compress-program", "--rsh-command"),
        whole=("--checkpoint",),
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


class CommandWrapper(msgspec.Struct, frozen=True, kw_only=True):
    """A program that runs the command which follows its own options."""

    valued: str = ""
    """Letters of its options that take a value."""
    long_valued: tuple[str, ...] = ()
    """Its long options whose value is the next word."""
    whole: tuple[str, ...] = ()
    """Its long options that take no further word, and are not short for one of those that begins so."""
    operands: int = 0
    """The number of its own operands before the command."""
    at: tuple[str, ...] = ()
    """Words after which commands stand, where it is not the operands that a command follows."""
    after: tuple[str, ...] = ()
    """Words, in this order, without which it starts nothing, and behind which its options begin."""


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
"""Programs behind which another program stands."""
