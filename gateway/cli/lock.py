"""The command `lock`: pin the definitions of a file, or check that they are as they were pinned."""

from argparse import Namespace

from gateway.app import Comparison, compare_lock, write_lock
from gateway.cli.own_output import own_output
from gateway.cli.screen import Screen
from gateway.cli.settings import one_shot_settings
from gateway.config.diagnostics import shown_path


async def lock(options: Namespace, out: Screen, hints: Screen) -> int:
    settings = one_shot_settings(options, None)
    with own_output():
        compared = compare_lock(settings) if options.check else write_lock(settings)
    for difference in compared.differences:
        out.line(str(difference))
    hints.line(hints.styled(_summary(compared, is_check=options.check), _COLOURS[bool(compared.differences)]))
    return 1 if options.check and compared.differences else 0


_COLOURS = {True: "yellow", False: "green"}


def _summary(compared: Comparison, *, is_check: bool) -> str:
    path, count = shown_path(compared.path), len(compared.differences)
    if not count:
        return f"every definition is as {path} has it"
    definitions = f"{count} definition{'s' * (count != 1)}"
    return f"{definitions} not as {path} has it" if is_check else f"{path} written: {definitions} new or different"
