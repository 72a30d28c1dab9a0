"""Compile a definition of `prompts:`: fixed messages with templates in them, or a function that returns messages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.catalog import definitions
from gateway.catalog.backends import described, signature_of, watch_missing
from gateway.catalog.completion import compile_completer
from gateway.catalog.primitives import Completer, Prompt, PromptArgument
from gateway.catalog.requirements import required_capabilities
from gateway.catalog.versions import definition_version
from gateway.catalog.workbench import MAX_SIZE, Workbench, allowance_of, is_sound, warn_of_unused
from gateway.config import primitives as models
from gateway.config.problems import Problems
from gateway.errors import ExecutionError
from gateway.executors.content import BlocksTemplate, compile_blocks
from gateway.executors.explanation import Explanation
from gateway.executors.files.executor import FileReader
from gateway.executors.invocation import Invocation
from gateway.executors.output.scrubber import Scrubber
from gateway.executors.python.executor import PythonExecutor, compile_python
from gateway.executors.python.results import block_of, plain_json, valid_text
from gateway.executors.python.signature import Signature
from gateway.executors.scope import Inputs, Scope
from gateway.json_types import JsonObject
from gateway.plugin import Audio, EmbeddedResource, Image, ResourceLink, Text

_TEXT: Final = {"type": "string"}


def compile_prompt(name: str, config: models.Prompt, *, problems: Problems, bench: Workbench) -> Prompt | None:
    """Make a definition ready; None where it was written wrongly, which is then reported."""
    signature = signature_of(config.python, problems=problems.at("python"), bench=bench)
    if config.python is not None and signature is None:
        return None
    arguments = config.arguments or _arguments_of(signature, problems=problems)
    scope = Scope(inputs=_inputs(arguments, problems.at("arguments")), problems=problems)
    messages = _compile_messages(config, signature, scope=scope, bench=bench)
    completers = _compile_completers(arguments, scope=scope, bench=bench)
    warn_of_unused(scope, at=lambda name: ("arguments", name))
    allowance = allowance_of(config, bench=bench)
    return Prompt(
        name=name,
        definition=definitions.prompt_definition(
            name, config, description=described(config, signature), arguments=arguments
        ),
        timeout=allowance.timeout,
        concurrency=allowance.concurrency,
        queue=allowance.queue,
        rate_limit=allowance.rate_limit,
        ask_timeout=allowance.ask_timeout,
        access=bench.access_to("prompts", name),
        aliases=tuple(config.aliases),
        tags=tuple(config.tags),
        required_capabilities=required_capabilities(config.requires),
        version=definition_version(config, signature, bench=bench),
        arguments=tuple(_argument(key, argument) for key, argument in arguments.items()),
        messages=_MaskedMessages(messages, Scrubber(redactor=bench.redactor, keeps_controls=True)),
        completers=completers,
    )


def _arguments_of(signature: Signature | None, *, problems: Problems) -> Mapping[str, models.PromptArgument]:
    """What a function's signature says, where the file says nothing. Its own defaults need not be sent to it."""
    if signature is None:
        return {}
    arguments = {}
    for name, schema in signature.input_schema.get("properties", {}).items():
        if not _takes_text(schema):
            problems.at("python").error(f"a prompt's arguments are text, and the parameter {name} takes none")
        arguments[name] = models.PromptArgument(
            title=schema.get("title"),
            description=schema.get("description"),
            required=name in signature.input_schema.get("required", ()),
            complete=_choices(schema),
        )
    return arguments


def _takes_text(schema: JsonObject) -> bool:
    if "anyOf" in schema:
        return any(_takes_text(choice) for choice in schema["anyOf"])
    return "type" not in schema or schema["type"] == "string"


def _choices(schema: JsonObject) -> list[str] | None:
    return [choice for choice in schema.get("enum", ()) if isinstance(choice, str)] or None


def _inputs(arguments: Mapping[str, models.PromptArgument], problems: Problems) -> Inputs:
    given = (
        name
        for name, argument in arguments.items()
        if argument.required or argument.default is not None or not is_sound(problems.at(name))
    )
    return Inputs(schemas=dict.fromkeys(arguments, _TEXT), always_given=frozenset(given))


def _argument(name: str, config: models.PromptArgument) -> PromptArgument:
    return PromptArgument(name=name, required=config.required, default=config.default)


def _compile_completers(
    arguments: Mapping[str, models.PromptArgument], *, scope: Scope, bench: Workbench
) -> Mapping[str, Completer]:
    compiled = {
        name: compile_completer(
            argument.complete, name=name, scope=scope.at("arguments", name, "complete"), bench=bench
        )
        for name, argument in arguments.items()
        if argument.complete is not None
    }
    return {name: completer for name, completer in compiled.items() if completer is not None}


def _compile_messages(
    config: models.Prompt, signature: Signature | None, *, scope: Scope, bench: Workbench
) -> "_WrittenMessages | _ReturnedMessages":
    if config.python is not None and signature is not None:
        place = scope.at("python")
        return _ReturnedMessages(compile_python(config.python, signature, scope=place, threads=bench.services.threads))
    reader = FileReader(threads=bench.services.threads, max_size=MAX_SIZE)
    messages = []
    for index, message in enumerate(config.messages or []):
        place = scope.at("messages", index, message.role)
        watch_missing(message.blocks, problems=place.problems, bench=bench)
        messages.append((message.role, compile_blocks(message.blocks, scope=place, reader=reader)))
    return _WrittenMessages(tuple(messages))


@dataclass(frozen=True, slots=True)
class _MaskedMessages:
    """Messages without secrets: files that they embed, and functions, may hold some."""

    messages: "_WrittenMessages | _ReturnedMessages"
    scrubber: Scrubber

    def explain(self, invocation: Invocation) -> Explanation:
        return self.messages.explain(invocation)

    async def render(self, invocation: Invocation) -> Sequence[JsonObject]:
        return [
            {**message, "content": self.scrubber.block(message["content"])}
            for message in await self.messages.render(invocation)
        ]


@dataclass(frozen=True, slots=True)
class _WrittenMessages:
    """`messages:`. A message has one block (2026-07-28 schema, PromptMessage), so each block becomes one."""

    messages: tuple[tuple[str, BlocksTemplate], ...]

    def explain(self, invocation: Invocation) -> Explanation:
        reads = [source for _, template in self.messages for source in template.reads(invocation)]
        return Explanation(
            does="gives messages that the file fixes", facts={"messages": len(self.messages), "reads": reads}
        )

    async def render(self, invocation: Invocation) -> Sequence[JsonObject]:
        return [
            {"role": role, "content": block}
            for role, template in self.messages
            for block in await template.render(invocation)
        ]


@dataclass(frozen=True, slots=True)
class _ReturnedMessages:
    """`python:`, a function that returns messages or content; content without a role is the user's."""

    function: PythonExecutor

    def explain(self, invocation: Invocation) -> Explanation:
        return self.function.explain(invocation)

    async def render(self, invocation: Invocation) -> Sequence[JsonObject]:
        return await self.function.call(invocation, convert=_messages_of)


def _messages_of(returned: object) -> Sequence[JsonObject]:
    items = returned if isinstance(returned, list | tuple) else [returned]
    return [message for item in items for message in _messages_from(item)]


def _messages_from(item: object) -> Iterator[JsonObject]:
    match item:
        case {"role": "user" | "assistant" as role, "content": list(contents)}:
            yield from ({"role": role, "content": _block(content)} for content in contents)
        case {"role": "user" | "assistant" as role, "content": content}:
            yield {"role": role, "content": _block(content)}
        case _:
            yield {"role": "user", "content": _block(item)}


def _block(content: object) -> JsonObject:
    match content:
        case str():
            return {"type": "text", "text": valid_text(content)}
        case Text() | Image() | Audio() | EmbeddedResource() | ResourceLink():
            return block_of(content)
        case {"type": str()}:
            block: JsonObject = plain_json(content)
            return block
        case _:
            expected = "text, content, or a list of {role, content}"
            raise ExecutionError(f"A prompt's function returns {expected}; this one returned {type(content).__name__}")
