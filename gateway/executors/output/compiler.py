from collections.abc import Callable
from functools import partial
from typing import Final

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions
from jmespath.parser import ParsedResult

from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.models.definition_keys import Output
from gateway.config.secrets.redactor import Redactor
from gateway.executors.output.formats import PARSERS
from gateway.executors.output.output_store import OutputStore
from gateway.executors.output.result_shaper import OutputTraits, ResultShaper, accepted
from gateway.executors.output.sanitizer import Sanitizer
from gateway.executors.output.size_limit import DEFAULT_MAX_SIZE, DEFAULT_MAX_TOTAL, OutputCounters, SizeLimit
from gateway.json_types import Json, JsonObject
from gateway.language.schemas.json_schema import Validator, compile_schema
from gateway.language.scope import Scope
from gateway.language.templates.expressions import ALL_INPUTS
from gateway.language.templates.templating import compile_text

OF_FIXED_CONTENT: Final = frozenset({"max_size", "overflow", "raw"})
"""Keys of `output` that also apply to a backend with fixed `content`."""


def compile_output(  # noqa: PLR0913 - the configuration and its context
    config: Output,
    *,
    traits: OutputTraits,
    scope: Scope,
    redactor: Redactor,
    output_store: OutputStore,
    counters: OutputCounters,
) -> ResultShaper:
    _check_format(config, traits, scope)
    if traits.is_table and config.format in PARSERS:
        scope.at("format").problems.error(f"has no effect, because database rows are not {config.format}")
    template = config.template
    names = ("result", ALL_INPUTS, *traits.names)
    return ResultShaper(
        traits=traits,
        format=config.format,
        mime_type=config.mime_type,
        select=compile_select(config.select, scope.at("select")) if config.select is not None else None,
        template=compile_text(template, scope.at("template").naming(*names)) if template is not None else None,
        schema=_compile_schema(config, scope, counters),
        sanitizer=Sanitizer(redactor=redactor, keeps_controls=config.raw, keeps_documents=traits.keeps_documents),
        room=SizeLimit(
            max_size=DEFAULT_MAX_SIZE if config.max_size is None else config.max_size,
            max_total=DEFAULT_MAX_TOTAL if config.max_size is None else config.max_size,
            overflow=config.overflow or "truncate",
            output_store=output_store,
            counters=counters,
        ),
    )


def _compile_schema(
    config: Output, scope: Scope, counters: OutputCounters
) -> Validator | Callable[[Json], JsonObject] | None:
    if config.schema_ is None:
        if config.mismatch != "error":
            scope.at("mismatch").problems.error("requires `schema`")
        return None
    if config.mismatch == "error":
        return compile_schema(config.schema_, scope.problems.at("schema"))
    return partial(accepted, schema=config.schema_, place=scope.problems.path, counters=counters)


def _key_of(field: str) -> str:
    return Output.model_fields[field].alias or field


def _check_format(config: Output, traits: OutputTraits, scope: Scope) -> None:
    if traits.is_fixed:
        for name in config.model_fields_set - OF_FIXED_CONTENT:
            scope.at(_key_of(name)).problems.error("has no effect, because `content` is sent as written")
        return
    if config.format == "text" and config.schema_ is not None:
        scope.at("schema").problems.error("requires structured content, but `format: text` has none")
    if config.format not in {"image", "audio", "binary"}:
        return
    for name in ("select", "template", "schema_"):
        if getattr(config, name) is not None:
            scope.at(_key_of(name)).problems.error(f"requires text or JSON, but `format` is {config.format}")
    if config.format == "binary":
        return
    if config.mime_type is not None and not config.mime_type.startswith(f"{config.format}/"):
        scope.at("mime_type").problems.error(f"expected {config.format}/…, to match `format`")
    if config.mime_type is None and not traits.has_media_type:
        example = {"image": "image/png", "audio": "audio/wav"}[config.format]
        scope.at("format").problems.error(f"requires `mime_type`, such as {example}, because the backend has no type")


def compile_select(source: str, scope: Scope) -> ParsedResult | None:
    try:
        parsed = jmespath.compile(source)
    except JMESPathError as error:
        # The rest of the message repeats the expression.
        reason = str(error).partition("\n")[0].partition(", for expression")[0].rpartition("expression: ")[2]
        scope.problems.error(f"not a valid JMESPath expression: {reason.rstrip('.: ')}")
        return None
    # jmespath checks function names only during a search.
    for name in _functions_in(parsed.parsed):
        if name not in _FUNCTIONS:
            scope.problems.error(f"JMESPath has no function `{name}`{did_you_mean(name, sorted(_FUNCTIONS))}")
    return parsed


_FUNCTIONS: Final = frozenset(Functions.FUNCTION_TABLE)


def _functions_in(node: Json) -> list[str]:
    own = [node["value"]] if node["type"] == "function_expression" else []
    return own + [name for child in node["children"] if isinstance(child, dict) for name in _functions_in(child)]
