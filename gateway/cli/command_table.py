"""The names and summaries of the commands, and functions that import their modules.

The module of a command is imported only when the command runs, because importing all modules would slow down `--help`.
"""

from importlib import import_module
from types import ModuleType
from typing import Final

COMMANDS: Final = {
    "serve": "serve the file as an MCP server",
    "dev": "serve the file and show its activity in the terminal",
    "validate": "check the file and report all errors",
    "lock": "pin every definition, or check for changes",
    "list": "list tools, resources, templates and prompts",
    "call": "call a tool",
    "read": "read a resource",
    "prompt": "get a prompt",
    "plan": "show the changes that another file would make",
    "test": "run the tests under `tests:` of the tools",
    "client-config": "print configuration to paste into a client",
    "bundle": "pack the file into a bundle that desktop clients install",
    "publish-info": "write the server.json for an MCP registry",
    "status": "show the status of a running server",
    "connections": "list services that users sign in to",
    "tasks": "list, show or cancel the tasks of a running server",
    "import": "convert an OpenAPI document to tools in YAML",
    "init": "write a first configuration file",
    "schema": "print the file's JSON Schema, for editors",
    "completion": "print a shell completion script",
}
EXECUTION: Final = "gateway.cli.execution"
"""The module that runs a command. It is imported late, because importing asyncio, uvloop and pydantic is slow."""


def load(name: str) -> ModuleType:
    module = "import_openapi" if name == "import" else name.replace("-", "_")
    return import_module(f"gateway.cli.commands.{module}")


def load_execution() -> ModuleType:
    return import_module(EXECUTION)
