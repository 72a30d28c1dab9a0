"""The command `init`: writes a small commented file to start from."""

from argparse import Namespace
from pathlib import Path
from typing import Final

from gateway.command_line.console import Console
from gateway.command_line.parser import Parser
from gateway.command_line.positional import refusal
from gateway.config.fs_checks import is_directory

FIRST_FILE: Final = """\
# An MCP server, made of this file. Check it with `mcp-gateway validate`; saving it changes what is on offer.

server:
  name: my-tools
  instructions: What a model should know before it uses these tools.

tools:
  hello:
    description: Greet somebody.
    input:
      name: {type: string, description: Whom to greet, default: world}
    shell:
      # A list of arguments, and no shell: whatever the caller sends stays one argument.
      command: [echo, "Hello, {{ name }}!"]

  disk_free:
    description: Free space of the file systems.
    annotations: {read_only: true}
    input:
      human: {type: boolean, description: Sizes in KiB, MiB and GiB, default: true}
    shell:
      command: [df, -P, {if: human, then: [-h]}]

  # An HTTP API is called like this (https://example.com is only an example):
  # get_item:
  #   description: One item of the shop.
  #   input: {id: integer}
  #   http: {url: "https://example.com/items/{id}"}

resources:
  about:
    uri: "about://this-server"
    mime_type: text/markdown
    text: |
      # About this server
      Clients read this as a resource.

prompts:
  check_disks:
    description: Look at the disks.
    arguments:
      concern: {description: What worries you, default: space that runs out}
    messages:
      - user: "Use `disk_free` and tell me about {{ concern }}."
"""


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        summary="Write a small commented file to start from.",
        epilog=f"examples:\n  {name}\n  {name} ops/config.yaml",
    )
    arguments.add_argument("path", nargs="?", type=Path, default=Path("config.yaml"), help="(default: config.yaml)")
    return arguments


async def run(options: Namespace, out: Console, _hints: Console) -> int:
    path = options.path / "config.yaml" if is_directory(options.path) else options.path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x") as file:
            file.write(FIRST_FILE)
    except FileExistsError as error:
        raise refusal(str(path), "exists already, and is not overwritten") from error
    except OSError as error:
        raise refusal(str(path), f"cannot be written: {error.strerror}") from error
    out.line(f"Wrote {path}. Now:")
    for command, what in (
        (f"mcp-gateway validate {path}", "check it after each change"),
        (f"mcp-gateway call {path} hello name=Ada", "try a tool, without a server"),
        (f"mcp-gateway serve {path}", "serve it at http://127.0.0.1:8000/mcp"),
    ):
        out.line(f"  {out.styled(command, 'cyan')}  # {what}")
    return 0
