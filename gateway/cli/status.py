"""The command `status`: what a running server says about itself, what is wrong with it first."""

from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

from gateway.cli.contents import show_raw
from gateway.cli.remote import get_json, own_path
from gateway.cli.screen import Screen, counted
from gateway.cli.settings import settings_of
from gateway.config.address import Address
from gateway.config.loader import load
from gateway.config.path_kinds import exists
from gateway.config.server import Listen
from gateway.errors import ConfigError
from gateway.json_types import Json, JsonObject

_KINDS: Final = {"tools": "tool", "resources": "resource", "prompts": "prompt"}
_LABEL: Final = 9
"""Columns of the labels."""
_COUNTED: Final = {"concurrency": "calls at once"}
"""What a limit counts, where its name does not say."""
_MOST_FILES: Final = 8
_DIGITS: Final = 12
"""Of a digest."""


async def status(options: Namespace, out: Screen, hints: Screen) -> int:
    answer = await get_json(own_path(options.url or _url_of_the_daemon(options, hints), "/-/status"))
    troubles = list(_troubles(answer))
    if options.json:
        show_raw(answer, out)
        return 1 if troubles else 0
    out.line(_head(answer, out))
    for trouble in troubles:
        out.line(out.styled(f"✗ {out.clean(trouble)}", "red"))
    for doubt in _doubts(answer):
        out.line(out.styled(f"! {out.clean(doubt)}", "yellow"))
    for label, text in _facts(answer):
        out.line(f"{out.styled(label.ljust(_LABEL), 'bold')}  {out.cut(out.clean(text), beside=_LABEL + 2)}")
    return 1 if troubles else 0


def _head(status: JsonObject, out: Screen) -> str:
    state = status.get("state", "unknown")
    parts = [
        out.styled(f"mcp-gateway {out.clean(str(status.get('version', '?')))}", "bold"),
        out.styled(str(state), "green" if state == "ready" else "red"),
        f"up {_duration(status.get('uptime_seconds', 0))}",
        f"generation {status.get('generation', '?')}",
    ]
    return "  ".join(parts)


def _troubles(status: JsonObject) -> Iterator[str]:
    """What somebody should mend now."""
    if status.get("state") not in {"ready", None}:
        yield f"it is {status['state']}, and takes no calls"
    if problems := status.get("problems"):
        since = _ago(status.get("last_reload"))
        yield f"the files cannot be served as they are ({since}); generation {status.get('generation')} goes on"
        yield from (f"  {problem}" for problem in problems)
    if trouble := (status.get("audit") or {}).get("trouble"):
        yield f"the audit log cannot be written: {trouble}"


def _doubts(status: JsonObject) -> Iterator[str]:
    """What somebody may want to know."""
    yield from _doubts_of_the_file(status)
    yield from _doubts_of_the_process(status)
    yield from (f"warning: {warning}" for warning in status.get("warnings", ()))


def _doubts_of_the_file(status: JsonObject) -> Iterator[str]:
    if sections := status.get("restart_required"):
        yield f"{' and '.join(sections)} changed in the file: takes effect with a restart"
    for each in status.get("left_out", ()):
        yield f"{each['kind']}.{each['name']} is not on offer: {each['reason']}"
    for place in status.get("disabled", ()):
        yield f"{place} was switched off by a plugin"
    lock = status.get("lock") or {}
    if trouble := lock.get("trouble"):
        yield f"the lock cannot be used: {trouble}"
    yield from lock.get("differs", ())


def _doubts_of_the_process(status: JsonObject) -> Iterator[str]:
    if stuck := status.get("threads_stuck"):
        yield f"{counted(stuck, 'thread')} of plugins stuck: the function has not returned after its deadline"
    if error := status.get("watch_error"):
        yield f"changes are noticed late: {error}"
    if error := (status.get("auth") or {}).get("signing_keys_error"):
        yield f"the keys that access tokens are checked with cannot be fetched: {error}"
    if dropped := (status.get("audit") or {}).get("dropped"):
        yield f"{counted(dropped, 'record')} of the audit log dropped"
    for name, use in status.get("limits", {}).items():
        if use["limit"] is not None and use["used"] >= use["limit"]:
            yield f"all {use['limit']} {_COUNTED.get(name, name)} are in use (limits.{name})"


def _facts(status: JsonObject) -> Iterator[tuple[str, str]]:
    files = status.get("files", {})
    yield (
        "config",
        f"{status.get('config', '?')} ({counted(len(files), 'file')}), read {_ago(status.get('last_reload'))}",
    )
    yield from _files(files)
    yield from _offer(status)
    running = f"{status.get('calls_running', 0)} running, {status.get('calls_waiting', 0)} waiting"
    yield "calls", f"{running}; {counted(status.get('children', 0), 'child', 'children')}"
    yield "in use", ", ".join(_use(name, use) for name, use in status.get("limits", {}).items())
    if refused := ", ".join(f"{count} by {name}" for name, count in status.get("refused", {}).items() if count):
        yield "refused", refused
    label = "clients"
    for client in _clients(status.get("clients", {})):
        yield label, client
        label = ""


def _files(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """How the digests of what is served begin: SHA-256, as `sha256sum` says it, except for secrets, whose is keyed."""
    label = "files"
    for path, digest in islice(files.items(), _MOST_FILES):
        yield label, f"{digest[:_DIGITS]}  {path}"
        label = ""
    if len(files) > _MOST_FILES:
        yield label, f"… and {len(files) - _MOST_FILES} more (--json)"


def _use(name: str, use: JsonObject) -> str:
    counted_as = _COUNTED.get(name, name)
    return f"{use['used']} {counted_as}" if use["limit"] is None else f"{use['used']} of {use['limit']} {counted_as}"


def _offer(status: JsonObject) -> Iterator[tuple[str, str]]:
    """A line for each kind and backend, with the names."""
    for kind, noun in _KINDS.items():
        by_backend: dict[str, list[str]] = defaultdict(list)
        for name, backend in status.get(kind, {}).items():
            by_backend[backend].append(name)
        label = kind
        for backend, names in by_backend.items():
            yield label, f"{counted(len(names), f'{backend} {noun}')}: {', '.join(names)}"
            label = ""


def _clients(clients: JsonObject) -> Iterator[str]:
    for entry in (*clients.get("sessions", ()), *clients.get("recent", ())):
        much = counted(entry["sessions"], "session") if "sessions" in entry else counted(entry["calls"], "call")
        if entry["client"] is None:
            yield f"{much} of {entry['kinds']} other kinds of clients"
        else:
            yield f"{entry['client']}  {entry['revision']} ({entry['era']}) on {entry['transport']}, {much}"


def _ago(moment: Json) -> str:
    try:
        then = datetime.fromisoformat(moment)
    except (TypeError, ValueError):
        return "at a time unknown"
    return f"{_duration((datetime.now(UTC) - then).total_seconds())} ago"


def _duration(seconds: float) -> str:
    """In the two largest units that matter."""
    amount = max(0, int(seconds))
    days, hours, minutes = amount // 86_400, amount // 3600 % 24, amount // 60 % 60
    parts = [f"{days} d" * bool(days), f"{hours} h" * bool(hours), f"{minutes} min" * bool(minutes)]
    shown = [part for part in parts if part][:2]
    return " ".join(shown) or f"{amount} s"


def _url_of_the_daemon(options: Namespace, hints: Screen) -> str:
    """Where the daemon of this file answers operators.

    Raises:
        ConfigError: a file was named that is not there.
    """
    settings = settings_of(options)
    listen = _listen(settings.config, is_named="config" in options, hints=hints)
    if listen.admin is not None:
        return f"http://{Address.parse(listen.admin).from_here}"
    scheme = "http" if listen.tls is None else "https"
    return f"{scheme}://{(settings.http or Address.parse(listen.http)).from_here}"


def _listen(config: Path, *, is_named: bool, hints: Screen) -> Listen:
    """What the file says, as far as it can be read: when it cannot, somebody wants to see the status all the more."""
    try:
        return load(config).document.listen
    except ConfigError as error:
        is_there = exists(config)
        if is_named and not is_there:
            raise
        if is_there:
            hints.line(f"{error.problems[0]}; so where it listens is not known, and the usual place is asked")
        return Listen()
