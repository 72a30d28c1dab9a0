"""A catalog whose executors explain what they would do instead of doing it.

The request is handled like a real one, so aliases, defaults, coercion and errors are the same.
"""

from collections.abc import Callable, Mapping, Sequence
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
"""Client capabilities that satisfy every definition."""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a call, read or prompt, with secrets masked."""

    name: str
    """Key of the primitive in the file."""
    does: str
    """The rest of a sentence that starts with the name."""
    arguments: JsonObject
    """Validated arguments with defaults, as the backend receives them."""
    question: str | None
    """Text of `confirm` that the user would have to accept."""
    facts: Mapping[str, Json]
    """The command, request or function of the backend."""
    timeout_seconds: float
    from_caller: JsonObject
    """The facts of the caller that templates of the definition read, by name such as `caller.subject`."""

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
                return replace(given, executor=explained, confirm=None, task=None, result=_NOTHING)
            case Resource() | ResourceTemplate():
                return replace(given, executor=explainer(given, given.executor), contents=_NOTHING)
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


class _Nothing:
    """Returns empty results and contents, because nothing was run."""

    def shape(self, _outcome: Outcome, _invocation: Invocation) -> ToolResult:
        return ToolResult(content=())

    def contents(self, _outcome: Outcome, *, uri: str) -> Sequence[JsonObject]:  # noqa: ARG002 - a seam's signature
        return ()


_NOTHING: Final = _Nothing()
