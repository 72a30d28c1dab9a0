"""A daemon with a console in another process, and changes to its file."""

import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

import aiohttp

from gateway.json_types import Json
from tests.e2e.daemon import Daemon, post_call, serving

KEY: Final = "key-of-ada-0123456789"
"""A key with all scopes of the console and the tools."""
NARROW_KEY: Final = "key-of-bob-0123456789"
"""A key without the scope of the console."""
AUTH: Final = f"""\
auth:
  api_keys:
    ada: {{secret: {KEY}, scopes: [console, ops.write, gateway:admin]}}
    bob: {{secret: {NARROW_KEY}, scopes: [ops.read]}}
"""
FILE: Final = """\
server: {{name: ops, title: Ops tools, version: 1.2.3, description: Looks after machines.}}
listen: {{http: "127.0.0.1:{port}", console: true{listen}}}
limits: {{rate_limit: 1000/minute, sessions: 100}}
{auth}
tools:
  greet:
    description: Says hello to someone.
    tags: [people]
    input:
      name: {{type: string, description: Whom to greet, minLength: 2}}
      tone: {{type: string, enum: [kind, formal], default: kind}}
    output: {{schema: {{type: object, properties: {{greeting: {{type: string}}}}}}}}
    shell: {{script: 'printf "{{\\"greeting\\": \\"Hello, %s\\"}}" "$INPUT_NAME"'}}
  services:
    description: All services with their state.
    output: {{schema: {{type: object}}}}
    shell: {{command: [echo, '{{"total": 2, "list": [{{"name": "api", "restarts": 0}}, {{"name": "web"}}]}}']}}
  steps:
    description: Takes two steps, the second once the file `go` is there.
    tags: [slow]
    shell:
      script: 'echo first step; until [ -e go ]; do sleep 0.05; done; echo second step'
      progress: stdout
      cwd: .
  deploy:
    description: Deploys a branch.
    annotations: {{destructive: true}}
    input: {{branch: string}}
    confirm: "Deploy {{{{ branch }}}} to production?"
    content: "Deployed {{{{ branch }}}}."
  fails:
    description: Fails, always.
    content: It did not work.
    is_error: true
  absent:
    description: Needs a missing program.
    requires: {{commands: [no-such-program-here]}}
    content: never
  waits: {{description: Runs as a task., task: required, shell: {{command: [sleep, "600"]}}}}
resources:
  manual: {{uri: "doc://manual", text: The manual., description: How to do it.}}
  item: {{uri: "item://{{id}}", text: "Item {{{{ id }}}}."}}
prompts:
  triage:
    description: Works through an alert.
    arguments: {{service: {{description: Service name, required: true, complete: [api, web, worker]}}}}
    messages: [{{user: "Triage {{{{ service }}}}."}}]
views:
  desk: {{include: {{tags: [people]}}}}
upstreams:
  clock: {{command: [{python}, -m, gateway, serve, clock.yaml, --stdio, --no-watch]}}
  gone: {{url: "http://127.0.0.1:1/mcp", allow_private: true}}
"""
CLOCK: Final = "server: {name: clock}\ntools: {time: {description: Tells the time., content: Noon.}}\n"
PAGES: Final = ("overview", "catalog", "call", "traffic", "sessions", "tasks", "upstreams", "config", "limits")


def file_with(*, auth: str = "", listen: str = "", port: int = 0) -> str:
    return FILE.format(auth=auth, listen=f", {listen}" if listen else "", port=port, python=sys.executable)


@dataclass(kw_only=True)
class Served:
    config: Path
    daemon: Daemon
    endpoint: str
    link: str
    """The URL of the console, with the token if there is no `auth`."""
    client: aiohttp.ClientSession

    @property
    def folder(self) -> Path:
        return self.config.parent

    @property
    def console(self) -> str:
        return self.link.partition("?")[0]

    @property
    def port(self) -> int:
        return urlsplit(self.endpoint).port or 0

    def page(self, name: str, **query: str) -> str:
        path = "" if name == "overview" else name
        return f"{self.console}{path}{'?' if query else ''}{urlencode(query)}"

    def save(self, text: str) -> None:
        """Save the file atomically, as editors do."""
        new = self.config.with_suffix(".new")
        new.write_text(text)
        new.replace(self.config)

    async def call(self, tool: str, **arguments: Json) -> Json:
        return await post_call(self.client, self.endpoint, tool, **arguments)


@asynccontextmanager
async def served(folder: Path, text: str, *, environment: Mapping[str, str] | None = None) -> AsyncIterator[Served]:
    config = folder / "config.yaml"
    config.write_text(text)
    (folder / "clock.yaml").write_text(CLOCK)
    async with AsyncExitStack() as stack:
        daemon = await stack.enter_async_context(
            serving(
                config, watch=True, environment={"MCP_GATEWAY_STATE_DIR": str(folder / "state"), **(environment or {})}
            )
        )
        endpoint = await daemon.url()
        link = str((await daemon.event("console"))["url"])
        client = await stack.enter_async_context(aiohttp.ClientSession())
        yield Served(config=config, daemon=daemon, endpoint=endpoint, link=link, client=client)
    shutil.rmtree(folder / "state", ignore_errors=True)
