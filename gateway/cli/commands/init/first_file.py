"""The texts of first files: of one's own tools, of servers behind it, of a document."""

import json
import os
import re
from pathlib import Path
from typing import Final

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

_SERVERS: Final = """\
# The servers of an MCP client, behind one URL. `mcp-gateway list` shows what they offer.

mcp_json: [{file}]

# What they offer can be chosen, renamed and changed here:
# upstreams:
#   another:
#     url: https://mcp.example.com/mcp
#     tools: {{include: [search_*], override: {{search_all: {{confirm: "Search {{{{ query }}}}?"}}}}}}

server:
  name: my-servers
"""

_DOCUMENT: Final = """\
# The operations of an API, each a tool. `mcp-gateway validate --list` shows which, and why others are none.

openapi:
  {name}:
    document: {document}
    # Without `include`, what only reads (GET, HEAD):
    # include: {{tags: [orders], operations: ["POST /items"], methods: [get, post]}}
    # What the document asks for in `security` stands in a connection:
    # connection: {name}

# connections:
#   {name}:
#     base_url: https://api.example.com
#     auth: {{bearer: "${{env:API_TOKEN}}"}}

server:
  name: {name}
"""


def of_servers(file: str, directory: Path) -> str:
    """The file with the servers that an MCP client has."""
    return _SERVERS.format(file=json.dumps(os.path.relpath(file, directory)))


def of_document(document: str, directory: Path) -> str:
    """The file with the operations of an OpenAPI document: a path or a URL."""
    if "://" not in document:
        document = os.path.relpath(document, directory)
    stem = Path(document.rstrip("/")).name.partition(".")[0]
    name = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_") or "api"
    return _DOCUMENT.format(name=name if name[0].isalpha() else f"api_{name}", document=json.dumps(document))
