"""Compiles `prompts:` into message templates or functions that return messages."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from gateway.catalog.compile import wire_definitions
from gateway.catalog.compile.backends import cached, described, signature_of, watch_missing
from gateway.catalog.compile.common_fields import common_fields
from gateway.catalog.compile.completion import compile_completer
from gateway.catalog.compile.context import MAX_SIZE, CompileContext, refuse_caller_as_input, warn_of_unused
from gateway.catalog.compile.relayed import relayed_of
from gateway.catalog.primitives import Completer, Prompt
from gateway.config.diagnostics.problems import Problems
from gateway.config.models import definitions as models
from gateway.errors import ExecutionError
from gateway.executors.content import BlocksTemplate, compile_blocks
from gateway.executors.files.executor import FileReader
from gateway.executors.invocation import Blocks, Executor, Explanation, FunctionExecutor, Invocation, Outcome, Relayed
from gateway.executors.output.result_shaper import shaped
from gateway.executors.output.sanitizer import Sanitizer
from gateway.executors.python.executor import PythonExecutor, compile_python
from gateway.executors.python.results import block_of, plain_json, valid_text
from gateway.executors.python.signature import Signature
from gateway.json_types import JsonObject
from gateway.language.scope import Inputs, Scope
from gateway.plugin import Audio, EmbeddedResource, Image, ResourceLink, Text
from gateway.threads import DaemonThreadPool

_TEXT: Final = {"type": "string"}


def compile_prompt(name: str, config: models.Prompt, *, problems: Problems, context: CompileContext) -> Prompt | None:
    """Return the prompt, or None after reporting that its function cannot be loaded."""
    signature = signature_of(config.python, problems=problems.at("python"), context=context)
    if config.python is not None and signature is None:
        return None
    arguments = config.arguments or _arguments_of(signature, problems=problems)
    scope = context.scope(_inputs(arguments), problems)
    if relayed_of(config) is None:
        refuse_caller_as_input(scope, config)
    version = context.version_of("prompts", name)
    messages = _compile_messages(config, signature, scope=scope, context=context)
    executor = cached(messages, config, version, problems=problems, context=context)
    completers = {
        **_compile_completers(arguments, scope=scope, context=context),
        **(relayed.completers if (relayed := relayed_of(config)) is not None else {}),
    }
    warn_of_unused(scope, config)
    return Prompt(
        **common_fields("prompts", name, config, scope=scope, context=context),
        definition=wire_definitions.prompt_definition(
            name, config, description=described(config, signature), arguments=arguments
        ),
        version=version,
        arguments=arguments,
        executor=executor,
        messages=partial(
            _masked_messages,
            # The operator wrote the messages in the file. Functions and upstreams can return untrusted text.
            sanitizer=Sanitizer(
                redactor=context.redactor,
                keeps_controls=config.backend == "messages",
                keeps_documents=config.backend == "upstream",
            ),
            max_size=context.defaults.output.max_size or MAX_SIZE,
            threads=context.services.worker_threads,
        ),
        completers=completers,
    )


def _arguments_of(signature: Signature | None, *, problems: Problems) -> Mapping[str, models.PromptArgument]:
    """Derive the prompt's arguments from the function's signature. The function fills in its own defaults."""
    if signature is None:
        return {}
    arguments = {}
    for name, schema in signature.input_schema.get("properties", {}).items():
        if not _takes_text(schema):
            problems.at("python").error(f"a prompt's arguments are text, but the parameter {name} does not accept text")
        arguments[name] = models.PromptArgument(
            title=schema.get("title"),
            description=schema.get("description"),
            required=name in signature.input_schema.get("required", ()),
            complete=[each for each in schema.get("enum", ()) if isinstance(each, str)] or None,
        )
    return arguments


def _takes_text(schema: JsonObject) -> bool:
    if "anyOf" in schema:
        return any(_takes_text(choice) for choice in schema["anyOf"])
    return "type" not in schema or schema["type"] == "string"


def _inputs(arguments: Mapping[str, models.PromptArgument]) -> Inputs:
    given = (name for name, argument in arguments.items() if argument.required or argument.default is not None)
    return Inputs(schemas=dict.fromkeys(arguments, _TEXT), always_given=frozenset(given))


def _compile_completers(
    arguments: Mapping[str, models.PromptArgument], *, scope: Scope, context: CompileContext
) -> Mapping[str, Completer]:
    compiled = {
        name: compile_completer(
            argument.complete, name=name, scope=scope.at("arguments", name, "complete"), context=context
        )
        for name, argument in arguments.items()
        if argument.complete is not None
    }
    return {name: completer for name, completer in compiled.items() if completer is not None}


def _compile_messages(
    config: models.Prompt, signature: Signature | None, *, scope: Scope, context: CompileContext
) -> Executor:
    if (relayed := relayed_of(config)) is not None:
        scope.use_all()
        return relayed.executor
    if config.python is not None and signature is not None:
        function = compile_python(config.python, signature, scope=scope.at("python"), threads=context.services.threads)
        return FunctionExecutor(function.explain, partial(_returned_messages, function))
    reader = FileReader(threads=context.services.worker_threads, max_size=MAX_SIZE)
    messages = []
    for index, message in enumerate(config.messages or []):
        place = scope.at("messages", index, message.role)
        watch_missing(message.blocks, problems=place.problems, context=context)
        messages.append((message.role, compile_blocks(message.blocks, scope=place, reader=reader)))
    return FunctionExecutor(partial(_explain_messages, messages), partial(_rendered_messages, messages))


async def _masked_messages(
    outcome: Outcome, invocation: Invocation, *, sanitizer: Sanitizer, max_size: int, threads: DaemonThreadPool
) -> Blocks | Relayed:
    """Mask secrets, because embedded files and results of functions can contain secrets."""
    assert isinstance(outcome, Blocks | Relayed)  # noqa: S101 - executors of prompts return these
    if isinstance(outcome, Relayed) and outcome.size > max_size:
        raise ExecutionError(f"The prompt is too large: it exceeds {max_size} characters")
    return await shaped(partial(_masked, outcome, sanitizer), size=outcome.size, call=invocation, threads=threads)


def _masked(outcome: Blocks | Relayed, sanitizer: Sanitizer) -> Blocks | Relayed:
    messages = tuple([{**each, "content": sanitizer.block(each["content"])} for each in outcome.content])
    if isinstance(outcome, Blocks):
        return replace(outcome, content=messages)
    description = None if outcome.description is None else sanitizer.text(outcome.description)
    return replace(outcome, content=messages, description=description, meta=sanitizer.json(outcome.meta))


def _explain_messages(messages: Sequence[tuple[str, BlocksTemplate]], invocation: Invocation) -> Explanation:
    reads = [source for _, template in messages for source in template.reads(invocation)]
    return Explanation(does="returns messages fixed in the file", facts={"messages": len(messages), "reads": reads})


async def _rendered_messages(messages: Sequence[tuple[str, BlocksTemplate]], invocation: Invocation) -> Blocks:
    """Render `messages:` into one message per block (MCP 2026-07-28 schema, PromptMessage)."""
    return Blocks(
        content=tuple(
            [
                {"role": role, "content": block}
                for role, template in messages
                for block in await template.render(invocation)
            ]
        )
    )


async def _returned_messages(function: PythonExecutor, invocation: Invocation) -> Blocks:
    """Call a function that returns messages or content. Content without a role becomes a user message."""
    return Blocks(content=tuple(await function.call(invocation, convert=_messages_of)))


def _messages_of(returned: object) -> Sequence[JsonObject]:
    items = returned if isinstance(returned, list | tuple) else [returned]
    return [message for item in items for message in _messages_from(item)]


def _messages_from(item: object) -> Iterator[JsonObject]:
    match item:
        case {"role": "user" | "assistant" as role, "content": content}:
            pass
        case {"user": content, **others} if not others:  # the short form, as in the file
            role = "user"
        case {"assistant": content, **others} if not others:
            role = "assistant"
        case _:
            role, content = "user", [item]
    contents = content if isinstance(content, list) else [content]
    yield from ({"role": role, "content": _block(each)} for each in contents)


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
            expected = "text, content, or a list of {role, content} or {user: …} and {assistant: …}"
            raise ExecutionError(
                f"A prompt's function must return {expected}, but this one returned {type(content).__name__}"
            )
