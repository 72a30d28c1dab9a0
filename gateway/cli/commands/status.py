from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from gateway.cli.client.admin_api import ask_daemon, daemon_url
from gateway.cli.console import Console, counted, left_out_lines, say
from gateway.cli.options import DAEMON_HINT, add_config, add_json
from gateway.cli.parser import Parser
from gateway.cli.results import show_raw
from gateway.json_types import Json, JsonObject

_KINDS: Final = {"tools": "tool", "resources": "resource", "prompts": "prompt", "skills": "skill"}
_LABEL: Final = 9
_WARNINGS: Final = {
    ("lock", "trouble"): "the lock cannot be used: {}",
    (None, "threads_stuck"): "plugin threads whose function did not return before its deadline: {}",
    (None, "worker_threads_stuck"): "threads that did not process a file or an output before the deadline: {}",
    ("store", "problem"): "state is kept only in memory: {}",
    (None, "tasks_problem"): "tasks cannot be created: {}",
    (None, "watch_error"): "file changes are detected with a delay: {}",
    ("auth", "signing_keys_error"): "the signing keys of access tokens cannot be fetched: {}",
    ("audit", "dropped"): "records that the audit log dropped: {}",
}
"""Warnings by the section and the member of the status."""


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
    for label, texts in _facts(answer):
        for index, text in enumerate(texts):
            shown = out.styled(("" if index else label).ljust(_LABEL), "bold")
            out.line(f"{shown}  {out.cut(out.clean(text), beside=_LABEL + 2)}")
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
    if sections := status.get("restart_required"):
        yield f"{' and '.join(sections)} changed in the file. Restart the server to apply the change"
    yield from left_out_lines(
        status.get("left_out", ()), lists_all=False, where="", hint="`--json` lists each with the reason"
    )
    for place in status.get("disabled", ()):
        yield f"{place} was disabled by a plugin"
    if not any("since the lock was written" in warning for warning in status.get("warnings", ())):
        yield from (status.get("lock") or {}).get("differs", ())
    for (section, member), text in _WARNINGS.items():
        if value := (status if section is None else status.get(section) or {}).get(member):
            yield text.format(value)
    for name, use in status.get("limits", {}).items():
        if use["limit"] is not None and use["used"] >= use["limit"]:
            yield f"limits.{name} is reached: {_use(name, use)}"
    yield from _warnings_of_upstreams(status.get("upstreams", {}))
    yield from (f"warning: {warning}" for warning in status.get("warnings", ()))


def _warnings_of_upstreams(upstreams: JsonObject) -> Iterator[str]:
    for name, each in upstreams.items():
        if reason := each.get("reason"):
            yield f"the upstream {name} is {each['state']}: {reason}; next attempt in {each['next_try_seconds']} s"
        if note := each.get("note"):
            yield f"the upstream {name} {note}"
        for kind, reason in each.get("missing", {}).items():
            yield f"the upstream {name} does not list its {kind}: {reason}"


def _facts(status: JsonObject) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the label and the lines of each row. Rows without lines are not shown."""
    files = counted(len(status.get("files", ())), "file")
    yield "config", [f"{status.get('config', '?')} ({files}), read {_ago(status.get('last_reload'))}"]
    for kind, noun in _KINDS.items():
        yield kind, _primitives(status.get(kind, {}), noun)
    upstreams = status.get("upstreams", {})
    yield "upstreams", (f"{name}: {each['state']}, {say(each.get('offers'))}" for name, each in upstreams.items())
    store = status.get("store") or {}
    shared = store.get("shared")
    if store.get("directory") or not shared:
        yield "state", [store.get("directory") or "in memory"]
    if shared:
        yield "store", [f"{shared['url']}{', unreachable' if shared['problem'] else ''}"]
    yield "missing", (f"{name}: {effect}" for name, effect in status.get("missing_facilities", {}).items())
    running = f"{status.get('calls_running', 0)} running, {status.get('calls_waiting', 0)} waiting"
    yield "calls", [f"{running}; {counted(status.get('children', 0), 'child', 'children')}"]
    if tasks := status.get("task_statuses"):
        yield "tasks", [say(tasks)]
    yield "in use", [", ".join(_use(name, use) for name, use in status.get("limits", {}).items())]
    if refused := {name: count for name, count in status.get("refused", {}).items() if count}:
        yield "refused", [say(refused)]
    yield "clients", _clients(status.get("clients", {}))


def _use(name: str, use: JsonObject) -> str:
    return f"{name} {use['used']}" + ("" if use["limit"] is None else f" of {use['limit']}")


def _primitives(backends: Mapping[str, str], noun: str) -> Iterator[str]:
    by_backend: dict[str, list[str]] = defaultdict(list)
    for name, backend in backends.items():
        by_backend[backend].append(name)
    for backend, names in by_backend.items():
        yield f"{counted(len(names), f'{backend} {noun}')}: {', '.join(names)}"


def _clients(clients: JsonObject) -> Iterator[str]:
    for entry in clients.get("sessions", ()):
        count = counted(entry["sessions"], "session")
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
    return str(timedelta(seconds=max(0, int(seconds))))
