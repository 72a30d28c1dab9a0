"""The flag `--explain` of `call`, `read` and `prompt`: what would be done, without doing it."""

import json
import shlex
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Final

from gateway.app import explain
from gateway.cli.contents import show_raw
from gateway.cli.own_output import own_output
from gateway.cli.screen import Screen
from gateway.cli.settings import one_shot_settings
from gateway.cli.words import refusal
from gateway.errors import ExecutionError
from gateway.json_types import Json, JsonObject


async def show_explanation(  # noqa: PLR0913, PLR0917 - a request, and what every command has
    options: Namespace, config: str | None, method: str, params: JsonObject, out: Screen, hints: Screen
) -> int:
    if options.url is not None:
        raise refusal("--explain", "goes with a file: what a server behind a URL would do, only that server knows")
    try:
        with own_output():
            explained = await explain(one_shot_settings(options, config), method, params)
    except ExecutionError as error:
        hints.foreign(str(error))
        return 1
    if options.raw:
        show_raw(explained.as_json(), out)
        return 0
    facts = explained.as_json()
    out.line(f"{out.styled(facts.pop('name'), 'bold')} {facts.pop('does')}")
    facts |= {key: facts.pop(key) for key in _LAST & facts.keys()}
    rows = [_row(key, value) for key, value in facts.items() if value not in ({}, [])]
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        out.fact(label, text, width=width)
    return 0


def _row(key: str, value: Json) -> tuple[str, str]:
    label, words = _WORDS.get(key, (key.replace("_", " "), _plain))
    return label, words(value)


def _plain(value: Json) -> str:
    if isinstance(value, list):
        return " ".join(map(_plain, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _members(value: Json) -> str:
    return "\n".join(f"{name}: {_plain(member)}" for name, member in value.items())


def _seconds(value: Json) -> str:
    return f"{value:g} s"


_LAST: Final = frozenset({"confined_by"})
"""What is long, and seldom what somebody looks for."""
_WORDS: Final[Mapping[str, tuple[str, Callable[[Json], str]]]] = {
    "arguments": ("arguments", _members),
    "confirm": ("asks first", _plain),
    "argv": ("command", shlex.join),
    "headers": ("headers", _members),
    "timeout_seconds": ("timeout", _seconds),
    "cache_seconds": ("cached for", _seconds),
    "confined_by": ("confined by", shlex.join),
}
"""Of a fact that reads better so: its label, and its value in words."""
