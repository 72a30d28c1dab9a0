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


class CommandEntry(NamedTuple):
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
    "serve": CommandEntry("serve the file as an MCP server", "gateway.cli.commands.serve"),
    "dev": CommandEntry("serve the file, and show in the terminal what happens", "gateway.cli.commands.dev.command"),
    "validate": CommandEntry("check the file; every mistake at once", "gateway.cli.commands.validate.command"),
    "lock": CommandEntry("pin every definition, or check for changes", "gateway.cli.commands.lock"),
    "list": CommandEntry("list tools, resources, templates and prompts", "gateway.cli.commands.list"),
    "call": CommandEntry("call a tool", "gateway.cli.commands.call"),
    "read": CommandEntry("read a resource", "gateway.cli.commands.read"),
    "prompt": CommandEntry("get a prompt", "gateway.cli.commands.prompt"),
    "plan": CommandEntry("show what another file would change, and for whom", "gateway.cli.commands.plan"),
    "test": CommandEntry("run the tests under `tests:` of the tools", "gateway.cli.commands.test.command"),
    "client-config": CommandEntry("print configuration to paste into a client", "gateway.cli.commands.client_config"),
    "bundle": CommandEntry("pack the file into a bundle that desktop clients install", "gateway.cli.commands.bundle"),
    "publish-info": CommandEntry(
        "write the server.json with which a registry lists the server", "gateway.cli.commands.publish_info"
    ),
    "status": CommandEntry("show how a running server is doing", "gateway.cli.commands.status"),
    "tasks": CommandEntry("list, show or cancel the tasks of a running server", "gateway.cli.commands.tasks"),
    "import": CommandEntry("write an OpenAPI document's tools as YAML", "gateway.cli.commands.import_openapi"),
    "init": CommandEntry("write a first file", "gateway.cli.commands.init.command"),
    "schema": CommandEntry("print the file's JSON Schema, for editors", "gateway.cli.commands.schema"),
    "completion": CommandEntry("print what a shell runs to complete these words", "gateway.cli.commands.completion"),
}
EVENT_LOOP: Final = "gateway.cli.event_loop"
"""Imports asyncio and uvloop, which take as long as everything else that the overview needs."""

ERROR_REPORT: Final = "gateway.cli.error_report"
"""Imports msgspec and dataclasses, which take as long."""

Run = Callable[[Coroutine[Json, Json, int]], int]

Report = Callable[[Exception, Console, Sequence[str]], int]
"""Prints an error for the person who typed the words, and returns the exit code."""


def load(command: CommandEntry) -> tuple[CommandModule, Run]:
    """Import the module of a command, and what runs it."""
    return cast("CommandModule", import_module(command.module)), import_module(EVENT_LOOP).run


def load_report() -> Report:
    """Import what reports an error."""
    return cast("Report", import_module(ERROR_REPORT).report)
