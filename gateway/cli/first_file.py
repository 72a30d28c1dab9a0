"""Texts of new configuration files."""

import json
import os
from pathlib import Path
from typing import Final

from gateway.config.reading.mcp_servers_file import read_mcp_servers_file
from gateway.config.reading.source_file import SourceFile, UnreadableError, decode, read_bytes
from gateway.errors import ConfigError, Severity

FIRST_FILE: Final = """\
# The configuration of an MCP server. `mcp-gateway validate` checks it. A running server reloads it when you save it.

server:
  name: my-tools
  instructions: Information that a model needs before it uses these tools.

tools:
  hello:
    description: Greet someone by name.
    annotations: {read_only: true}
    input:
      name: {type: string, description: Name of the person to greet, default: world}
    shell:
      # A list of arguments without a shell: each value stays a single argument.
      command: [echo, "Hello, {{ name }}!"]

  disk_free:
    description: Free space of the file systems.
    annotations: {read_only: true}
    input:
      human: {type: boolean, description: "Show sizes in KiB, MiB and GiB", default: true}
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
    description: Check the free space of all disks.
    arguments:
      concern: {description: The problem to look for, default: disks that are almost full}
    messages:
      - user: "Use `disk_free` and tell me about {{ concern }}."
"""

_SERVERS: Final = """\
# The servers of an MCP client, behind one URL. `mcp-gateway list` shows their tools.

mcp_json: [{file}]

# Select, rename or change their tools here:
# upstreams:
#   another:
#     url: https://mcp.example.com/mcp
#     tools: {{include: [search_*], override: {{search_all: {{confirm: "Search {{{{ query }}}}?"}}}}}}

server:
  name: my-servers
"""


def path_from(directory: Path | None, file: str) -> str:
    """Return a path relative to the directory of the new file, or an absolute one."""
    return str(Path(file).absolute()) if directory is None else os.path.relpath(file, directory)


def of_servers(file: str, directory: Path | None) -> str:
    """Return a configuration with the servers of an MCP client.

    Raise ConfigError if the file is not a JSON file with MCP servers.
    """
    try:
        source = SourceFile(Path(file), decode(read_bytes(Path(file))))
    except UnreadableError as error:
        raise ConfigError.at(f"{file}:{error.line}:{error.column}", str(error)) from error
    _, diagnostics = read_mcp_servers_file(source)
    for each in diagnostics:
        if each.severity is Severity.ERROR and each.place is not None:
            raise ConfigError.at(f"{file}:{each.place.line}:{each.place.column}", each.message)
    # JSON strings are valid YAML, and quote special characters.
    return _SERVERS.format(file=json.dumps(path_from(directory, file)))
