import asyncio
import json
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

import orjson
from msgspec.structs import replace

from gateway import exact_json
from gateway.audit.audit_log import check_audit_file
from gateway.catalog.catalog import Catalog
from gateway.catalog.compile.arguments import compile_arguments
from gateway.cli.console import Console, counted, left_out_lines, protect_stdout
from gateway.cli.dry_run import DryRun, FetchedSources, dry_run, fetched_sources
from gateway.cli.options import add_config, add_json, add_lists_all, one_shot_settings
from gateway.cli.parser import Parser
from gateway.config.diagnostics.problems import Problems
from gateway.config.diagnostics.render import as_json, render
from gateway.config.loader import LoadedConfig
from gateway.config.models.backends import SqlCompletion
from gateway.config.models.definitions import CommandCompletion
from gateway.config.settings import Settings
from gateway.errors import ConfigError, ExecutionError, Problem, Severity
from gateway.executors.sql.compiler import compile_query
from gateway.executors.sql.dialects import StatementError, dialect_of, first_word
from gateway.executors.sql.pools import DatabasePools, DatabaseProfile, Session, failure_of
from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.scope import Inputs, Scope
from gateway.reload.exposure import exposures

_FREE_TEXT: Final = frozenset({"$comment", "description", "title"})
"""Schema keys that contain free text, which does not affect the validity of the schema."""
_QUERY_SECONDS: Final = 10.0
"""Time limit for all queries of one database."""
_Query = tuple[SqlCompletion, DocumentPath, Inputs]
"""A query, its path in the file, and the inputs that it can use."""
_DEFINING: Final = frozenset({"CREATE", "ALTER", "DROP"})
"""Statements that change the schema. Statements after them can depend on the change, so they are not checked."""


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        summary="Check the file and everything it refers to, without serving it. Reports all errors at once.",
        epilog=f"""\
examples:
  {name} config.yaml
  {name} --strict config.yaml && systemctl reload mcp-gateway
  {name} --connect config.yaml

exit codes:
  0    the file can be served, possibly with warnings
  1    there are warnings, and --strict was given
  2    the file cannot be served""",
    )
    add_config(arguments)
    arguments.add_argument("--strict", action="store_true", help="fail on warnings too")
    arguments.add_argument(
        "--connect",
        action="store_true",
        help="connect to upstreams and databases, and check their definitions and queries too",
    )
    add_lists_all(arguments)
    add_json(arguments, "the problems as a JSON list")
    return arguments


async def run(options: Namespace, out: Console, hints: Console) -> int:
    settings = one_shot_settings(options, None)
    problems: Sequence[Problem]
    try:
        with protect_stdout():
            dry, problems = await _asked(settings) if options.connect else check(settings)
            if not options.connect:
                _show_unfetched(dry.loaded, hints)
            left_out = [{"kind": each.kind, "name": each.name, "reason": each.reason} for each in dry.catalog.left_out]
            hint = "`--list` lists each with the reason"
            for line in left_out_lines(left_out, lists_all=options.lists_all, hint=hint):
                hints.line(line)
    # Do not raise the error, because the problems of an invalid file are the result of this command.
    except ConfigError as error:
        problems = error.problems
    errors = sum(problem.severity is Severity.ERROR for problem in problems)
    if options.json:
        out.foreign(json.dumps([as_json(problem) for problem in problems], indent=2))
    else:
        if problems:
            out.line(render(problems, colour=out.has_colour))
        hints.line(_summary(str(settings.config), errors, len(problems) - errors, hints))
    if errors:
        return 2
    return 1 if problems and options.strict else 0


async def _asked(settings: Settings) -> tuple[DryRun, Sequence[Problem]]:
    async with fetched_sources(settings) as sources:
        dry, problems = check(settings, sources=sources)
        refused = await refused_queries(dry.loaded, dry.catalog.databases)
        return dry, (*problems, *refused, *(() if sources is None else sources.unreachable))


def _show_unfetched(loaded: LoadedConfig, hints: Console) -> None:
    for name, entry in loaded.document.openapi.items():
        if entry.is_remote:
            document = loaded.redactor.text(entry.document)
            hints.line(f"openapi.{name}: {document} was not fetched. Use --connect to fetch it")


def _summary(config: str, errors: int, warnings: int, hints: Console) -> str:
    counts = [counted(count, noun) for count, noun in ((errors, "error"), (warnings, "warning")) if count]
    if errors:
        return hints.styled(f"{config} cannot be served: {', '.join(counts)}", "red")
    return hints.styled(f"{config} is valid" + f" ({', '.join(counts)})" * bool(counts), "green")


def check(settings: Settings, *, sources: FetchedSources | None = None) -> tuple[DryRun, Sequence[Problem]]:
    """Load and compile the file, and return the compiled configuration with all warnings.

    Raises:
        ConfigError: the file cannot be served. The error contains every problem and warning.
    """
    with dry_run(settings, checks=(check_audit_file,), sources=sources) as dry:
        exposed = _exposures(dry.loaded, settings)
        return dry, (*dry.catalog.warnings, *exposed, *cross_check_schemas(dry.catalog))


def _exposures(loaded: LoadedConfig, settings: Settings) -> list[Problem]:
    """Return warnings for addresses that `serve` rejects unless anonymous access is allowed."""
    if settings.allow_anonymous or not settings.serves_http:
        return []
    overruled = set() if settings.http is None else {"listen.http"}
    return [
        replace(problem, severity=Severity.WARNING)
        for key, problem in exposures(loaded).items()
        if key not in overruled
    ]


def cross_check_schemas(catalog: Catalog) -> Iterator[Problem]:
    """Yield a warning for each schema that a second validator, jsonschema, rejects.

    The gateway uses jsonschema-rs, but clients use other libraries, which can interpret a schema differently. The check
    is slow, so only `validate` runs it.
    """
    for tool in catalog.tools.values():
        for member, key in (("inputSchema", "input"), ("outputSchema", "output.schema")):
            schema: JsonObject | None = tool.definition.get(member)
            if schema is not None and (reason := _rejection(schema)) is not None:
                message = f"another JSON Schema validator (jsonschema) rejects the {member}: {reason}"
                yield Problem(message=message, path=f"tools.{tool.name}.{key}", severity=Severity.WARNING)


def _rejection(schema: JsonObject) -> str | None:
    import jsonschema  # noqa: PLC0415 - the import takes longer than the other work of this command

    dialect = jsonschema.validators.validator_for(schema).META_SCHEMA.get("$schema")
    parts = (exact_json.dumps(_without_text(part), option=orjson.OPT_SORT_KEYS) for part in _parts(schema))
    return next((reason for part in parts if (reason := _rejection_of_part(dialect, part)) is not None), None)


@cache  # because a check takes milliseconds, and many tools have the same properties
def _rejection_of_part(dialect: str, part: bytes) -> str | None:
    import jsonschema  # noqa: PLC0415 - as above

    try:
        jsonschema.validators.validator_for({"$schema": dialect}).check_schema(exact_json.loads(part))
    except jsonschema.SchemaError as error:
        return str(error.message)
    return None


def _parts(schema: JsonObject) -> Iterator[Json]:
    """Yield the schema without its properties, then each property, so that equal properties are checked only once."""
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, Mapping):
        are_names = isinstance(required, list) and all(isinstance(name, str) for name in required)
        is_right = required and are_names and len(set(required)) == len(required)
        # Replace a valid `required` with a constant, so that tools share one cached check.
        yield {**schema, "properties": {}, **({"required": ["name"]} if is_right else {})}
        yield from properties.values()
    else:
        yield schema


def _without_text(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {
            key: "" if key in _FREE_TEXT and isinstance(member, str) else _without_text(member)
            for key, member in value.items()
        }
    return [_without_text(item) for item in value] if isinstance(value, list | tuple) else value


async def refused_queries(loaded: LoadedConfig, profiles: frozenset[DatabaseProfile]) -> tuple[Problem, ...]:
    """Prepare each query without executing it, for `--connect`.

    Return an error for each query that a database rejects, and a warning for each unreachable database.
    """
    problems = Problems(loaded.sources, redactor=loaded.redactor)
    async with DatabasePools() as pools:
        for profile in sorted(profiles, key=lambda each: each.name):
            queries = [each for each in _queries_of(loaded) if each[0].database == profile.name]
            place = problems.at("databases", profile.name)
            try:
                async with asyncio.timeout(_QUERY_SECONDS), pools.pool(profile, read_only=True).session() as session:
                    for query in queries:
                        await _check_query(query, session, profile=profile, problems=problems)
            except TimeoutError:
                place.warning("did not respond in time, so its queries were not checked")
            except Exception as error:  # Boundary: a driver can raise any exception
                failure = failure_of(error, profile)
                if not isinstance(failure, ExecutionError):
                    raise
                place.warning(f"its queries cannot be checked: {failure}")
    return tuple(problems)


async def _check_query(query: _Query, session: Session, *, profile: DatabaseProfile, problems: Problems) -> None:
    config, path, inputs = query
    scope = Scope(inputs=inputs, problems=problems.at(*path))
    for statement, report in compile_query(config, dialect=dialect_of(profile.dialect), scope=scope):
        # Bind a list with one item, because the number of items determines the number of placeholders.
        bound = statement.bind({piece.text: [None] for piece in statement.pieces if piece.is_list})
        first = first_word(bound.text, dialect_of(profile.dialect))
        try:
            await session.prepare(bound)
        except StatementError as error:
            offset = bound.written_offset(first.start if error.offset is None else error.offset)
            report(offset, f"the database rejected the statement: {error}")
        if first.text.upper() in _DEFINING:
            return


def _queries_of(loaded: LoadedConfig) -> Iterator[_Query]:
    document, unnamed = loaded.document, Inputs(is_open=True)
    for name, tool in document.tools.items():
        if tool.sql is not None:
            unreported = loaded.start_problems().at("tools", name)
            yield tool.sql, ("tools", name, "sql"), compile_arguments(tool, unreported).inputs
    for name, resource in document.resources.items():
        if resource.sql is not None:
            yield resource.sql, ("resources", name, "sql"), unnamed
        for variable, source in resource.complete.items():
            if isinstance(source, CommandCompletion) and source.sql is not None:
                yield source.sql, ("resources", name, "complete", variable, "sql"), unnamed
    for name, prompt in document.prompts.items():
        for key, argument in prompt.arguments.items():
            if isinstance(argument.complete, CommandCompletion) and argument.complete.sql is not None:
                path = ("prompts", name, "arguments", key, "complete", "sql")
                yield argument.complete.sql, path, unnamed
