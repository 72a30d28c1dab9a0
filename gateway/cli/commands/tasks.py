from argparse import Namespace
from typing import Final
from urllib.parse import quote

from gateway.cli.client.admin_api import ask_daemon, daemon_url
from gateway.cli.console import Console, say
from gateway.cli.options import DAEMON_HINT, add_json
from gateway.cli.parser import CONFIG_AS_FIRST_WORD, Parser
from gateway.cli.results import show_raw
from gateway.cli.user_input import split_action, split_config
from gateway.errors import ConfigError
from gateway.json_types import JsonObject

_ACTIONS: Final = ("list", "show", "cancel")
_COLUMNS: Final = ("taskId", "tool", "status", "createdAt", "principal", "statusMessage")


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        words="[list|show|cancel] [CONFIG] [ID]",
        summary="List the tasks of a running server, show one, or cancel it.",
        epilog=f"""\
examples:
  {name}
  {name} list --url https://tools.example.com/ops
  {name} show 5f0c6d0a3f2b4c1e9d8a7b6c5d4e3f2a
  {name} cancel 5f0c6d0a3f2b4c1e9d8a7b6c5d4e3f2a

{DAEMON_HINT}

{CONFIG_AS_FIRST_WORD}""",
    )
    arguments.add_argument("words", nargs="*", default=[], metavar="ID", help="task id, for show and cancel")
    arguments.add_argument("--url", help="URL of the server")
    add_json(arguments, "the response as JSON")
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    action, words = split_action(options.words, _ACTIONS)
    config, ids = split_config(words, url=options.url)
    if config is not None:
        # `daemon_url` expects the attribute `config`.
        options.config = config
    if len(ids) != (action != "list"):
        expected = "`list`, `show ID` or `cancel ID`" if action == "list" else "one id"
        raise ConfigError.at(" ".join(options.words) or "tasks", f"expected {expected}")
    path = "/-/tasks" if action == "list" else f"/-/tasks/{quote(ids[0], safe='')}"
    if action == "cancel":
        path += "/cancel"
    url, method = options.url or daemon_url(options, hints), "POST" if action == "cancel" else "GET"
    answer = await ask_daemon(url, path, method=method)
    if options.json:
        show_raw(answer, out)
    elif action == "list":
        _list(answer, out, hints)
    else:
        width = max(map(len, answer))
        for name, value in answer.items():
            out.fact(name, say(value), width=width)
    return 0


def _list(answer: JsonObject, out: Console, hints: Console) -> None:
    tasks = answer.get("tasks", [])
    if not tasks:
        hints.line("No tasks.")
        return
    cells = [[task.get(column) for column in _COLUMNS] for task in tasks]
    out.table([["" if cell is None else str(cell) for cell in row] for row in cells])
