"""Say what a call, a read or a prompt would do, and do nothing of it.

Why through the dispatcher: what is explained has gone the whole way of a call, so that aliases, defaults, coercion and
every refusal are those of the real one. Only what stands at the end of it is another, which says what it would do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gateway.app.rehearsal.rehearsal import rehearsed
from gateway.catalog.primitives import Catalog, Confirmation, Prompt, Resource, ResourceTemplate, Tool
from gateway.config.secrets import Redactor
from gateway.config.settings import Settings
from gateway.errors import ExecutionError, RpcError
from gateway.executors.explanation import Explainable
from gateway.executors.invocation import Blocks, Invocation, Outcome, ToolResult
from gateway.json_types import Json, JsonObject

_EVERYTHING: Final[JsonObject] = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}}
"""Capabilities of a client whom no definition refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What a call, a read or a prompt would do. Secrets are masked."""

    name: str
    """The primitive's key in the file."""
    does: str
    """What it does, as the rest of a sentence that begins with the name."""
    arguments: JsonObject
    """As the backend would see them: with defaults, coerced, and valid."""
    question: str | None
    """What the user would be asked first."""
    facts: Mapping[str, Json]
    """What the backend says of it."""
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
    with rehearsed(settings) as rehearsal:
        told: list[Explained] = []
        client = rehearsal.client(_explaining(rehearsal.catalog, told.append), capabilities=_EVERYTHING)
        try:
            result = await client.request(method, params)
        except RpcError as error:
            if (reason := _why_left_out(rehearsal.catalog, params)) is None:
                raise
            raise ExecutionError(reason) from error
    if not told:
        raise ExecutionError("\n".join(block.get("text", "") for block in result.get("content", ())))
    return told[0]


def _why_left_out(catalog: Catalog, params: JsonObject) -> str | None:
    """Why callers do not know a definition of the file; None where that is not the matter."""
    asked = params.get("name") or params["uri"].partition(":")[0]
    return next((str(each) for each in catalog.left_out if each.name == asked), None)


def _explaining(catalog: Catalog, tell: Callable[[Explained], None]) -> Catalog:
    """The catalog, with executors that say what they would do, and with nothing that a user would have to answer."""

    def explainer(given: Tool | Resource | ResourceTemplate | Prompt) -> _Explainer:
        confirm = given.confirm if isinstance(given, Tool) else None
        backend = given.messages if isinstance(given, Prompt) else given.executor
        assert isinstance(backend, Explainable)  # noqa: S101 - all of ours are
        return _Explainer(backend, given, confirm, catalog.redactor, tell)

    tools = {
        name: replace(each, executor=explainer(each), confirm=None, result=_NOTHING)
        for name, each in catalog.tools.items()
    }
    resources = {
        uri: replace(each, executor=explainer(each), contents=_NOTHING) for uri, each in catalog.resources.items()
    }
    templates = (replace(each, executor=explainer(each), contents=_NOTHING) for each in catalog.resource_templates)
    prompts = {name: replace(each, messages=explainer(each)) for name, each in catalog.prompts.items()}
    return replace(catalog, tools=tools, resources=resources, resource_templates=tuple(templates), prompts=prompts)


@dataclass(frozen=True, slots=True)
class _Explainer:
    backend: Explainable
    primitive: Tool | Resource | ResourceTemplate | Prompt
    confirm: Confirmation | None
    redactor: Redactor
    tell: Callable[[Explained], None]

    async def execute(self, invocation: Invocation) -> Outcome:
        self._tell_of(invocation)
        return Blocks(content=())

    async def render(self, invocation: Invocation) -> Sequence[JsonObject]:
        self._tell_of(invocation)
        return ()

    def _tell_of(self, invocation: Invocation) -> None:
        explanation = self.backend.explain(invocation)
        question = None if self.confirm is None else self.confirm.message.render(invocation.arguments)
        redactor = self.redactor
        self.tell(
            Explained(
                name=self.primitive.name,
                does=explanation.does,
                arguments=redactor.json(invocation.arguments),
                question=None if question is None else redactor.text(question),
                facts=redactor.json(explanation.facts),
                timeout_seconds=self.primitive.timeout.total_seconds(),
            )
        )


class _Nothing:
    """Shapes nothing."""

    def shape(self, _outcome: Outcome, _invocation: Invocation) -> ToolResult:
        return ToolResult(content=())

    def contents(self, _outcome: Outcome, *, uri: str) -> Sequence[JsonObject]:  # noqa: ARG002 - a seam's signature
        return ()


_NOTHING: Final = _Nothing()
