"""Explains what a request would do, without running it (`--explain`)."""

import json
import shlex
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Final

from gateway.catalog.catalog import Catalog
from gateway.catalog.explained import EVERY_CAPABILITY, Explained, explaining
from gateway.cli.client.requests import with_files
from gateway.cli.console import Console, protect_stdout
from gateway.cli.dry_run import dry_run, fetched_sources
from gateway.cli.options import one_shot_settings
from gateway.cli.results import show_raw
from gateway.cli.user_input import caller_from_claims
from gateway.config.settings import Settings
from gateway.errors import ConfigError, ExecutionError, RpcError
from gateway.json_types import Json, JsonObject


async def show_explanation(  # noqa: PLR0913, PLR0917 - a request, and what every command has
    options: Namespace, config: str | None, method: str, params: JsonObject, out: Console, hints: Console
) -> int:
    if options.url is not None:
        raise ConfigError.at("--explain", "needs a file, and cannot be combined with --url")
    try:
        with protect_stdout():
            explained = await explain(one_shot_settings(options, config), method, params, caller=options.caller)
    except ExecutionError as error:
        hints.foreign(str(error))
        return 1
    if options.raw:
        show_raw(explained.as_json(), out)
        return 0
    facts = explained.as_json()
    out.line(f"{out.styled(facts.pop('name'), 'bold')} {facts.pop('does')}")
    facts |= {key: facts.pop(key) for key in _LAST & facts.keys()}
    rows = [
        (*_WORDS.get(key, (key.replace("_", " "), _plain)), value)
        for key, value in facts.items()
        if value not in ({}, [])
    ]
    width = max(len(label) for label, _, _ in rows)
    for label, words, value in rows:
        out.fact(label, words(value), width=width)
    return 0


def _plain(value: Json) -> str:
    if isinstance(value, list):
        return " ".join(map(_plain, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _members(value: Json) -> str:
    return "\n".join(f"{name}: {_plain(member)}" for name, member in value.items())


def _seconds(value: Json) -> str:
    return f"{value:g} s"


_LAST: Final = frozenset({"confined_by"})
_WORDS: Final[Mapping[str, tuple[str, Callable[[Json], str]]]] = {
    "arguments": ("arguments", _members),
    "from_caller": ("from the caller", _members),
    "confirm": ("asks first", _plain),
    "argv": ("command", shlex.join),
    "headers": ("headers", _members),
    "timeout_seconds": ("timeout", _seconds),
    "cache_seconds": ("cached for", _seconds),
    "confined_by": ("confined by", shlex.join),
}


async def explain(settings: Settings, method: str, params: JsonObject, *, caller: str | None = None) -> Explained:
    """Return how a `tools/call`, `resources/read` or `prompts/get` request would run, without running it.

    If the request would fail before it runs, raise ExecutionError with the message that the caller would receive.
    """
    explained: list[Explained] = []
    async with fetched_sources(settings) as sources:
        with dry_run(settings, sources=sources) as dry:
            identity = caller_from_claims(caller, dry.loaded.document.auth)
            offered = explaining(dry.catalog, explained.append)
            client = dry.client(offered, capabilities=EVERY_CAPABILITY, identity=identity)
            try:
                given = await with_files(client, params) if method == "tools/call" else params
                result = await client.request(method, given)
            except RpcError as error:
                if (reason := _why_left_out(dry.catalog, params)) is None:
                    raise
                raise ExecutionError(reason) from error
    if not explained:
        # The call failed before it reached an executor. The result of the call contains the reason.
        raise ExecutionError("\n".join(block.get("text", "") for block in result.get("content", ())))
    return explained[0]


def _why_left_out(catalog: Catalog, params: JsonObject) -> str | None:
    asked = params.get("name") or params["uri"].partition(":")[0]
    return next((str(each) for each in catalog.left_out if each.name == asked), None)
