import os
import shlex
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog

from gateway.app.gateway import Gateway
from gateway.app.signals import cancelled_by_signals
from gateway.app.workers.supervisor import Supervisor
from gateway.app.workers.worker import Worker, take_worker
from gateway.cli.commands import one_line
from gateway.cli.console import Console
from gateway.cli.options import (
    ALLOW_ANONYMOUS,
    HTTP,
    POLL,
    Option,
    add_config,
    add_option,
    given_by,
    settings_of,
    typed_command,
)
from gateway.cli.parser import EXIT_CODES, Parser
from gateway.config.settings import NO_STATE, TOKEN_VARIABLE, Settings, flag_of, variable_of
from gateway.errors import ConfigError
from gateway.json_types import JsonObject
from gateway.transports.listener.socket_activation import take_inherited

log: Final = structlog.get_logger(__name__)

_OPTIONS: Final = {
    "where to listen": (
        HTTP,
        Option("stdio", None, "serve MCP on standard input and output; over HTTP too only with --http"),
        ALLOW_ANONYMOUS,
        Option("scopes", "A,B", "scopes of the caller on stdio; needs --stdio"),
        Option("view", "NAME", "view of the caller on stdio; needs --stdio"),
    ),
    "reloading": (
        Option("no_watch", None, "reload only on SIGHUP and POST /-/reload"),
        POLL,
    ),
    "state": (
        Option("state_dir", "DIR", "directory of sessions, tasks and the signing key; none keeps them in memory"),
        Option("workers", "N", "number of processes; auto: one per processor; needs --store"),
        Option("store", "URL", "Redis for state that replicas share: redis://HOST:PORT or rediss://…"),
    ),
    "stopping and logging": (
        Option("drain_timeout", "TIME", "time limit for running calls after SIGTERM or Ctrl-C"),
        Option("log_level", "LEVEL", "debug, info, warning or error; debug logs every message, with masked secrets"),
        Option("log_format", "FORMAT", "json or console"),
    ),
}


def parser(name: str) -> Parser:
    arguments = one_line.SourceParser(
        name,
        summary="Serve the file as an MCP server, and reload it when it changes.",
        epilog=f"""\
examples:
  {name} config.yaml                       http://127.0.0.1:8000/mcp
  {name} config.yaml --stdio               for clients that start their servers
  {name} config.yaml --http :9000 --allow-anonymous
  {name} --mcp-json .mcp.json              without a file; or --openapi, --sqlite
  {name} -- uvx mcp-server-time            a stdio server over HTTP

Flags override variables, and variables override the file. $MCP_GATEWAY_SECRET_KEY (or
…_SECRET_KEY_FILE) contains keys that daemons share, one per line, newest first. Without it,
the daemon creates a key in the state directory. Set a store URL with a password in
$MCP_GATEWAY_STORE (or …_STORE_FILE), because other users can see arguments.

{EXIT_CODES}""",
    )
    add_config(arguments)
    one_line.add_sources(arguments.add_group("without a configuration file"))
    for title, options in _OPTIONS.items():
        add = arguments.add_group(title)
        for option in options:
            add_option(add, option)
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    text = await one_line.configuration_of(options)
    if text is None:
        return await _serve(settings_of(options), options, hints)
    if options.print_config:
        out.foreign(text)
        return 0
    with tempfile.TemporaryDirectory(prefix="mcp-gateway-") as directory:
        settings = settings_of(options, config=one_line.written(text, directory))
        if settings.state_dir is None:  # the default belongs to the path of the file
            settings = settings.model_copy(update={"state_dir": NO_STATE})
        return await _serve(settings, options, hints)


async def _serve(settings: Settings, options: Namespace, hints: Console) -> int:
    if "store" in options and "@" in options.store:
        raise ConfigError.at(
            flag_of("store"), f"contains credentials that other users could see. Set {variable_of('store')} instead"
        )
    if settings.scopes is not None and not settings.stdio:  # they would not apply to callers over HTTP
        raise ConfigError.at(
            given_by("scopes", options),
            "needs --stdio. Over HTTP, `auth` assigns scopes to keys",
        )
    if settings.view is not None and not settings.stdio:
        raise ConfigError.at(
            given_by("view", options),
            f"needs --stdio. Over HTTP, use the path /mcp/{settings.view}",
        )
    worker = take_worker(os.environ)
    if worker is None and settings.worker_count > 1:
        _check_worker_settings(settings, where=given_by("workers", options))
        return await Supervisor(settings, count=settings.worker_count, activated=take_inherited()).run()
    with cancelled_by_signals():
        async with Gateway(settings, worker=worker) as gateway:
            try:
                await gateway.serve(on_started=partial(_show_start, gateway, settings, worker, hints))
            except ConfigError:
                raise
            except Exception:  # Boundary: the log masks secrets
                log.exception("daemon failed")
                return 1
    return 0


async def _show_start(gateway: Gateway, settings: Settings, worker: Worker | None, hints: Console) -> None:
    """Print the endpoint, an example command and the console link, unless the log format is JSON."""
    is_readable = settings.log_format == "console" or (settings.log_format is None and hints.is_terminal)
    if gateway.url is None or not is_readable or (worker is not None and worker.number):
        return
    tools = (await gateway.memory_client().request("tools/list"))["tools"]
    key = f"{TOKEN_VARIABLE}=KEY " if gateway.status()["auth"] else ""
    lines = {
        "MCP endpoint": gateway.url,
        "try it": f"{key}{typed_command()} {_example_command(tools)} --url {gateway.url}",
        "console": gateway.console_link,
        "stop": "Ctrl-C",
    }
    for label, text in lines.items():
        if text is not None:
            hints.fact(label, text, width=12)


def _example_command(tools: Sequence[JsonObject]) -> str:
    """Return `call TOOL` for a read-only tool without required arguments, or else `list`."""
    for tool in tools:
        if tool.get("annotations", {}).get("readOnlyHint") and not tool["inputSchema"].get("required"):
            return f"call {shlex.quote(tool['name'])}"
    return "list"


def _check_worker_settings(settings: Settings, *, where: str) -> None:
    if settings.stdio:
        raise ConfigError.at(where, "workers cannot share standard input. Omit --stdio, or use one worker")
    if settings.store_url() is None:
        shared = "several workers need a shared store for sessions, tasks and limits"
        message = f"{shared}. Set {variable_of('store')}=redis://HOST:PORT"
        raise ConfigError.at(where, message)
