"""Compiles `tools:`."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from gateway.catalog.compile import wire_definitions
from gateway.catalog.compile.apps import app_uri, tool_meta
from gateway.catalog.compile.arguments import compile_arguments
from gateway.catalog.compile.backends import BACKENDS, cached, compile_backend, described, signature_of, with_defaults
from gateway.catalog.compile.common_fields import common_fields
from gateway.catalog.compile.context import MAX_SIZE, CompileContext, refuse_caller_as_input, warn_of_unused
from gateway.catalog.compile.relayed import relayed_of
from gateway.catalog.primitives import Tool
from gateway.config.diagnostics.problems import Problems
from gateway.config.models import definitions as models
from gateway.config.models.base import defaults_of
from gateway.config.models.definition_keys import Output, TaskDefaults, ToolTask
from gateway.executors.output.compiler import OF_FIXED_CONTENT, compile_output
from gateway.executors.output.output_store import MAX_OUTPUT_BYTES
from gateway.executors.output.size_limit import DEFAULT_MAX_SIZE
from gateway.executors.python.signature import Signature
from gateway.json_types import JsonObject
from gateway.language.schemas.keywords import with_items
from gateway.language.templates.templating import compile_text

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""The tool names that MCP allows (MCP 2026-07-28 server/tools, "Tool Names")."""

_MAX_NAME_LENGTH: Final = 64
"""The maximum length of tool names in the APIs of several model providers."""


def compile_tool(name: str, config: models.Tool, *, problems: Problems, context: CompileContext) -> Tool | None:
    """Return the tool, or None after reporting that its function cannot be loaded."""
    _check_names(name, config.aliases, problems=problems)
    signature = signature_of(config.python, problems=problems.at("python"), context=context)
    if config.python is not None and signature is None:
        return None
    derived = signature.input_schema if signature else None
    arguments = compile_arguments(
        config, problems, derived=derived, coerce=context.defaults.coerce, max_body=context.max_body
    )
    for key, confinement in arguments.confinements.items():
        within = problems.at("input", key, "within")
        context.dependencies.add_root(str(confinement.root), resolved=confinement.real_root, problems=within)
    scope = context.scope(arguments.inputs, problems)
    if relayed_of(config) is None:
        refuse_caller_as_input(scope, config)
    output = _output(config, signature, defaults=context.defaults.output)
    version = context.version_of("tools", name)
    max_size = _max_bytes(config, output)
    backend = compile_backend(config, signature=signature, scope=scope, context=context, max_size=max_size)
    executor = cached(backend, config, version, problems=problems, context=context)
    result = compile_output(
        output,
        traits=BACKENDS[config.backend].output,
        scope=scope.at("output"),
        redactor=context.redactor,
        output_store=context.services.output_store,
        counters=context.services.output_counters,
    )
    confirm = None if config.confirm is None else compile_text(config.confirm, scope.at("confirm"))
    warn_of_unused(scope, config)
    description = described(config, signature)
    if description is None:
        problems.warning("has no `description`: models need it to choose a tool")
    task = _task(config, defaults=context.defaults.task, problems=problems)
    return Tool(
        **common_fields("tools", name, config, scope=scope, context=context),
        definition=wire_definitions.tool_definition(
            name,
            config,
            description=description,
            input_schema=arguments.schema,
            output_schema=_announced(output, is_relayed=relayed_of(config) is not None),
            meta={} if config.app is None else tool_meta(config.app, uri=app_uri(name, server=context.server)),
        ),
        version=version,
        executor=executor,
        confirm=confirm,
        is_confirm_optional=config.confirm_fallback == "allow",
        arguments=arguments,
        result=result.shape,
        name_in_app="" if (relayed := relayed_of(config)) is None else relayed.name_in_app,
        task=task,
    )


def _check_names(name: str, aliases: Sequence[str], *, problems: Problems) -> None:
    for each, place in ((name, problems), *((alias, problems.at("aliases", i)) for i, alias in enumerate(aliases))):
        if not _NAME.fullmatch(each):
            place.error("a tool's name must have 1 to 128 of the characters A-Z a-z 0-9 _ . -")
        elif len(each) > _MAX_NAME_LENGTH:
            place.warning(f"the name has {len(each)} characters. Several models accept at most {_MAX_NAME_LENGTH}")
    # MCP allows dots, but the APIs behind many hosts do not.
    if "." in name:
        problems.warning("the name contains `.`. Several clients and models accept only A-Z a-z 0-9 _ -")


def _output(config: models.Tool, signature: Signature | None, *, defaults: Output) -> Output:
    if config.content is not None:
        # Most defaults of the file would have no effect on fixed content, or would be invalid.
        defaults = defaults_of(Output, **{name: getattr(defaults, name) for name in OF_FIXED_CONTENT})
    merged = with_defaults(config.output, defaults)
    if signature is None or signature.output_schema is None or _reshapes(merged):
        return merged
    return merged.model_copy(update={"schema_": signature.output_schema})


def _announced(output: Output, *, is_relayed: bool) -> JsonObject | None:
    if output.schema_ is None or is_relayed:
        return output.schema_
    schema: JsonObject = with_items(output.schema_)
    if output.mismatch != "accept":
        return schema
    # Allow any object, because clients reject results that do not match. References are relative to the root.
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    own = {key: value for key, value in schema.items() if key != "$defs"}
    return {"type": "object", "anyOf": [own, {}], **shared}


def _max_bytes(config: models.Tool, output: Output) -> int:
    """Return the maximum size of a backend's result, in bytes.

    If `output` truncates long results, a query stops at `max_size`, and a command at twice `max_size`, because control
    characters are removed later. Otherwise, the full result is needed, for example for `select`.
    """
    cut, max_size = BACKENDS[config.backend].cut, DEFAULT_MAX_SIZE if output.max_size is None else output.max_size
    is_cut = output.overflow in {None, "truncate"} and not (output.select or output.template)
    if cut == "bytes" and is_cut and output.format in {"auto", "text"} and output.schema_ is None:
        return 2 * max_size
    if cut == "rows" and is_cut:
        return max_size
    return MAX_OUTPUT_BYTES if output.overflow == "resource" else max(output.max_size or 0, MAX_SIZE)


def _reshapes(output: Output) -> bool:
    return output.schema_ is not None or output.select is not None or output.format not in {"auto", "json"}


def _task(config: models.Tool, *, defaults: TaskDefaults, problems: Problems) -> ToolTask | None:
    task = config.task
    if task is None:
        return None
    if task.restart and not (config.annotations is not None and config.annotations.idempotent):
        problems.at("task", "restart").error(
            "only idempotent tools can be restarted. If this tool is, set `annotations: {idempotent: true}`"
        )
    if task.mode == "never":
        return None
    # Required tasks start at once, because the result can only be a task.
    after = task.after if task.mode == "optional" else timedelta()
    return task.model_copy(update={"ttl": task.ttl or defaults.ttl, "after": after})
