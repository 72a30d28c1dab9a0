"""The command `plan`: what serving a file would change, and for whom, before it is served."""

import json
from argparse import Namespace
from collections.abc import Iterator

from gateway.app import Picture, Plan, Sign, picture_of, plan
from gateway.cli.own_output import own_output
from gateway.cli.remote import RemoteError, get_json, own_path
from gateway.cli.screen import Screen
from gateway.cli.settings import one_shot_settings
from gateway.cli.words import refusal

_STYLES = {Sign.ADDED: "green", Sign.CHANGED: "yellow", Sign.REMOVED: "red"}


async def show_plan(options: Namespace, out: Screen, hints: Screen) -> int:
    if options.url is not None and options.old is not None:
        raise refusal("--url", f"and {options.old} are given; the new file is compared with one of them")
    try:
        with own_output():
            new = picture_of(one_shot_settings(options, options.new))
            old = await _served(options.url) if options.url is not None else _old(options)
    except RemoteError as error:
        hints.line(f"{hints.styled('error:', 'red')} {error}")
        return 2  # as diff(1) has it: 1 says that something differs
    found = plan(old, new)
    if options.json:
        out.line(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    else:
        for line in _lines(found, out):
            out.line(line)
        hints.line(_summary(found, hints))
    return 1 if options.exit_code and not found.is_empty else 0


def _old(options: Namespace) -> Picture:
    settings = one_shot_settings(options, options.old)
    new = one_shot_settings(options, options.new)
    if settings.config.resolve() == new.config.resolve():
        raise refusal(str(new.config), "is compared with itself; name the OLD file, or with --url a server that runs")
    return picture_of(settings)


async def _served(url: str) -> Picture:
    place = own_path(url, "/-/config")
    try:
        return Picture.from_json(await get_json(place))
    except ValueError as error:
        raise RemoteError(f"{place}: is not there for this caller, or of a server that does not know it") from error


def _lines(found: Plan, out: Screen) -> Iterator[str]:
    width = max((len(change.place) for change in found.changes), default=0)
    for change in found.changes:
        place = out.styled(f"{change.sign} {change.place.ljust(width)}", _STYLES[change.sign])
        yield f"{place}  {out.clean(change.what)}"
        for line in change.difference:
            style = {"+": "green", "-": "red"}.get(line[:1])
            yield f"    {out.styled(out.clean(line), style) if style else out.clean(line)}"
    if found.effects:
        yield ""
        yield out.styled("Who notices", "bold")
    for name, effect in found.effects.items():
        yield f"  {out.clean(name)}"
        yield from (f"    {out.styled(f'+ {place}', 'green')}" for place in effect.gains)
        yield from (f"    {out.styled(f'- {place}', 'red')}" for place in effect.loses)
        if effect.announced:
            yield f"    is told that {' and '.join(effect.announced)} changed"
    if found.restart_required:
        yield ""
        yield out.styled(f"Needs a restart: {', '.join(found.restart_required)}", "yellow")


def _summary(found: Plan, hints: Screen) -> str:
    if found.is_empty:
        return hints.styled("nothing changes", "green")
    words = {Sign.ADDED: "added", Sign.CHANGED: "changed", Sign.REMOVED: "removed"}
    counts = {sign: sum(change.sign is sign for change in found.changes) for sign in words}
    text = ", ".join(f"{count} {words[sign]}" for sign, count in counts.items() if count)
    silent = "" if found.effects else "; nobody's lists change"
    return (text or "the lists change") + silent
