"""The commands: names, summaries and modules.

Command modules are imported only when they run. Importing all of them takes several times as long as `--help`.
"""

from argparse import Namespace
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast

from gateway.cli.console import Console
from gateway.cli.parser import Parser
from gateway.json_types import Json


class CommandEntry(NamedTuple):
    summary: str
    module: str


class CommandModule(Protocol):
    @staticmethod
    def parser(name: str) -> Parser:
        """Return the argument parser. `name` is, for example, `mcp-gateway serve`."""

    @staticmethod
    async def run(options: Namespace, out: Console, hints: Console) -> int:
        """Run the command and return its exit code. Results go to `out`, everything else to `hints`."""


COMMANDS: Final = {
    "serve": CommandEntry("serve the file as an MCP server", "gateway.cli.commands.serve"),
    "dev": CommandEntry("serve the file and show its activity in the terminal", "gateway.cli.commands.dev.command"),
    "validate": CommandEntry("check the file and report all errors", "gateway.cli.commands.validate"),
    "lock": CommandEntry("pin every definition, or check for changes", "gateway.cli.commands.lock"),
    "list": CommandEntry("list tools, resources, templates and prompts", "gateway.cli.commands.list"),
    "call": CommandEntry("call a tool", "gateway.cli.commands.call"),
    "read": CommandEntry("read a resource", "gateway.cli.commands.read"),
    "prompt": CommandEntry("get a prompt", "gateway.cli.commands.prompt"),
    "plan": CommandEntry("show the changes that another file would make", "gateway.cli.commands.plan"),
    "test": CommandEntry("run the tests under `tests:` of the tools", "gateway.cli.commands.test.command"),
    "client-config": CommandEntry("print configuration to paste into a client", "gateway.cli.commands.client_config"),
    "bundle": CommandEntry("pack the file into a bundle that desktop clients install", "gateway.cli.commands.bundle"),
    "publish-info": CommandEntry("write the server.json for an MCP registry", "gateway.cli.commands.publish_info"),
    "status": CommandEntry("show the status of a running server", "gateway.cli.commands.status"),
    "connections": CommandEntry("list services that users sign in to", "gateway.cli.commands.connections"),
    "tasks": CommandEntry("list, show or cancel the tasks of a running server", "gateway.cli.commands.tasks"),
    "import": CommandEntry("convert an OpenAPI document to tools in YAML", "gateway.cli.commands.import_openapi"),
    "init": CommandEntry("write a first configuration file", "gateway.cli.commands.init"),
    "schema": CommandEntry("print the file's JSON Schema, for editors", "gateway.cli.commands.schema"),
    "completion": CommandEntry("print a shell completion script", "gateway.cli.commands.completion"),
}
EVENT_LOOP: Final = "gateway.cli.event_loop"
"""Imports asyncio and uvloop, which are slow to import."""

ERROR_REPORT: Final = "gateway.cli.error_report"
"""Imports msgspec and dataclasses, which are slow to import."""

ENV_FILE: Final = "gateway.cli.env_file"
"""Imports python-dotenv."""

Run = Callable[[Coroutine[Json, Json, int]], int]

Report = Callable[[Exception, Console, Sequence[str]], int]


def load(command: CommandEntry) -> tuple[CommandModule, Run]:
    return cast("CommandModule", import_module(command.module)), import_module(EVENT_LOOP).run


def load_report() -> Report:
    return cast("Report", import_module(ERROR_REPORT).report)


def set_variables(env_file: Path) -> None:
    import_module(ENV_FILE).set_variables(env_file)
