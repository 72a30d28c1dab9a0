"""Compile a definition of `tools:` into what is served."""

import re
from collections.abc import Sequence
from typing import Final, cast

from gateway.catalog import definitions
from gateway.catalog.backends import compile_backend, described, signature_of
from gateway.catalog.primitives import Confirmation, Tool
from gateway.catalog.requirements import required_capabilities
from gateway.catalog.schemas import compile_arguments
from gateway.catalog.versions import definition_version
from gateway.catalog.workbench import MAX_SIZE, Workbench, allowance_of, is_sound, warn_of_unused
from gateway.config import primitives as models
from gateway.config.definitions import Output
from gateway.config.problems import Problems
from gateway.executors.output.compiler import OF_FIXED_CONTENT, compile_output
from gateway.executors.output.parking import MAX_OUTPUT_BYTES
from gateway.executors.output.result_shaper import Backend
from gateway.executors.output.room import DEFAULT_MAX_SIZE
from gateway.executors.python.signature import Signature
from gateway.executors.scope import Scope
from gateway.executors.templates.templating import compile_text

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""MCP 2026-07-28 server/tools, "Tool Names"."""

_LONGEST_FOR_MODELS: Final = 64
"""Several models' programming interfaces refuse a longer name."""


def compile_tool(name: str, config: models.Tool, *, problems: Problems, bench: Workbench) -> Tool | None:
    """Make a definition ready; None where it was written wrongly, which is then reported."""
    _check_names(name, config.aliases, problems=problems)
    signature = signature_of(config.python, problems=problems.at("python"), bench=bench)
    derived = signature.input_schema if signature else None
    arguments = compile_arguments(config, problems, derived=derived, coerce=bench.defaults.coerce)
    scope = Scope(inputs=arguments.inputs, problems=problems)
    output = _output(config, signature, defaults=bench.defaults.output)
    executor = compile_backend(
        config, signature=signature, scope=scope, bench=bench, max_size=_most_bytes(config, output)
    )
    result = compile_output(
        output,
        backend=cast("Backend", config.backend),
        scope=scope.at("output"),
        redactor=bench.redactor,
        parked=bench.services.parked,
        overflows=bench.services.overflows,
    )
    confirm = _confirmation(config, scope=scope)
    if executor is None:
        return None
    warn_of_unused(scope, at=_short_form if config.input is not None else _long_form)
    description = described(config, signature)
    if description is None and is_sound(problems):
        problems.warning("has no `description`: models choose tools by it")
    allowance = allowance_of(config, bench=bench)
    return Tool(
        name=name,
        definition=definitions.tool_definition(
            name, config, description=description, input_schema=arguments.schema, output_schema=output.schema_
        ),
        timeout=allowance.timeout,
        concurrency=allowance.concurrency,
        queue=allowance.queue,
        rate_limit=allowance.rate_limit,
        access=bench.access_to("tools", name),
        aliases=tuple(config.aliases),
        tags=tuple(config.tags),
        required_capabilities=required_capabilities(config.requires),
        version=definition_version(config, signature, bench=bench),
        executor=executor,
        ask_timeout=allowance.ask_timeout,
        confirm=confirm,
        arguments=arguments,
        result=result,
        header_parameters=arguments.header_parameters,
    )


def _confirmation(config: models.Tool, *, scope: Scope) -> Confirmation | None:
    if config.confirm is None:
        return None
    message = compile_text(config.confirm, scope.at("confirm"))
    return Confirmation(message=message, is_optional=config.confirm_fallback == "allow")


def _short_form(name: str) -> tuple[str, ...]:
    return "input", name


def _long_form(name: str) -> tuple[str, ...]:
    return "input_schema", "properties", name


def _check_names(name: str, aliases: Sequence[str], *, problems: Problems) -> None:
    for each, place in ((name, problems), *((alias, problems.at("aliases", i)) for i, alias in enumerate(aliases))):
        if not _NAME.fullmatch(each):
            place.error("a tool's name has 1 to 128 of the characters A-Z a-z 0-9 _ . -")
        elif len(each) > _LONGEST_FOR_MODELS:
            place.warning(f"a name of {len(each)} characters: several models take no more than {_LONGEST_FOR_MODELS}")
    if "." in name:
        problems.warning("a name with `.` in it: several clients and models take A-Z a-z 0-9 _ - alone")


def _output(config: models.Tool, signature: Signature | None, *, defaults: Output) -> Output:
    """What the tool says, then what its function's return annotation does, then the file's defaults."""
    said = config.output or Output()
    if config.content is not None:
        defaults = Output().model_copy(update={name: getattr(defaults, name) for name in OF_FIXED_CONTENT})
    merged = defaults.model_copy(update={name: getattr(said, name) for name in said.model_fields_set})
    if config.python is not None and signature is None:
        return merged.model_copy(update={"template": None})  # what it may name is not known: one mistake, one line
    if signature is None or signature.output_schema is None or _reshapes(merged):
        return merged
    return merged.model_copy(update={"schema_": signature.output_schema})


def _most_bytes(config: models.Tool, output: Output) -> int:
    """What a backend may bring: more than the model is shown, since the rest may be selected from, or parked.

    A command's output whose middle will be cut out has it left out at once, but for what cleaning may take away.
    """
    is_cut = output.overflow in {None, "truncate"} and output.format in {"auto", "text"}
    if config.shell is not None and is_cut and not (output.select or output.template or output.schema_ is not None):
        return 2 * (DEFAULT_MAX_SIZE if output.max_size is None else output.max_size)
    return MAX_OUTPUT_BYTES if output.overflow == "resource" else max(output.max_size or 0, MAX_SIZE)


def _reshapes(output: Output) -> bool:
    """Whether what comes out is not what the function returned."""
    return output.schema_ is not None or output.select is not None or output.format not in {"auto", "json"}
