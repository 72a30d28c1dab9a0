"""Tables of programs that run arguments as code and of programs that start other programs. See `interpreters`."""

from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """Describes which command-line arguments of a program are code."""

    note: str = ""
    """An explanation for error messages, if the program and the option do not show why the argument is code."""
    code: tuple[str, ...] = ()
    """Options whose value is code: single letters or full names."""
    valued: str = ""
    """Letters of options with a value that is not code."""
    attached: str = ""
    """Letters of options with a value that is always attached, as in `-n5`."""
    long_valued: tuple[str, ...] = ()
    """Long options whose value is the next word."""
    exact: tuple[str, ...] = ()
    """Long options without a value that must match exactly, because longer options start with the same name."""
    operand: int | None = None
    """The index of the operand that is code."""
    is_rest: bool = False
    """Whether all operands after `operand` are also code."""
    operand_if: str = ""
    """The option that makes the operand code. If empty, the operand is code without any option."""
    operand_unless: tuple[str, ...] = ()
    """Options with which the operand is not code."""
    stops_at_operand: bool = False
    """Whether options end at the first operand, for example because later arguments belong to a script."""
    is_specific: bool = False
    """Whether the name is so unusual that it identifies the program in any position of a command."""
    reads_stdin: bool = False
    """Whether standard input is run as code if no other code is given."""
    has_no_script: bool = False
    """Whether the program never takes the path of a script as an argument."""
    allows_enum_values: bool = False
    """Whether an operand that is code can take its value from an `enum`."""

    @property
    def long_options(self) -> tuple[str, ...]:
        named = (*self.code, *self.long_valued, *self.operand_unless)
        return tuple(name for name in named if len(name) > len("-c"))

    def reason(self, name: str) -> str:
        """Return the text that completes "would be read as code by …"."""
        # Operands and standard input are code without any option.
        is_option = not (self.note and (self.reads_stdin or self.operand is not None))
        option = self.operand_if or next(iter(self.code if is_option else ()), "")
        shown = f"`{name} {'-' if len(option) == 1 else ''}{option}`" if option else f"`{name}`"
        return f"{shown}, {self.note}" if self.note else shown


_TO_SHELL: Final = "which passes it to a shell"
_STARTS_SHELL: Final = "whose commands can start a shell"

_language: Final = partial(Interpreter, stops_at_operand=True, reads_stdin=True)
_SHELL: Final = Interpreter(
    code=("--command",),
    valued="oO",
    long_valued=("--rcfile", "--init-file"),
    operand=0,
    operand_if="c",
    stops_at_operand=True,
    reads_stdin=True,
)
_SHELL_OPTION: Final = Interpreter(code=("c", "--command", "--session-command"))
_VIM: Final = Interpreter(note=_STARTS_SHELL, code=("c", "S", "--cmd"), valued="utTwWi")
_ED: Final = Interpreter(note="whose `!` starts a shell", valued="p", reads_stdin=True, has_no_script=True)
_AT: Final = Interpreter(note=_TO_SHELL, code=("f",), valued="qt", reads_stdin=True, has_no_script=True)
# The first operand is the host, and the rest is the command (ssh(1)). `-o ProxyCommand=…` runs a local command.
_SSH: Final = Interpreter(
    note="which passes it to the remote shell", code=("o",), valued="BbcDEeFIiJLlmOPpQRSWw", operand=1, is_rest=True
)
# The program is the first operand unless an option supplies one (POSIX.1-2017 XCU, awk).
_AWK: Final = Interpreter(
    note="whose programs can run commands",
    code=("e", "--source"),
    valued="Fvfi",
    long_valued=("--field-separator", "--assign", "--file", "--include"),
    operand=0,
    operand_unless=("f", "e", "--file", "--source"),
    stops_at_operand=True,
)
_MAKE: Final = Interpreter(
    note="whose variables can run commands: `A:=$(shell …)`",
    code=("E", "--eval"),
    valued="CfIjloW",
    long_valued=("--directory", "--file", "--makefile", "--jobs", "--include-dir"),
    operand=0,
    is_rest=True,
    allows_enum_values=True,
)
_MYSQL: Final = Interpreter(
    note="whose SQL can start a shell",
    code=("e", "--execute"),
    valued="DhPSu",
    attached="p",
    long_valued=("--database", "--host", "--port", "--socket", "--user"),
    reads_stdin=True,
    has_no_script=True,
)
# Options are case-insensitive (about_Pwsh).
_POWERSHELL: Final = _language(code=("-c", "-C", "-command", "-e", "-E", "-ec", "-encodedcommand"))
_SED: Final = Interpreter(
    note="whose scripts can run commands and write files",
    code=("e", "--expression"),
    valued="lf",
    attached="i",
    long_valued=("--file", "--line-length"),
    operand=0,
    operand_unless=("e", "f", "--expression", "--file"),
)

INTERPRETERS: Final[Mapping[str, Interpreter]] = {
    "ansible": Interpreter(note="which can pass it to a shell", code=("a", "--args"), valued="imMfeTulB"),
    **dict.fromkeys(("at", "batch"), _AT),
    "autossh": replace(_SSH, valued=_SSH.valued + "M"),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _AWK),
    **dict.fromkeys(("bash", "dash", "ksh", "sh", "zsh"), replace(_SHELL, is_specific=True)),
    **dict.fromkeys(("ash", "csh", "fish", "mksh", "rbash", "tcsh"), _SHELL),
    "bun": _language(code=("e", "p", "--eval", "--print")),
    "dc": Interpreter(note="whose `!` starts a shell", code=("e", "--expression"), valued="f", reads_stdin=True),
    "deno eval": Interpreter(operand=0, stops_at_operand=True),
    "deno repl": Interpreter(code=("--eval",), reads_stdin=True, has_no_script=True),
    **dict.fromkeys(("ed", "red"), _ED),
    "elixir": _language(code=("e", "--eval"), valued="rS"),
    "emacs": _language(code=("--eval", "-eval", "--execute", "-execute")),
    "env": Interpreter(
        note="whose `-S` splits it into words", code=("S", "--split-string"), valued="uC", stops_at_operand=True
    ),
    "erl": Interpreter(code=("-eval",)),
    "eval": Interpreter(operand=0, is_rest=True),
    "ex": replace(_VIM, reads_stdin=True, has_no_script=True),
    "expect": _language(code=("c",)),
    "nu": _language(code=("c", "e", "--commands", "--execute")),
    "flock": replace(_SHELL_OPTION, valued="wE"),
    "gdb": Interpreter(code=("-ex", "--ex", "-eval-command", "--eval-command", "-iex", "--iex")),
    # `-c alias.x=!cmd` and `-c core.pager=cmd` run commands. --exec-path selects git's own programs.
    "git": Interpreter(
        note="whose settings can run commands", code=("c", "--exec-path"), valued="C", stops_at_operand=True
    ),
    "git difftool": Interpreter(note=_TO_SHELL, code=("x", "--extcmd"), valued="t"),
    "git filter-branch": Interpreter(
        note=_TO_SHELL,
        code=tuple(f"--{what}-filter" for what in ("commit", "env", "index", "msg", "parent", "tag-name", "tree")),
    ),
    "git rebase": Interpreter(note=_TO_SHELL, code=("x", "--exec"), valued="sXC"),
    "git submodule foreach": Interpreter(note=_TO_SHELL, operand=0),
    **dict.fromkeys(("gnuplot", "groovy", "rscript"), _language(code=("e",))),
    "julia": _language(code=("e", "E", "--eval", "--print"), valued="JLptCm"),
    "lua": _language(code=("e",), valued="l"),
    "luajit": _language(code=("e",), valued="ljbO"),
    **dict.fromkeys(("gmake", "make"), _MAKE),
    **dict.fromkeys(("mariadb", "mysql"), _MYSQL),
    **dict.fromkeys(("node", "nodejs"), _language(code=("e", "p", "--eval", "--print"), valued="rC")),
    "octave": _language(code=("--eval",)),
    "osascript": _language(code=("e",), valued="ls"),
    "parallel": Interpreter(note=_TO_SHELL, operand=0, is_rest=True, valued="jaSNnILd"),
    # The value of -m and -M becomes a `use` statement and can add more code (perlrun(1)).
    "perl": _language(code=("e", "E", "m", "M"), valued="I", attached="xCDiF", is_specific=True),
    "php": _language(code=("r", "B", "R", "E", "--run", "--process-begin", "--process-code"), valued="cdfFSt"),
    **dict.fromkeys(("powershell", "pwsh"), _POWERSHELL),
    "psql": Interpreter(
        note=_STARTS_SHELL, code=("c", "--command"), valued="dfhLoPpRTUvF", reads_stdin=True, has_no_script=True
    ),
    "pypy": _language(code=("c",), valued="mWX"),
    "python": _language(code=("c",), valued="mWX", is_specific=True),
    "r": Interpreter(code=("e",), valued="fg"),
    "rsync": Interpreter(note="which runs it", code=("e", "--rsh", "--rsync-path"), valued="fBTM"),
    "ruby": _language(code=("e",), valued="CEIr", attached="iFxKTW"),
    "runuser": replace(_SHELL_OPTION, valued="ugGsw"),
    "script": replace(_SHELL_OPTION, valued="tTEoIOBm"),
    **dict.fromkeys(("gsed", "sed"), _SED),
    "sqlite": Interpreter(note="whose dot commands can start a shell", operand=1, is_rest=True),
    "ssh": _SSH,
    "su": replace(_SHELL_OPTION, valued="gGsTw"),
    # `--checkpoint-action=exec=…`, `--to-command` and `-I` run commands.
    "tar": Interpreter(
        note="which runs it",
        code=("I", "--to-command", "--checkpoint-action", "--use-compress-program", "--rsh-command"),
        exact=("--checkpoint",),
        valued="CfbTXgHLKNV",
    ),
    "tmux": Interpreter(note=_TO_SHELL, operand=1, is_rest=True, valued="cefFLnSstxy"),
    "vagrant": Interpreter(code=("c", "--command")),
    **dict.fromkeys(("gvim", "nvim", "rvim", "vi", "view", "vim"), _VIM),
    "watch": Interpreter(
        note=_TO_SHELL, valued="nq", operand=0, is_rest=True, operand_unless=("x", "--exec"), stops_at_operand=True
    ),
}
"""Interpreters by lower-case name without version (`python` for python3.12). Some keys include a subcommand."""


class CommandWrapper(msgspec.Struct, frozen=True, kw_only=True):
    """Describes the command line of a program that starts another command."""

    valued: str = ""
    """Letters of options with a value."""
    long_valued: tuple[str, ...] = ()
    """Long options whose value is the next word."""
    exact: tuple[str, ...] = ()
    """Long options without a value that must match exactly, because longer options start with the same name."""
    operands: int = 0
    """The number of operands before the started command."""
    at: tuple[str, ...] = ()
    """Words that directly precede a started command, such as find's `-exec`. If set, other fields are ignored."""
    after: tuple[str, ...] = ()
    """Words that must precede the options, such as `exec` in `docker exec`."""


_CONTAINERS: Final = CommandWrapper(
    after=("exec",),
    valued="ewu",
    exact=("--detach",),
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
