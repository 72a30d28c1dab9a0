"""The commands about the file itself: `validate` and `schema`."""

import json
from argparse import Namespace
from collections.abc import Sequence

from gateway.app import check, reference
from gateway.cli.own_output import own_output
from gateway.cli.screen import Screen, counted
from gateway.cli.settings import one_shot_settings
from gateway.config.diagnostics import as_json, render
from gateway.config.schema import document_schema
from gateway.errors import ConfigError, Problem, Severity


async def validate(options: Namespace, out: Screen, hints: Screen) -> int:
    settings = one_shot_settings(options, None)
    problems: Sequence[Problem]
    try:
        with own_output():
            problems = check(settings, tell=hints.line)
    except ConfigError as error:
        problems = error.problems
    errors = sum(problem.severity is Severity.ERROR for problem in problems)
    if options.json:
        out.line(json.dumps([as_json(problem) for problem in problems], indent=2))
    else:
        if problems:
            out.line(render(problems, colour=out.has_colour))
        hints.line(_summary(str(settings.config), errors, len(problems) - errors, hints))
    if errors:
        return 2
    return 1 if problems and options.strict else 0


async def print_schema(options: Namespace, out: Screen, _hints: Screen) -> int:
    out.line(reference().rstrip("\n") if options.markdown else json.dumps(document_schema(), indent=2))
    return 0


def _summary(config: str, errors: int, warnings: int, hints: Screen) -> str:
    counts = [counted(count, noun) for count, noun in ((errors, "error"), (warnings, "warning")) if count]
    if errors:
        return hints.styled(f"{config} cannot be served: {', '.join(counts)}", "red")
    return hints.styled(f"{config} is valid" + f" ({', '.join(counts)})" * bool(counts), "green")
