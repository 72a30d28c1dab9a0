"""Explains requests instead of running them.

Only the executors of the catalog are replaced, so aliases, defaults, coercion and errors are those of a real request.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.catalog.catalog import Catalog
from gateway.catalog.primitives import Primitive, Prompt, Resource, ResourceTemplate, Tool
from gateway.config.secrets.redactor import Redactor
from gateway.executors.invocation import Blocks, Explanation, Invocation, Outcome, ToolResult
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_argument import with_files_replaced
from gateway.language.templates.caller import named_facts

EVERY_CAPABILITY: Final[JsonObject] = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}}
"""All client capabilities that a definition can require."""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    does: str
    """What the call does, as the predicate of a sentence whose subject is `name`."""
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
    """Return a copy of the catalog whose executors report explanations, without confirmations and tasks."""

    def explaining(given: Primitive) -> Primitive:
        match given:
            case Tool():
                return replace(given, executor=explainer(given), confirm=None, task=None, result=_no_result)
            case Resource() | ResourceTemplate():
                return replace(given, executor=explainer(given), contents=lambda _outcome, _uri: ())
            case Prompt():
                return replace(given, executor=explainer(given), messages=_no_messages)
        raise TypeError(given)

    def explainer(given: Tool | Resource | ResourceTemplate | Prompt) -> _Explainer:
        return _Explainer(given, catalog.redactor, report)

    return catalog.with_primitives(map(explaining, catalog.primitives()))


class _Explainer(msgspec.Struct, frozen=True):
    primitive: Tool | Resource | ResourceTemplate | Prompt
    redactor: Redactor
    report: Callable[[Explained], None]

    def explain(self, invocation: Invocation) -> Explanation:
        return self.primitive.executor.explain(invocation)

    async def execute(self, invocation: Invocation) -> Outcome:
        explanation = self.explain(invocation)
        confirm = self.primitive.confirm if isinstance(self.primitive, Tool) else None
        question = None if confirm is None else confirm.message.render(invocation.variables)
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
        return Blocks(content=())


def _no_result(_outcome: Outcome, _invocation: Invocation) -> ToolResult:
    return ToolResult(content=())


async def _no_messages(_outcome: Outcome, _invocation: Invocation) -> Blocks:
    return Blocks(content=())
