from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from gateway.cli.client.admin_api import ask_daemon, daemon_url
from gateway.cli.console import Console, counted, left_out_lines
from gateway.cli.options import DAEMON_HINT, add_config, add_json
from gateway.cli.parser import Parser
from gateway.cli.results import show_raw
from gateway.json_types import Json, JsonObject

_KINDS: Final = {"tools": "tool", "resources": "resource", "prompts": "prompt", "skills": "skill"}
_LABEL: Final = 9
_COUNTED: Final = {"concurrency": "concurrent calls", "unread": "bytes of unread responses"}
"""Units for limits whose names do not include the unit."""
_MAX_FILES: Final = 8
_DIGITS: Final = 12


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        summary="Show the status of a running server.",
        epilog=f"""\
examples:
  {name}
  {name} /etc/mcp-gateway/config.yaml
  {name} --url https://tools.example.com/ops --json

{DAEMON_HINT}

exit codes:
  0    the server serves the current file
  1    the server did not respond, or serves an older version of the file""",
    )
    add_config(arguments)
    arguments.add_argument("--url", help="URL of the server")
    add_json(arguments, "the status as JSON")
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    answer = await ask_daemon(options.url or daemon_url(options, hints), "/-/status")
    problems = list(_problems(answer))
    if options.json:
        show_raw(answer, out)
        return 1 if problems else 0
    out.line(_head(answer, out))
    for problem in problems:
        out.line(out.styled(f"✗ {out.clean(problem)}", "red"))
    for warning in _warnings(answer):
        out.line(out.styled(f"! {out.clean(warning)}", "yellow"))
    for label, text in _facts(answer):
        out.line(f"{out.styled(label.ljust(_LABEL), 'bold')}  {out.cut(out.clean(text), beside=_LABEL + 2)}")
    return 1 if problems else 0


def _head(status: JsonObject, out: Console) -> str:
    # Any member of the status can be missing, because the daemon can be an older or newer version.
    state = status.get("state", "unknown")
    parts = [
        out.styled(out.clean(f"mcp-gateway {status.get('version', '?')}"), "bold"),
        out.styled(out.clean(str(state)), "green" if state == "ready" else "red"),
        f"up {_duration(status.get('uptime_seconds', 0))}",
        out.clean(f"generation {status.get('generation', '?')}"),
    ]
    return "  ".join(parts)


def _problems(status: JsonObject) -> Iterator[str]:
    if status.get("state") not in {"ready", None}:
        yield f"the server is {status['state']} and accepts no calls"
    if problems := status.get("problems"):
        since = _ago(status.get("last_refused") or status.get("last_reload"))
        yield f"the files are invalid ({since}); generation {status.get('generation')} is still served"
        yield from (f"  {problem}" for problem in problems)
    if problem := (status.get("audit") or {}).get("trouble"):
        yield f"the audit log cannot be written: {problem}"


def _warnings(status: JsonObject) -> Iterator[str]:
    yield from _warnings_of_file(status)
    yield from _warnings_of_process(status)
    yield from _warnings_of_upstreams(status)
    yield from (f"warning: {warning}" for warning in status.get("warnings", ()))


def _warnings_of_file(status: JsonObject) -> Iterator[str]:
    if sections := status.get("restart_required"):
        yield f"{' and '.join(sections)} changed in the file. Restart the server to apply the change"
    yield from left_out_lines(
        status.get("left_out", ()), lists_all=False, where="", hint="`--json` lists each with the reason"
    )
    for place in status.get("disabled", ()):
        yield f"{place} was disabled by a plugin"
    lock = status.get("lock") or {}
    if problem := lock.get("trouble"):
        yield f"the lock cannot be used: {problem}"
    if not any("since the lock was written" in warning for warning in status.get("warnings", ())):
        yield from lock.get("differs", ())


def _warnings_of_process(status: JsonObject) -> Iterator[str]:
    if stuck := status.get("threads_stuck"):
        yield f"{counted(stuck, 'plugin thread')} stuck: the function did not return before its deadline"
    if stuck := status.get("worker_threads_stuck"):
        yield f"{counted(stuck, 'daemon thread')} stuck: a file or a large output was not processed before its deadline"
    if problem := (status.get("store") or {}).get("problem"):
        yield f"state is kept only in memory: {problem}"
    if problem := status.get("tasks_problem"):
        yield f"tasks cannot be created: {problem}"
    if error := status.get("watch_error"):
        yield f"file changes are detected with a delay: {error}"
    if error := (status.get("auth") or {}).get("signing_keys_error"):
        yield f"the signing keys of access tokens cannot be fetched: {error}"
    if dropped := (status.get("audit") or {}).get("dropped"):
        yield f"the audit log dropped {counted(dropped, 'record')}"
    for name, use in status.get("limits", {}).items():
        if use["limit"] is not None and use["used"] >= use["limit"]:
            yield f"all {use['limit']} {_COUNTED.get(name, name)} are in use (limits.{name})"


def _warnings_of_upstreams(status: JsonObject) -> Iterator[str]:
    for name, each in status.get("upstreams", {}).items():
        if reason := each.get("reason"):
            yield f"the upstream {name} is {each['state']}: {reason}; next attempt in {each['next_try_seconds']} s"
        if note := each.get("note"):
            yield f"the upstream {name} {note}"
        for kind, reason in each.get("missing", {}).items():
            yield f"the upstream {name} does not list its {kind}: {reason}"


def _facts(status: JsonObject) -> Iterator[tuple[str, str]]:
    files = status.get("files", {})
    yield (
        "config",
        f"{status.get('config', '?')} ({counted(len(files), 'file')}), read {_ago(status.get('last_reload'))}",
    )
    yield from _labelled("files", _files(files))
    for kind, noun in _KINDS.items():
        yield from _labelled(kind, _primitives(status.get(kind, {}), noun))
    yield from _labelled("views", _views(status.get("views", {})))
    yield from _labelled("upstreams", _upstreams(status.get("upstreams", {})))
    yield from _places(status.get("store") or {})
    missing = status.get("missing_facilities", {})
    yield from _labelled("missing", (f"{name}: {effect}" for name, effect in missing.items()))
    running = f"{status.get('calls_running', 0)} running, {status.get('calls_waiting', 0)} waiting"
    yield "calls", f"{running}; {counted(status.get('children', 0), 'child', 'children')}"
    if tasks := ", ".join(f"{count} {name}" for name, count in (status.get("task_statuses") or {}).items()):
        yield "tasks", tasks
    yield "in use", ", ".join(_use(name, use) for name, use in status.get("limits", {}).items())
    if refused := ", ".join(f"{count} by {name}" for name, count in status.get("refused", {}).items() if count):
        yield "refused", refused
    yield from _labelled("clients", _clients(status.get("clients", {})))


def _labelled(label: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        yield label, text
        label = ""


def _files(files: Mapping[str, str]) -> Iterator[str]:
    for path, digest in islice(files.items(), _MAX_FILES):
        yield f"{digest[:_DIGITS]}  {path}"
    if len(files) > _MAX_FILES:
        yield f"… and {len(files) - _MAX_FILES} more (--json)"


def _places(store: JsonObject) -> Iterator[tuple[str, str]]:
    directory, shared = store.get("directory"), store.get("shared")
    if directory or not shared:
        yield "state", directory or "in memory"
    if shared:
        yield "store", f"{shared['url']}{', unreachable' if shared['problem'] else ''}"


def _use(name: str, use: JsonObject) -> str:
    counted_as = _COUNTED.get(name, name)
    return f"{use['used']} {counted_as}" if use["limit"] is None else f"{use['used']} of {use['limit']} {counted_as}"


def _primitives(backends: Mapping[str, str], noun: str) -> Iterator[str]:
    by_backend: dict[str, list[str]] = defaultdict(list)
    for name, backend in backends.items():
        by_backend[backend].append(name)
    for backend, names in by_backend.items():
        yield f"{counted(len(names), f'{backend} {noun}')}: {', '.join(names)}"


def _views(views: JsonObject) -> Iterator[str]:
    for name, each in views.items():
        held = ", ".join(counted(each[kind], noun) for kind, noun in _KINDS.items() if each.get(kind))
        searched = "" if "listed_tools" not in each else f"; {counted(each['listed_tools'], 'tool')} listed"
        yield f"{name}: {held or 'nothing'}{searched}"


def _upstreams(upstreams: JsonObject) -> Iterator[str]:
    for name, each in upstreams.items():
        offers = ", ".join(counted(count, _KINDS[kind]) for kind, count in each.get("offers", {}).items() if count)
        how = " ".join(filter(None, [each.get("revision"), each.get("transport") and f"over {each['transport']}"]))
        facts = [f"{name}: {each['state']}", how, offers, counted(each["sessions"], "session")]
        yield ", ".join(filter(None, facts))


def _clients(clients: JsonObject) -> Iterator[str]:
    for entry in (*clients.get("sessions", ()), *clients.get("recent", ())):
        count = counted(entry["sessions"], "session") if "sessions" in entry else counted(entry["calls"], "call")
        if entry["client"] is None:
            yield f"{count} of {entry['kinds']} other kinds of clients"
        else:
            yield f"{entry['client']}  {entry['revision']} ({entry['era']}) on {entry['transport']}, {count}"


def _ago(moment: Json) -> str:
    try:
        then = datetime.fromisoformat(moment)
    except (TypeError, ValueError):
        return "at an unknown time"
    return f"{_duration((datetime.now(UTC) - then).total_seconds())} ago"


def _duration(seconds: float) -> str:
    amount = max(0, int(seconds))
    days, hours, minutes = amount // 86_400, amount // 3600 % 24, amount // 60 % 60
    parts = [f"{days} d" * bool(days), f"{hours} h" * bool(hours), f"{minutes} min" * bool(minutes)]
    shown = [part for part in parts if part][:2]
    return " ".join(shown) or f"{amount} s"
