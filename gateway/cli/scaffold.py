"""The command `init`: a first file, small and commented."""

from argparse import Namespace
from typing import Final

from gateway.cli.screen import Screen
from gateway.cli.words import refusal
from gateway.config.path_kinds import is_directory

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


async def init(options: Namespace, out: Screen, _hints: Screen) -> int:
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
