"""Explains what requests would do, without running them.

Only the executors of the catalog are replaced, so aliases, defaults, coercion and errors are the same as in real
requests.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.catalog.catalog import Catalog
from gateway.catalog.primitives import Primitive, Prompt, Resource, ResourceTemplate, Tool
from gateway.config.secrets.redactor import Redactor
from gateway.executors.invocation import Blocks, Executor, FunctionExecutor, Invocation, Outcome, ToolResult
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_argument import with_files_replaced
from gateway.language.templates.caller import named_facts

EVERY_CAPABILITY: Final[JsonObject] = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}}
"""All client capabilities that a definition can require."""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    does: str
    """The effect of the call, as the predicate of a sentence whose subject is `name`."""
    arguments: JsonObject
    """Validated arguments with defaults, as passed to the backend."""
    question: str | None
    """The question of `confirm` to the user, or None without `confirm`."""
    facts: Mapping[str, Json]
    """The command, request or function that the backend would run."""
    timeout_seconds: float
    from_caller: JsonObject
    """Attributes of the caller that templates use, by name (such as `caller.subject`)."""

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
    """Return a copy of the catalog that reports explanations instead of running calls, without `confirm` and `task`."""

    def explaining(given: Primitive) -> Primitive:
        match given:
            case Tool():
                executor, result = explainer(given), ToolResult(content=())
                return replace(given, executor=executor, confirm=None, task=None, result=lambda _, __: result)
            case Resource() | ResourceTemplate():
                return replace(given, executor=explainer(given), contents=lambda _outcome, _uri: ())
            case Prompt():
                return replace(given, executor=explainer(given), messages=_no_messages)
        raise TypeError(given)

    explainer = partial(_explainer, redactor=catalog.redactor, report=report)
    return catalog.with_primitives(map(explaining, catalog.primitives()))


def _explainer(
    primitive: Tool | Resource | ResourceTemplate | Prompt, *, redactor: Redactor, report: Callable[[Explained], None]
) -> Executor:
    async def execute(invocation: Invocation) -> Outcome:
        explanation = primitive.executor.explain(invocation)
        confirm = primitive.confirm if isinstance(primitive, Tool) else None
        question = None if confirm is None else confirm.render(invocation.variables)
        report(
            Explained(
                name=primitive.name,
                does=explanation.does,
                arguments=redactor.json(with_files_replaced(invocation.arguments, dict)),
                question=None if question is None else redactor.text(question),
                facts=redactor.json(explanation.facts),
                timeout_seconds=primitive.timeout.total_seconds(),
                from_caller=redactor.json(named_facts(primitive.caller_facts, invocation.variables)),
            )
        )
        return Blocks(content=())

    return FunctionExecutor(primitive.executor.explain, execute)


async def _no_messages(_outcome: Outcome, _invocation: Invocation) -> Blocks:
    return Blocks(content=())
