from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from gateway.atomic_write import atomic_write
from gateway.catalog.digests import DefinitionDigests
from gateway.catalog.lock import Difference, differences, offered_by, read_lock, rendered
from gateway.cli.console import Console, counted, protect_stdout
from gateway.cli.dry_run import FetchedSources, dry_run, fetched_sources
from gateway.cli.options import add_config, one_shot_settings
from gateway.cli.parser import Parser
from gateway.cli.results import writing
from gateway.config.definition_source import load_definitions
from gateway.config.diagnostics.problems import Problems
from gateway.config.diagnostics.render import shown_path
from gateway.config.settings import Settings
from gateway.errors import ConfigError, Problem

_NO_PAGES: Final[DefinitionDigests] = MappingProxyType({})


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        summary="Pin the digest of every definition in a lock file next to the configuration file.",
        epilog=f"""\
examples:
  {name} config.yaml                        accept the current definitions
  {name} --check config.yaml                fail if a definition has changed

`serve` and `validate` report differences from the lock. With `server.lock: enforce`, changed
definitions are not served until the lock is written again. Secrets do not affect the lock.

exit codes:
  0    the lock was written; with --check: there are no differences
  1    with --check: there are differences
  2    the file cannot be served, or there is no lock to check""",
    )
    add_config(arguments)
    arguments.add_argument("--check", action="store_true", help="only list the differences")
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    settings = one_shot_settings(options, None)
    with protect_stdout():
        async with fetched_sources(settings) as sources:
            pages, unread = ({}, ()) if sources is None else await _pages(settings, sources)
            job = compare_lock if options.check else write_lock
            path, differing = job(settings, sources=sources, pages=pages)
    for problem in unread:
        hints.line(str(problem))
    if differing is None:
        hints.line(hints.styled(f"wrote {shown_path(path)}", "green"))
        return 0
    for difference in differing:
        out.line(str(difference))
    summary = _summary(shown_path(path), len(differing), is_check=options.check)
    hints.line(hints.styled(summary, "yellow" if differing else "green"))
    return 1 if options.check and differing else 0


async def _pages(settings: Settings, sources: FetchedSources) -> tuple[DefinitionDigests, Iterable[Problem]]:
    loaded = load_definitions(settings.config, sources.all)
    problems = Problems(loaded.sources, redactor=loaded.redactor)
    return await sources.upstreams.read_pages(loaded, problems), problems


def write_lock(
    settings: Settings, *, sources: FetchedSources | None = None, pages: DefinitionDigests = _NO_PAGES
) -> tuple[Path, Sequence[Difference] | None]:
    """Write the lock file, with the digests of all definitions and of the UI pages in `pages`.

    Return the path of the lock file, and the differences from the previous lock, or None if there was no lock.
    """
    with dry_run(settings, uses_lock=False, sources=sources) as dry:
        pins = {**dry.catalog.pins, **pages}
        lock = read_lock(dry.loaded.lock_file)
        text = rendered(pins, offered=offered_by(dry.loaded.origins))
    with writing(lock.path), atomic_write(lock.path, mode=0o644) as file:  # the lock contains no secrets
        file.write(text.encode())
    return lock.path, None if lock.pins is None else differences(pins, lock.pins)


def compare_lock(
    settings: Settings, *, sources: FetchedSources | None = None, pages: DefinitionDigests = _NO_PAGES
) -> tuple[Path, Sequence[Difference]]:
    """Return the path of the lock file, and the differences from the current definitions and UI pages."""
    with dry_run(settings, uses_lock=False, sources=sources) as dry:
        lock = read_lock(dry.loaded.lock_file)
        if lock.pins is None:
            message = f"{lock.problem or 'the file does not exist'}. Create it with `mcp-gateway lock`"
            raise ConfigError.at(str(lock.path), message)
        return lock.path, differences({**dry.catalog.pins, **pages}, lock.pins)


def _summary(path: str, count: int, *, is_check: bool) -> str:
    if not count:
        return f"all definitions match {path}"
    what = counted(count, "difference" if is_check else "definition")
    return f"{what} from {path}" if is_check else f"wrote {path} with changes to {what}"
