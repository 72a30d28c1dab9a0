"""Looks over what is about to be served, and says what is doubtful about it, each with its place and what to do."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from gateway.catalog.lints.destruction import changes, destruction_in
from gateway.catalog.lints.hidden_text import hidden_in
from gateway.catalog.lints.lookalikes import look_alikes, mixed_scripts
from gateway.catalog.lints.poison import orders_in, poison_in
from gateway.catalog.lints.shown_texts import Role, ShownText, shown_texts
from gateway.catalog.primitives import Prompt, Tool
from gateway.config import primitives as models
from gateway.config.backends import Shell
from gateway.config.document import Document
from gateway.config.problems import Problems
from gateway.config.reading.permissions import open_to_all

_VAGUE: Final = re.compile(
    r"arg(ument)?s?|data|inputs?|obj(ect)?|opt(ion)?s?|param(eter)?s?|payload|stuff|thing|val|var"
)
_TELLING: Final = re.compile(r"at|by|cc|db|id|ip|of|on|os|pr|to|tz|up")
"""Names of two letters that everybody understands."""
_SHORTEST_TELLING: Final = 3


def lint(
    document: Document,
    *,
    tools: Mapping[str, Tool],
    prompts: Mapping[str, Prompt],
    plugins: tuple[Path, ...],
    problems: Problems,
) -> None:
    """Report every doubt about a document without mistakes. `plugins` are the directories of `plugins:`."""
    for text in shown_texts(document, tools=tools, prompts=prompts):
        for doubt in _DOUBTS[text.role](text):
            problems.at(*text.path).warning(doubt)
    for kind, names in (("tools", document.tools), ("prompts", document.prompts), ("resources", document.resources)):
        for name, earlier in look_alikes(names):
            problems.at(kind, name).warning(f"`{name}` looks like `{earlier}`: a model may call the one for the other")
    for name, tool in tools.items():
        _doubt_annotations(document.tools[name], problems=problems.at("tools", name))
        _doubt_inputs(tool, document.tools[name], problems=problems.at("tools", name))
    for name, prompt in prompts.items():
        _doubt_prompt(prompt, document.prompts[name], problems=problems.at("prompts", name))
    _doubt_programs(document, problems=problems)
    for index, directory in enumerate(plugins):
        for path in (directory, *sorted(directory.rglob("*.py"))):
            _doubt_permissions(path, problems=problems.at("plugins", index))


def _of_name(shown: ShownText) -> Iterator[str]:
    yield from _hidden(shown.text)
    if (letter := mixed_scripts(shown.text)) is not None:
        yield f"a name of letters that look like others: {letter}; keep to one script"


def _of_description(shown: ShownText) -> Iterator[str]:
    yield from _hidden(shown.text)
    if (poison := poison_in(shown.text)) is not None:
        yield f"{poison}; say what it is for, and nothing else"


def _of_body(shown: ShownText) -> Iterator[str]:
    yield from _hidden(shown.text)
    if (order := orders_in(shown.text)) is not None:
        yield f"{order}; take it out"


def _hidden(text: str) -> Iterator[str]:
    if (hidden := hidden_in(text)) is not None:
        yield f"holds {hidden}, which people do not see and models read; take it out"


_DOUBTS: Final[Mapping[Role, Callable[[ShownText], Iterator[str]]]] = {
    Role.NAME: _of_name,
    Role.DESCRIPTION: _of_description,
    Role.BODY: _of_body,
}


def _doubt_annotations(config: models.Tool, *, problems: Problems) -> None:
    """Report a tool that destroys and does not say so. `destructive: false` is the author's word, and is taken."""
    said = config.annotations
    if said is not None and said.destructive is not None:
        return
    what = destruction_in(config)
    if said is not None and said.read_only:
        method = changes(config.http)
        what = what or (f"sends {method}" if method else None)
        if what is not None:
            message = f"says `read_only: true` and {what}; if nothing is lost by it, say `destructive: false` too"
            problems.at("annotations").warning(message)
    elif what is not None:
        problems.warning(f"{what}: say `annotations: {{destructive: true}}`, or `false` if nothing is lost by it")


def _doubt_inputs(tool: Tool, config: models.Tool, *, problems: Problems) -> None:
    key = ("input",) if config.input is not None else ("input_schema", "properties")
    properties = tool.definition["inputSchema"].get("properties")
    for name, schema in (properties if isinstance(properties, Mapping) else {}).items():
        is_described = isinstance(schema, Mapping) and any(
            schema.get(each) for each in ("description", "title", "$ref")
        )
        if not is_described and _says_little(name):
            place = problems.at("python") if config.python is not None else problems.at(*key, name)
            place.warning(f"the input `{name}` has no `description`, and its name says little")


def _says_little(name: str) -> bool:
    word = name.lower().strip("_0123456789")
    return bool(_VAGUE.fullmatch(word)) or (len(word) < _SHORTEST_TELLING and not _TELLING.fullmatch(word))


def _doubt_prompt(prompt: Prompt, config: models.Prompt, *, problems: Problems) -> None:
    if not prompt.definition.get("description"):
        problems.warning("has no `description`: people choose prompts by it")
    for name, argument in config.arguments.items():
        if not (argument.description or argument.title) and _says_little(name):
            problems.at("arguments", name).warning(
                f"the argument `{name}` has no `description`, and its name says little"
            )


def _doubt_programs(document: Document, *, problems: Problems) -> None:
    for kind, configs in (("tools", document.tools), ("resources", document.resources)):
        for name, config in configs.items():
            if isinstance(shell := config.shell, Shell):
                place = problems.at(kind, name, "shell", "command" if shell.command is not None else "interpreter")
                for word in _own_files(shell):
                    _doubt_permissions(place.directory / (shell.cwd or "") / word, problems=place)


def _own_files(shell: Shell) -> Iterator[str]:
    """The words of a command that may name files: the program itself, and the script that it is to run."""
    words = [
        *(item for item in shell.command or () if isinstance(item, str)),
        *(shell.interpreter if shell.script else ()),
    ]
    yield from (word for word in words if ("/" in word or "." in word) and not word.startswith("-") and "{" not in word)


def _doubt_permissions(path: Path, *, problems: Problems) -> None:
    if (message := open_to_all(path)) is not None:
        problems.warning(message)
