import json
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence

from gateway.catalog.manifest import Manifest, manifest
from gateway.cli.client.admin_api import ask_daemon, daemon_url
from gateway.cli.console import Console, protect_stdout
from gateway.cli.dry_run import dry_run, fetched_sources
from gateway.cli.options import TOKEN_HINT, add_env_file, add_json, add_log_level, one_shot_settings
from gateway.cli.parser import Parser
from gateway.config.machine_facts import exists
from gateway.config.settings import Settings
from gateway.errors import ConfigError, ExecutionError, Problem
from gateway.reload.breaking_changes import BreakingChange, breaking_changes
from gateway.reload.planning import WORDS, Plan, plan


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        words="NEW.yaml [OLD.yaml | --url URL]",
        summary="Show the changes that another file would make, and the affected clients. Serves nothing.",
        epilog=f"""\
examples:
  {name} new.yaml --url http://127.0.0.1:8000     compare with a running server
  {name} new.yaml config.yaml                     compare with another file
  {name} config.yaml                              compare with its running server
  git show HEAD:config.yaml > old.yaml; {name} config.yaml old.yaml --fail-on breaking

OLD defaults to $MCP_GATEWAY_CONFIG, then ./config.yaml, then the running server of the file.
Secrets are masked, so a changed secret is not shown.

exit codes:
  0    the new file can be served
  1    with --exit-code: there are changes
  2    a file cannot be served, or the server did not respond
  3    with --fail-on breaking: a change can break clients""",
    )
    arguments.add_argument("new", metavar="NEW.yaml", help="the new file, or directory of files")
    arguments.add_argument("old", nargs="?", metavar="OLD.yaml", help="the current file")
    arguments.add_argument("--url", help=f"a running server, instead of OLD.yaml. {TOKEN_HINT}")
    arguments.add_argument("--exit-code", action="store_true", help="exit with 1 if there are changes")
    arguments.add_argument(
        "--fail-on", choices=["breaking"], help="breaking: exit with 3 if a change can break clients"
    )
    add_json(arguments, "the plan as JSON")
    add_env_file(arguments.add_argument)
    add_log_level(arguments.add_argument)
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    if options.url is not None and options.old is not None:
        raise ConfigError.at("--url", f"cannot be combined with {options.old}")
    try:
        with protect_stdout():
            new, warnings = await _manifest_of(one_shot_settings(options, options.new))
            old = await _old_manifest(options, hints)
    except ExecutionError as error:
        hints.line(f"{hints.styled('error:', 'red')} {hints.clean(str(error))}")
        return 2  # like diff(1), where 1 means that there are differences
    found, breaking = plan(old, new), breaking_changes(old, new)
    if options.json:
        shown = {**found.as_json(), "breaking": [{"place": place, "what": what} for place, what in breaking]}
        if warnings:
            shown["warnings"] = list(map(str, warnings))
        out.foreign(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        for line in _lines(found, breaking, out):
            out.line(line)
        for warning in warnings:
            hints.line(f"{hints.styled('warning:', 'yellow')} {hints.clean(str(warning))}")
        hints.line(_summary(found, breaking, hints))
    if options.fail_on and breaking:
        return 3
    return 1 if options.exit_code and not found.is_empty else 0


async def _old_manifest(options: Namespace, hints: Console) -> Manifest:
    if options.url is not None:
        return await _served(options.url)
    old, new = one_shot_settings(options, options.old), one_shot_settings(options, options.new)
    is_same = old.config.resolve() == new.config.resolve()
    if options.old is not None and is_same:
        raise ConfigError.at(options.old, "cannot be compared with itself. Pass the previous version of the file first")
    if options.old is not None or (exists(old.config) and not is_same):
        found, _ = await _manifest_of(old)
        return found
    url = daemon_url(Namespace(config=options.new), hints)
    try:
        found = await _served(url)
    except ExecutionError as error:
        message = f"needs the old file, or a running server with --url. No server was found: {error}"
        raise ConfigError.at(options.new, message) from error
    hints.line(f"Compared with the server at {url}")
    return found


async def _manifest_of(settings: Settings) -> tuple[Manifest, Sequence[Problem]]:
    async with fetched_sources(settings) as sources:
        with dry_run(settings, sources=sources) as dry:
            offered = {f"resources.{uri}.uri" for _, uri in dry.loaded.origins}
            warnings = [
                each for each in dry.catalog.warnings if each.path.startswith("upstreams.") or each.path in offered
            ]
            return manifest(dry.loaded.document, dry.catalog, with_contracts=True), warnings


async def _served(url: str) -> Manifest:
    try:
        found = Manifest.from_json(await ask_daemon(url, "/-/config"))
    except ValueError as error:
        raise ExecutionError(f"{url}: the response is not the manifest of an mcp-gateway") from error
    if found.contracts is None:
        raise ExecutionError(f"{url}: the server is too old for this command. Compare with its file instead")
    return found


def _lines(found: Plan, breaking: Sequence[BreakingChange], out: Console) -> Iterator[str]:
    width = max((len(change.place) for change in found.changes), default=0)
    for change in found.changes:
        place = out.changed(f"{change.sign} {change.place.ljust(width)}")
        yield f"{place}  {out.clean(change.what)}"
        yield from (f"    {out.changed(line)}" for line in change.difference)
    if breaking:
        yield ""
        yield out.styled("Breaking changes", "bold")
    width = max((len(place) for place, _ in breaking), default=0)
    for place, what in breaking:
        yield f"  {out.styled(out.clean(place.ljust(width)), 'red')}  {out.clean(what)}"
    if found.effects:
        yield ""
        yield out.styled("Affected clients", "bold")
    for name, effect in found.effects.items():
        yield f"  {out.clean(name)}"
        yield from (f"    {out.changed(f'+ {place}')}" for place in effect.gains)
        yield from (f"    {out.changed(f'- {place}')}" for place in effect.loses)
        if effect.announced:
            yield f"    is notified that {' and '.join(effect.announced)} changed"
    if found.restart_required:
        yield ""
        yield out.styled(f"Needs a restart: {', '.join(found.restart_required)}", "yellow")


def _summary(found: Plan, breaking: Sequence[BreakingChange], hints: Console) -> str:
    if found.is_empty and not breaking:
        return hints.styled("no changes", "green")
    counts = Counter(change.sign for change in found.changes)
    text = ", ".join(f"{counts[sign]} {word}" for sign, word in WORDS.items() if counts[sign])
    silent = "" if found.effects else "; no client's lists change"
    broken = f"; {len(breaking)} breaking" if breaking else ""
    return (text or "the lists change") + silent + broken
