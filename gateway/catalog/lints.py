"""Warns about text that confuses or manipulates models, and about insecure files.

Warnings never prevent serving. The checks are narrow, because users ignore frequent false alarms.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from shutil import which
from typing import Final

from pydantic import BaseModel

from gateway.catalog.deceptive_text import (
    confusable_names,
    instructions_in,
    invisible_characters_in,
    mixed_scripts,
    prompt_injection_in,
)
from gateway.catalog.primitives import Primitive, Prompt, Tool
from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import exists, world_writable_warning
from gateway.config.models import definitions as models
from gateway.config.models.backends import Shell
from gateway.config.models.base import Use, use_of
from gateway.config.models.definition_keys import Definition
from gateway.config.models.document import LISTS, Document
from gateway.config.models.server import Server
from gateway.json_types import DocumentPath, JsonObject
from gateway.language.schemas.keywords import KEYWORDS, TYPES, TYPES_BY_KEYWORD, subschemas

ClientVisibleText = tuple[DocumentPath, str, Use]

_LINTED: Final = frozenset({Use.NAME, Use.DESCRIPTION, Use.BODY})
_WIRE: Final = {"input": "inputSchema", "input_schema": "inputSchema"}
_MIN_LIKENESS: Final = 0.8
"""Minimum similarity, from 0 to 1, at which an unknown key counts as a misspelt keyword."""


def _texts_of_definition(config: Definition | Server, compiled: JsonObject | None) -> list[ClientVisibleText]:
    """Return the client-visible texts of a definition, including texts derived from its Python function.

    `compiled` is the definition that clients receive, or None if it is not served.
    """
    texts: list[ClientVisibleText] = []
    _add(texts, config, (), Use.PLAIN)
    if compiled is not None and isinstance(config, models.Tool | models.Prompt) and config.python is not None:
        said = {_WIRE.get(key, key) for key in config.model_fields_set}
        if isinstance(config, models.Tool) and config.output is not None and config.output.schema_ is not None:
            said.add("outputSchema")
        derived: list[ClientVisibleText] = []
        for key in ("description", "inputSchema", "outputSchema", "arguments"):
            if key not in said:
                _add(derived, compiled.get(key), (), Use.DESCRIPTION)
        # The position in the plugin's code is unknown, so report all text at `python`.
        texts += [(("python",), text, use) for _, text, use in derived]
    return texts


def _add(texts: list[ClientVisibleText], value: object, path: DocumentPath, use: Use) -> None:
    # Append to a shared list, because nested generators take twice as long.
    if isinstance(value, str):
        texts.append((path, value, use))
    elif isinstance(value, dict):
        for key, member in value.items():
            texts.append(((*path, key), key, Use.PLAIN if use is Use.PLAIN else Use.NAME))
            _add(texts, member, (*path, key), use)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _add(texts, item, (*path, index), use)
    elif isinstance(value, BaseModel):
        for name, key, own in _fields(type(value)):
            if name in value.model_fields_set:
                _add(texts, getattr(value, name), (*path, key), use if own is Use.PLAIN else own)


@cache
def _fields(model: type[BaseModel]) -> tuple[tuple[str, str, Use], ...]:
    fields = ((name, field, use_of(field.metadata, default=Use.PLAIN)) for name, field in model.model_fields.items())
    return tuple((name, field.alias or name, use) for name, field, use in fields if use in {*_LINTED, Use.PLAIN})


def lint(
    document: Document,
    *,
    served: Mapping[DocumentPath, Primitive],
    instructions: Mapping[str, str],
    plugins: tuple[Path, ...],
    problems: Problems,
) -> None:
    """Warn about misleading text, schemas and annotations, and about insecure files.

    `served` contains primitives by path, such as `("tools", name)`. `instructions` are the instructions of upstreams by
    the upstream's name. `plugins` are the plugin directories.
    """
    _warn_of_texts(_texts_of_definition(document.server, None), problems=problems.at("server"))
    for name, text in instructions.items():
        _warn_of_texts([(("instructions",), text, Use.DESCRIPTION)], problems=problems.at("upstreams", name))
    for kind in LISTS:
        configs: Mapping[str, Definition] = getattr(document, kind)
        for name, config in configs.items():
            _lint_definition(name, config, served.get((kind, name)), problems=problems.at(kind, name))
        for name, earlier in confusable_names(configs):
            problems.at(kind, name).warning(f"`{name}` looks like `{earlier}`: a model can confuse them")
    for index, directory in enumerate(plugins):
        for path in (directory, *sorted(directory.rglob("*.py"))):
            _warn_of_permissions(path, problems=problems.at("plugins", index))


def _lint_definition(name: str, config: Definition, primitive: Primitive | None, *, problems: Problems) -> None:
    definition = None if primitive is None else primitive.definition
    _warn_of_texts([((), name, Use.NAME), *_texts_of_definition(config, definition)], problems=problems)
    match config, primitive:
        case models.Tool(), Tool():
            _warn_of_annotations(config, problems=problems)
            _warn_of_cache(config, problems=problems)
            for path, schema in _written_schemas(config):
                _warn_of_keywords(schema, problems=problems.at(*path))
        case models.Prompt(), Prompt():
            _warn_of_prompt(primitive, config, problems=problems)
        case _:
            pass
    if isinstance(shell := getattr(config, "shell", None), Shell):
        _warn_of_program(shell, problems=problems.at("shell"))
        is_served = primitive is not None or not isinstance(config, models.Tool)
        if is_served and "PATH" not in shell.env:
            _warn_of_missing_program(shell, config, problems=problems.at("shell"))


def _warn_of_texts(texts: Iterable[ClientVisibleText], *, problems: Problems) -> None:
    for path, text, use in texts:
        for message in _warnings_of(use, text) if use in _LINTED else ():
            problems.at(*path).warning(message)


@lru_cache(maxsize=8192)
def _warnings_of(use: Use, text: str) -> tuple[str, ...]:
    """Return the warnings about one string. The result is cached, because many definitions contain the same names."""
    found = []
    if (hidden := invisible_characters_in(text)) is not None:
        found.append(f"contains {hidden}, which people cannot see but models can read. Remove it")
    if use is Use.NAME and (letter := mixed_scripts(text)) is not None:
        found.append(f"the name mixes letters of several scripts, which can look alike: {letter}. Use only one script")
    if use is Use.DESCRIPTION and (injection := prompt_injection_in(text)) is not None:
        found.append(f"{injection}. Remove it, and describe only the purpose")
    if use is Use.BODY and (order := instructions_in(text)) is not None:
        found.append(f"{order}; remove it")
    return tuple(found)


def _warn_of_annotations(config: models.Tool, *, problems: Problems) -> None:
    """Warn if `annotations` contradict the HTTP method (RFC 9110 §9.2.1, §9.3.5) and do not set `destructive`.

    Commands are not checked, because their effects are unknown.
    """
    http, said = config.http, config.annotations
    if http is None or not http.changes_data:
        return
    if said is not None and said.destructive is not None:
        return
    if said is not None and said.read_only:
        message = (
            f"has `read_only: true` but sends {http.method}. If it does not destroy data, also set `destructive: false`"
        )
        problems.at("annotations").warning(message)
    elif http.method == "DELETE":
        problems.warning("sends DELETE. Set `annotations: {destructive: true}`, or `false` if it does not destroy data")


def _warn_of_cache(config: models.Tool, *, problems: Problems) -> None:
    said = config.annotations is not None and config.annotations.destructive
    if config.cache and (said or models.trait_of(config, "changes_data")):
        problems.at("cache").warning(
            "caches the result of a tool that changes data, so repeated calls do not run the tool"
        )


def _written_schemas(config: models.Tool) -> Iterator[tuple[DocumentPath, JsonObject]]:
    if config.input_schema is not None:
        yield ("input_schema",), config.input_schema
    for name, schema in (config.input or {}).items():
        if not isinstance(schema, str):
            yield ("input", name), schema
    if config.output is not None and config.output.schema_ is not None:
        yield ("output", "schema"), config.output.schema_


def _warn_of_keywords(schema: JsonObject, *, problems: Problems) -> None:
    for keyword in (each for each in schema if each not in KEYWORDS):
        for meant in get_close_matches(keyword, KEYWORDS, n=1, cutoff=_MIN_LIKENESS):
            problems.at(keyword).warning(
                f"`{keyword}` is not a JSON Schema keyword and has no effect; did you mean `{meant}`?"
            )
    # Schemas from other servers often have such keywords, and users cannot fix them.
    for keyword, kind in () if problems.is_lenient else _of_other_types(schema):
        problems.at(keyword).warning(
            f"`{keyword}` has no effect here, because it applies to {kind}, not to `{schema['type']}`"
        )
    if schema.get("enum") == []:
        problems.at("enum").warning("has no values, so no value is valid")
    for path, inner in subschemas(schema):
        _warn_of_keywords(inner, problems=problems.at(*path))


def _of_other_types(schema: JsonObject) -> Iterator[tuple[str, str]]:
    said = schema.get("type")
    if not isinstance(said, str) or said not in TYPES:
        return
    for keyword in schema:
        if said not in (types := TYPES_BY_KEYWORD.get(keyword, TYPES)):
            yield keyword, " and ".join(f"`{each}`" for each in sorted(types))


def _warn_of_prompt(prompt: Prompt, config: models.Prompt, *, problems: Problems) -> None:
    if not prompt.definition.get("description"):
        problems.warning("has no `description`: people need it to choose a prompt")
    for name, argument in config.arguments.items():
        if argument.required and argument.default is not None:
            problems.at("arguments", name, "default").warning(
                f"is never used: `{name}` is `required`. Remove `default` or `required`"
            )


def _warn_of_program(shell: Shell, *, problems: Problems) -> None:
    place = problems.at("command" if shell.command is not None else "interpreter")
    words = [
        *(item for item in shell.command or () if isinstance(item, str)),
        *(shell.interpreter if shell.script else ()),
    ]
    for word in words:
        # The result of a template is known only at the call.
        if ("/" in word or "." in word) and not word.startswith("-") and "{" not in word:
            _warn_of_permissions(place.directory / (shell.cwd or "") / word, problems=place)


def _warn_of_missing_program(shell: Shell, config: Definition, *, problems: Problems) -> None:
    first = shell.interpreter[0] if shell.command is None else shell.command[0]
    if not isinstance(first, str) or "{" in first or "{" in (shell.cwd or "") or first in config.requires.commands:
        return
    path = str(problems.directory / (shell.cwd or "") / first) if "/" in first else which(first)
    if path is None or not exists(path):
        place = problems.at("interpreter") if shell.command is None else problems.at("command", 0)
        place.warning(f"the program `{first}` does not exist on this machine")


def _warn_of_permissions(path: Path, *, problems: Problems) -> None:
    if (message := world_writable_warning(path)) is not None:
        problems.warning(message)
