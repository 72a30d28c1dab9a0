"""The command line's grammar and its help. Reads no file and runs nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gateway import __version__
from gateway.cli.parser import (
    Option,
    Parser,
    add_config,
    add_explain,
    add_log_level,
    add_option,
    add_peer,
    add_result,
)
from gateway.config.settings import variable_of

EXIT_CODES: Final = """\
exit codes:
  0    it worked; `serve`: it was asked to stop
  1    it ran and failed: a tool's error, no such resource, no server at the URL;
       `validate --strict`: warnings
  2    the file, a flag or a variable is wrong
  130  interrupted, or 143 by SIGTERM: `serve` by the second signal"""

CLIENTS: Final = ("claude", "cursor", "vscode")
KINDS: Final = ("tools", "resources", "templates", "prompts")


SERVE_OPTIONS: Final = {
    "where to listen": [
        Option("http", "HOST:PORT", "MCP endpoint at http://HOST:PORT/mcp; port 0 takes a free one"),
        Option("stdio", None, "speak MCP on standard input and output; alone, unless --http is given too"),
        Option("allow_anonymous", None, "listen beyond loopback although the file has no `auth`"),
        Option("scopes", "A,B", "what the caller on stdio may do; needs --stdio"),
    ],
    "changes of the file": [
        Option("no_watch", None, "reload on SIGHUP and POST /-/reload alone"),
        Option("poll", "TIME", "compare the files this often, for file systems without events; 0 never"),
    ],
    "stopping and logging": [
        Option("drain_timeout", "TIME", "how long calls may go on after SIGTERM or Ctrl-C"),
        Option("log_level", "LEVEL", "debug, info, warning or error; debug shows every message, secrets masked"),
        Option("log_format", "FORMAT", "json or console"),
    ],
}
WHAT_IS_SHOWN: Final = "$MCP_GATEWAY_TOKEN is shown to it."
WORDS_WITH_CONFIG: Final = """\
CONFIG defaults to $MCP_GATEWAY_CONFIG, then ./config.yaml. The first word is taken as CONFIG
when it ends in .yaml or .yml, holds a slash, or names a directory."""


def serve_parser(name: str) -> Parser:
    parser = Parser(
        name,
        summary="Serve the file as an MCP server, and again whenever it changes.",
        epilog=f"""\
examples:
  {name} config.yaml                       http://127.0.0.1:8000/mcp
  {name} config.yaml --stdio               for clients that start their servers
  {name} config.yaml --http :9000 --allow-anonymous

The order is flag, variable, file, default. $MCP_GATEWAY_SECRET_KEY (or …_SECRET_KEY_FILE)
signs cursors, so that they outlive a restart and are good at every replica.

{EXIT_CODES}""",
    )
    add_config(parser)
    for title, options in SERVE_OPTIONS.items():
        group = parser.add_argument_group(title)
        for option in options:
            add_option(group, option)
    return parser


def dev_parser(name: str) -> Parser:
    parser = Parser(
        name,
        summary="Serve the file while you write it, and show here what arrives, what runs and what changes.",
        epilog=f"""\
examples:
  {name} config.yaml
  {name} config.yaml --http :9000
  {name} config.yaml --log-level debug       every message, too

A file that cannot be served is shown with its mistakes, and served as soon as it is right. In a
pipe or a file there are plain lines; Ctrl-C ends it.

{EXIT_CODES}""",
    )
    add_config(parser)
    for option in (*SERVE_OPTIONS["where to listen"], *SERVE_OPTIONS["changes of the file"]):
        if option.field in {"http", "allow_anonymous", "poll"}:
            add_option(parser, option)
    add_option(parser, Option("drain_timeout", "TIME", "how long calls may go on after Ctrl-C"), default="1s")
    add_option(parser, Option("log_level", "LEVEL", "debug, info, warning or error"))
    return parser


def validate_parser(name: str) -> Parser:
    parser = Parser(
        name,
        summary="Check the file, and all that it names, without serving it. Every mistake is shown at once.",
        epilog=f"""\
examples:
  {name} config.yaml
  {name} --strict config.yaml && systemctl reload mcp-gateway

exit codes:
  0    it can be served; warnings may have been shown
  1    there are warnings, and --strict was given
  2    it cannot be served""",
    )
    add_config(parser)
    parser.add_argument("--strict", action="store_true", default=False, help="fail on warnings too")
    parser.add_argument("--json", action="store_true", default=False, help="print the problems as a JSON list")
    return parser


def lock_parser(name: str) -> Parser:
    parser = Parser(
        name,
        summary="Pin the digest of every definition in mcp-gateway.lock, beside the file.",
        epilog=f"""\
examples:
  {name} config.yaml                        after a review: this is how it shall be
  {name} --check config.yaml                in CI: is it still so?

What differs from the lock is reported by `serve` and `validate`; with `server.lock: enforce`
it is not served until the lock is written anew. A rotated secret changes nothing.

exit codes:
  0    the lock was written; with --check: nothing differs from it
  1    with --check: something does
  2    the file cannot be served, or there is no lock to check""",
    )
    add_config(parser)
    parser.add_argument("--check", action="store_true", default=False, help="write nothing; list what differs")
    return parser


def list_parser(name: str) -> Parser:
    parser = Parser(
        name,
        words="[CONFIG] [KIND]",
        summary="List what a file, or a running server, offers.",
        epilog=f"""\
examples:
  {name} config.yaml
  {name} config.yaml tools
  {name} --url http://127.0.0.1:8000 resources --json

{WORDS_WITH_CONFIG}""",
    )
    parser.add_argument("words", nargs="*", default=[], metavar="KIND", help=f"{', '.join(KINDS)} (default: all)")
    parser.add_argument("--json", action="store_true", default=False, help="print the definitions as JSON")
    add_peer(parser)
    return parser


def call_parser(name: str) -> Parser:
    parser = Parser(
        name,
        words="[CONFIG] TOOL [key=value …]",
        summary="Call a tool, from the file in this process or on a running server.",
        epilog=f"""\
examples:
  {name} config.yaml disk_usage path=/srv depth=2
  {name} config.yaml search --json '{{"text": "needle", "paths": ["a", "b"]}}'
  {name} config.yaml annotate 'labels:=["x", "y"]' text@=notes.txt
  {name} --url http://127.0.0.1:8000 disk_usage path=/srv
  {name} config.yaml chart -o chart.png
  {name} config.yaml disk_usage path=/srv --explain

arguments:
  key=text     the text; where the tool wants a number, a boolean or a list, its JSON
  key:=json    any JSON value
  key@=file    the content of a text file; - is standard input

Progress is shown on standard error.

{WORDS_WITH_CONFIG}

{EXIT_CODES}""",
    )
    parser.add_argument("words", nargs="+", metavar="TOOL", help="what to call, and with what")
    parser.add_argument("--json", metavar="OBJECT", default=None, help="the arguments as a JSON object")
    add_explain(parser, "the command, request or function, as it would be run; runs nothing")
    add_result(parser)
    add_peer(parser)
    return parser


def read_parser(name: str) -> Parser:
    parser = Parser(
        name,
        words="[CONFIG] URI",
        summary="Read a resource, from the file in this process or from a running server.",
        epilog=f"""\
examples:
  {name} config.yaml runbooks:///web.md
  {name} --url http://127.0.0.1:8000 incident://42 --raw

{WORDS_WITH_CONFIG}""",
    )
    parser.add_argument("words", nargs="+", metavar="URI", help="what to read")
    add_explain(parser, "the file, command or request behind it; reads nothing")
    add_result(parser)
    add_peer(parser)
    return parser


def prompt_parser(name: str) -> Parser:
    parser = Parser(
        name,
        words="[CONFIG] NAME [key=value …]",
        summary="Get a prompt, from the file in this process or from a running server.",
        epilog=f"""\
examples:
  {name} config.yaml triage service=web
  {name} --url http://127.0.0.1:8000 triage service=web --raw

{WORDS_WITH_CONFIG}""",
    )
    parser.add_argument("words", nargs="+", metavar="NAME", help="which, and with what")
    add_explain(parser, "the files and resources that it would read, or the function; runs nothing")
    add_result(parser)
    add_peer(parser)
    return parser


def test_parser(name: str) -> Parser:
    parser = Parser(
        name,
        words="[CONFIG] [TOOL …]",
        summary="Run what stands under `tests:` of the tools, each test as a call without a server.",
        epilog=f"""\
examples:
  {name} config.yaml
  {name} config.yaml disk_usage 'get_*'
  {name} config.yaml --junit report.xml

Commands and functions run for real. An HTTP backend sends its request to a server on loopback
that answers what the test says under `http`, or without that to the real one.

{WORDS_WITH_CONFIG}

exit codes:
  0    all passed, or were left out because something that the tool requires is not here
  1    one failed
  2    the file cannot be served, or there is no such tool""",
    )
    parser.add_argument("words", nargs="*", default=[], metavar="TOOL", help="names, or globs of them (default: all)")
    parser.add_argument("--json", action="store_true", default=False, help="print the verdicts as a JSON list")
    parser.add_argument("--junit", type=Path, default=None, metavar="FILE", help="write them as JUnit XML, too")
    add_log_level(parser)
    return parser


def plan_parser(name: str) -> Parser:
    parser = Parser(
        name,
        words="NEW.yaml [OLD.yaml | --url URL]",
        summary="Show what serving another file would add, change and remove, and for whom. Serves nothing.",
        epilog=f"""\
examples:
  {name} new.yaml --url http://127.0.0.1:8000     against the server that runs
  {name} new.yaml config.yaml                     against another file
  git show HEAD:config.yaml > old.yaml; {name} config.yaml old.yaml

OLD defaults to $MCP_GATEWAY_CONFIG, then ./config.yaml. Secrets are masked, so that a secret that
changes is no change here.

exit codes:
  0    the new file could be served
  1    with --exit-code: something would change
  2    one of the files cannot be served, or the server could not be asked""",
    )
    parser.add_argument("new", metavar="NEW.yaml", help="the file, or directory of files, that is to be served")
    parser.add_argument("old", nargs="?", default=None, metavar="OLD.yaml", help="the one that is served now")
    parser.add_argument("--url", default=None, help=f"the server that runs now, in place of OLD.yaml. {WHAT_IS_SHOWN}")
    parser.add_argument("--exit-code", action="store_true", default=False, help="exit with 1 if anything would change")
    parser.add_argument("--json", action="store_true", default=False, help="print the plan as JSON")
    add_log_level(parser)
    return parser


def client_config_parser(name: str) -> Parser:
    parser = Parser(
        name,
        words="CLIENT [CONFIG | --url URL]",
        summary="Print what to paste into a client, so that it finds this server.",
        epilog=f"""\
examples:
  {name} claude           it starts `serve ./config.yaml --stdio`
  {name} cursor config.yaml --name ops
  {name} vscode --url https://tools.example.com/ops/mcp

Where it is to be pasted is said on standard error. Variables that the file reads are named in
`env`. No key and no value is ever printed: the client takes them from its environment or asks.""",
    )
    parser.add_argument("client", metavar="CLIENT", choices=CLIENTS, help=", ".join(CLIENTS))
    parser.add_argument("config_file", nargs="?", default=None, metavar="CONFIG", help="the file that is to be served")
    parser.add_argument(
        "--url", default=None, help="a running server, in place of CONFIG; without a path, /mcp is meant"
    )
    parser.add_argument(
        "--name", default=None, help="what the client calls it (default: `server.name`, or the URL's host)"
    )
    parser.add_argument(
        "--key-from",
        default=None,
        metavar="VARIABLE",
        help="show the server the key in this variable (default: if it wants one)",
    )
    add_log_level(parser)
    return parser


def schema_parser(name: str) -> Parser:
    parser = Parser(
        name,
        summary="Print the JSON Schema of the configuration file, for editors; or its reference, for people.",
        epilog=f"""\
examples:
  {name} > schema.json
  {name} --markdown > reference.md

and as the first line of the file:
  # yaml-language-server: $schema=./schema.json""",
    )
    parser.add_argument("--markdown", action="store_true", default=False, help="the reference of all keys, as Markdown")
    return parser


def init_parser(name: str) -> Parser:
    parser = Parser(
        name,
        summary="Write a small commented file to start from.",
        epilog=f"examples:\n  {name}\n  {name} ops/config.yaml",
    )
    parser.add_argument("path", nargs="?", type=Path, default=Path("config.yaml"), help="(default: config.yaml)")
    return parser


def status_parser(name: str) -> Parser:
    parser = Parser(
        name,
        summary="Show how a running server is doing.",
        epilog=f"""\
examples:
  {name}
  {name} /etc/mcp-gateway/config.yaml
  {name} --url https://tools.example.com/ops --json

Without --url the server is asked on this machine, where {variable_of("http")} or the file says
that it listens: at `listen.admin`, if there is one. {WHAT_IS_SHOWN}

exit codes:
  0    it serves what the file says
  1    it could not be asked, or serves an older file than the one that is there""",
    )
    add_config(parser)
    parser.add_argument("--url", default=None, help="the server, wherever it is")
    parser.add_argument("--json", action="store_true", default=False, help="print the status as JSON")
    return parser


def overview(commands: Sequence[tuple[str, str]]) -> Parser:
    """The parser of the command line without a command: its help, and `--version`."""
    width = max(len(name) for name, _ in commands)
    parser = Parser(
        "mcp-gateway",
        words="COMMAND",
        summary="One YAML file becomes an MCP server: shell, HTTP and Python tools, resources and prompts.",
        epilog="\n".join(
            [
                "commands:",
                *(f"  {name:<{width}}  {summary}" for name, summary in commands),
                "",
                "examples:",
                "  mcp-gateway init                     write a first config.yaml",
                "  mcp-gateway validate                 check it",
                "  mcp-gateway call hello name=Ada      try a tool, without a server",
                "  mcp-gateway serve                    http://127.0.0.1:8000/mcp",
                "",
                "`mcp-gateway COMMAND --help` tells more. Every setting has a variable: MCP_GATEWAY_…",
                "",
                EXIT_CODES,
            ]
        ),
    )
    parser.add_argument("--version", action="version", version=f"mcp-gateway {__version__}")
    return parser
