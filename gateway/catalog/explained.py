"""Explains requests instead of running them.

Only the executors of the catalog are replaced, so aliases, defaults, coercion and errors are those of a real request.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.catalog.catalog import Catalog
from gateway.catalog.primitives import Confirmation, Primitive, Prompt, Resource, ResourceTemplate, Tool
from gateway.config.secrets.redactor import Redactor
from gateway.executors.invocation import Blocks, Explainable, Invocation, Outcome, ToolResult
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_argument import with_files_replaced
from gateway.language.templates.caller import named_facts

EVERY_CAPABILITY: Final[JsonObject] = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}}
"""Declares everything that a definition can require of a client."""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    does: str
    """Text that completes a sentence starting with the name."""
    arguments: JsonObject
    """Validated arguments with defaults, as passed to the backend."""
    question: str | None
    """The text of `confirm` to show the user."""
    facts: Mapping[str, Json]
    """The command, request or function that the backend would run."""
    timeout_seconds: float
    from_caller: JsonObject
    """Facts of the caller that templates use, by name such as `caller.subject`."""

    def as_json(self) -> dict[str, Json]:
        described = {
            "name": self.name,
            "does": self.does,
            "arguments": self.arguments,
            "from_caller": self.from_caller or None,
            "confirm": self.question,
            **self.facts,
        }
        timeout = min(self.timeout_seconds, self.facts.get("timeout_seconds") or self.timeout_seconds)
        return {**{key: value for key, value in described.items() if value is not None}, "timeout_seconds": timeout}


def explaining(catalog: Catalog, report: Callable[[Explained], None]) -> Catalog:
    """Return the catalog with explaining executors, and without confirmations and tasks."""

    def explaining(given: Primitive) -> Primitive:
        match given:
            case Tool():
                explained = explainer(given, given.executor)
                return replace(given, executor=explained, confirm=None, task=None, result=_no_result)
            case Resource() | ResourceTemplate():
                return replace(given, executor=explainer(given, given.executor), contents=lambda _outcome, _uri: ())
            case Prompt():
                return replace(given, messages=explainer(given, given.messages))
        raise TypeError(given)

    def explainer(given: Primitive, backend: Explainable) -> _Explainer:
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

    async def render(self, invocation: Invocation) -> Blocks:
        self._report_on(invocation)
        return Blocks(content=())

    def _report_on(self, invocation: Invocation) -> None:
        explanation = self.backend.explain(invocation)
        question = None if self.confirm is None else self.confirm.message.render(invocation.variables)
        redactor = self.redactor
        self.report(
            Explained(
                name=self.primitive.name,
                does=explanation.does,
                arguments=redactor.json(with_files_replaced(invocation.arguments, dict)),
                question=None if question is None else redactor.text(question),
                facts=redactor.json(explanation.facts),
                timeout_seconds=self.primitive.timeout.total_seconds(),
                from_caller=redactor.json(named_facts(self.primitive.caller_facts, invocation.variables)),
            )
        )


def _no_result(_outcome: Outcome, _invocation: Invocation) -> ToolResult:
    return ToolResult(content=())
