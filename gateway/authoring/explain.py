"""The flag `--explain` of `call`, `read` and `prompt`: shows what would be done, and does none of it.

Why through the dispatcher: an explained request takes the whole way of a real one, so that aliases, defaults, coercion
and every refusal are the same. Only the executor at its end is another, which explains instead of running.
"""

import json
import shlex
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.authoring.dry_run import dry_run
from gateway.authoring.sources import AskedSources, asked_sources
from gateway.catalog.primitives import Catalog, Confirmation, Primitive, Prompt, Resource, ResourceTemplate, Tool
from gateway.command_line.console import Console
from gateway.command_line.file_arguments import with_files
from gateway.command_line.options import one_shot_settings
from gateway.command_line.positional import refusal
from gateway.command_line.protect_stdout import protect_stdout
from gateway.command_line.render import show_raw
from gateway.config.secrets.redactor import Redactor
from gateway.config.settings import Settings
from gateway.errors import ExecutionError, RpcError
from gateway.executors.explanation import Explainable
from gateway.executors.invocation import Blocks, Invocation, Outcome, ToolResult
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_argument import with_files_replaced

_EVERYTHING: Final[JsonObject] = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}}
"""The capabilities of a client that no definition refuses."""


async def show_explanation(  # noqa: PLR0913, PLR0917 - a request, and what every command has
    options: Namespace, config: str | None, method: str, params: JsonObject, out: Console, hints: Console
) -> int:
    if options.url is not None:
        raise refusal("--explain", "goes with a file: what a server behind a URL would do, only that server knows")
    try:
        with protect_stdout():
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
"""Facts that are long and seldom looked for: shown last."""
_WORDS: Final[Mapping[str, tuple[str, Callable[[Json], str]]]] = {
    "arguments": ("arguments", _members),
    "confirm": ("asks first", _plain),
    "argv": ("command", shlex.join),
    "headers": ("headers", _members),
    "timeout_seconds": ("timeout", _seconds),
    "cache_seconds": ("cached for", _seconds),
    "confined_by": ("confined by", shlex.join),
}
"""Label and text of facts that read better so than as their key and JSON."""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """The effect that a call, a read or a prompt would have, with secrets masked."""

    name: str
    """The primitive's key in the file."""
    does: str
    """The rest of a sentence that begins with the name."""
    arguments: JsonObject
    """As the backend receives them: with defaults, coerced, and valid."""
    question: str | None
    """The text of `confirm`, which the user would have to accept first."""
    facts: Mapping[str, Json]
    """What the backend would do: its command, request or function."""
    timeout_seconds: float

    def as_json(self) -> dict[str, Json]:
        described = {
            "name": self.name,
            "does": self.does,
            "arguments": self.arguments,
            "confirm": self.question,
            **self.facts,
        }
        timeout = min(self.timeout_seconds, self.facts.get("timeout_seconds", self.timeout_seconds))
        return {**{key: value for key, value in described.items() if value is not None}, "timeout_seconds": timeout}


async def explain(settings: Settings, method: str, params: JsonObject) -> Explained:
    """Explain `tools/call`, `resources/read` or `prompts/get`.

    Raises:
        ConfigError: the file cannot be served.
        ExecutionError: the call would be refused; the text is what its caller would be told.
        RpcError: so would it, as a protocol error.
    """
    async with asked_sources(settings) as sources:
        return await _explained(settings, method, params, sources)


async def _explained(settings: Settings, method: str, params: JsonObject, sources: AskedSources | None) -> Explained:
    with dry_run(settings, sources=sources) as dry:
        explained: list[Explained] = []
        client = dry.client(_explaining(dry.catalog, explained.append), capabilities=_EVERYTHING)
        try:
            given = await with_files(client, params) if method == "tools/call" else params
            result = await client.request(method, given)
        except RpcError as error:
            if (reason := _why_left_out(dry.catalog, params)) is None:
                raise
            raise ExecutionError(reason) from error
    if not explained:
        raise ExecutionError("\n".join(block.get("text", "") for block in result.get("content", ())))
    return explained[0]


def _why_left_out(catalog: Catalog, params: JsonObject) -> str | None:
    """The reason why a definition of the file is not served; None if it is, or if there is no such definition."""
    asked = params.get("name") or params["uri"].partition(":")[0]
    return next((str(each) for each in catalog.left_out if each.name == asked), None)


def _explaining(catalog: Catalog, report: Callable[[Explained], None]) -> Catalog:
    """The catalog with executors that explain instead of running, and without confirmations."""

    def explaining(given: Primitive) -> Primitive:
        match given:
            case Tool():
                return replace(given, executor=explainer(given, given.executor), confirm=None, result=_NOTHING)
            case Resource() | ResourceTemplate():
                return replace(given, executor=explainer(given, given.executor), contents=_NOTHING)
            case Prompt():
                return replace(given, messages=explainer(given, given.messages))
        raise TypeError(given)

    def explainer(given: Primitive, backend: object) -> _Explainer:
        assert isinstance(backend, Explainable)  # noqa: S101 - all of ours are
        confirm = given.confirm if isinstance(given, Tool) else None
        return _Explainer(backend, given, confirm, catalog.redactor, report)

    return catalog.with_primitives(map(explaining, catalog.primitives()))


class _Explainer(msgspec.Struct, frozen=True):
    backend: Explainable
    primitive: Primitive
    confirm: Confirmation | None
    redactor: Redactor
    report: Callable[[Explained], None]

    async def execute(self, invocation: Invocation) -> Outcome:
        self._report_on(invocation)
        return Blocks(content=())

    async def render(self, invocation: Invocation) -> Sequence[JsonObject]:
        self._report_on(invocation)
        return ()

    def _report_on(self, invocation: Invocation) -> None:
        explanation = self.backend.explain(invocation)
        question = None if self.confirm is None else self.confirm.message.render(invocation.arguments)
        redactor = self.redactor
        self.report(
            Explained(
                name=self.primitive.name,
                does=explanation.does,
                arguments=redactor.json(with_files_replaced(invocation.arguments, dict)),
                question=None if question is None else redactor.text(question),
                facts=redactor.json(explanation.facts),
                timeout_seconds=self.primitive.timeout.total_seconds(),
            )
        )


class _Nothing:
    """Shapes results and contents for which nothing ran: always empty."""

    def shape(self, _outcome: Outcome, _invocation: Invocation) -> ToolResult:
        return ToolResult(content=())

    def contents(self, _outcome: Outcome, *, uri: str) -> Sequence[JsonObject]:  # noqa: ARG002 - a seam's signature
        return ()


_NOTHING: Final = _Nothing()
