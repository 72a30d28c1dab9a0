"""The commands: the name of each, its line in the overview, and the module that holds it.

Why a command's module is imported only when it was chosen: all of them together take several times as long to import
as `--version` and `--help` take to answer. `load` is the one place that does so, and `load_report` the one for errors.
"""

from argparse import Namespace
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import Final, NamedTuple, Protocol, cast

from gateway.cli.console import Console
from gateway.cli.parser import Parser
from gateway.json_types import Json


class Command(NamedTuple):
    """A row of the overview, and the module that holds the command."""

    summary: str
    module: str
    """Has the two functions of `CommandModule`."""


class CommandModule(Protocol):
    @staticmethod
    def parser(name: str) -> Parser:
        """The parser of its options, for a command that is called `mcp-gateway serve`."""

    @staticmethod
    async def run(options: Namespace, out: Console, hints: Console) -> int:
        """Do it, write results to `out` and everything else to `hints`, and return the exit code."""


COMMANDS: Final = {
    "serve": Command("serve the file as an MCP server", "gateway.cli.commands.serve"),
    "dev": Command("serve the file, and show in the terminal what happens", "gateway.cli.commands.dev.command"),
    "validate": Command("check the file; every mistake at once", "gateway.cli.commands.validate.command"),
    "lock": Command("pin every definition, or check that they are as pinned", "gateway.cli.commands.lock"),
    "list": Command("list tools, resources, templates and prompts", "gateway.cli.commands.list"),
    "call": Command("call a tool", "gateway.cli.commands.call"),
    "read": Command("read a resource", "gateway.cli.commands.read"),
    "prompt": Command("get a prompt", "gateway.cli.commands.prompt"),
    "plan": Command("show what serving another file would change, and for whom", "gateway.cli.commands.plan"),
    "test": Command("run the tests under `tests:` of the tools", "gateway.cli.commands.test.command"),
    "client-config": Command("print what to paste into a client", "gateway.cli.commands.client_config"),
    "bundle": Command("pack the file into a bundle that desktop clients install", "gateway.cli.commands.bundle"),
    "publish-info": Command(
        "write the server.json with which a registry lists the server", "gateway.cli.commands.publish_info"
    ),
    "status": Command("show how a running server is doing", "gateway.cli.commands.status"),
    "tasks": Command("list, show or cancel the tasks of a running server", "gateway.cli.commands.tasks"),
    "import": Command("write an OpenAPI document's tools as YAML", "gateway.cli.commands.import_openapi"),
    "init": Command("write a first file", "gateway.cli.commands.init.command"),
    "schema": Command("print the file's JSON Schema, for editors", "gateway.cli.commands.schema"),
    "completion": Command("print what a shell runs to complete these words", "gateway.cli.commands.completion"),
}
EVENT_LOOP: Final = "gateway.cli.event_loop"
"""Imports asyncio and uvloop, which take as long as everything else that the overview needs."""

ERROR_REPORT: Final = "gateway.cli.error_report"
"""Imports msgspec and dataclasses, which take as long."""

Run = Callable[[Coroutine[Json, Json, int]], int]

Report = Callable[[Exception, Console, Sequence[str]], int]
"""Prints an error for the person who typed the words, and returns the exit code."""


def load(command: Command) -> tuple[CommandModule, Run]:
    """Import the module of a command, and what runs it."""
    return cast("CommandModule", import_module(command.module)), import_module(EVENT_LOOP).run


def load_report() -> Report:
    """Import what reports an error."""
    return cast("Report", import_module(ERROR_REPORT).report)
