"""Computes the digests of definitions without importing plugins or reading secrets.

Digests cover the text before interpolation, so secrets and environment variables do not change the digests. The order,
comments and layout of the files do not matter either.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from gateway.catalog.plugins import Plugins
from gateway.catalog.skill_snapshot import SkillSnapshot
from gateway.config.loader import LoadedConfig
from gateway.config.machine_facts import content_digest
from gateway.config.models.backends import PythonCall, SqlCompletion
from gateway.config.models.base import Model, entries_named_by, models_in
from gateway.config.models.definitions import Prompt, Resource, Tool
from gateway.config.models.document import LISTS
from gateway.config.reading.source_file import digest_of_json
from gateway.json_types import DocumentPath

Name = tuple[str, str]
"""A section of the file, and a key in that section."""

DefinitionDigest = Mapping[str, str]
"""Maps the parts of a definition to SHA-256 digests. The parts are the `definition`, its `connection` and `database`,
the file's `defaults`, the `code` of plugins, the `files` of a query or a skill, the `page` of an app, and the `origin`
(the configuration entry that generated the definition).
"""

DefinitionDigests = Mapping[Name, DefinitionDigest]

_LEADS_TO: Final = ("command", "args", "cwd", "url", "connection", "document", "type", "transport")
SKILLS: Final = "skills"
CLAIMS: Final = "claims"
"""Section of the lock for names that several entries offer. The section locks which entry serves a name."""
PAGES: Final = "pages"
"""Section of the lock for pages of upstreams, by URI. Digests are compared when a page is read."""
INSTRUCTIONS: Final[Name] = ("server", "instructions")
"""The server's instructions. Models follow instructions, so these are locked like descriptions."""


def instructions_of(upstream: str) -> Name:
    return ("server", f"instructions of {upstream}")


def instructions_of_view(view: str) -> Name:
    return ("server", f"instructions of the view {view}")


def digests_of(
    loaded: LoadedConfig, plugins: Plugins, *, skills: Iterable[SkillSnapshot] = ()
) -> dict[Name, dict[str, str]]:
    """Digest all definitions, skills with their files, and instructions. `plugins` must be open."""
    document = loaded.document
    pins: dict[Name, dict[str, str]] = {}
    if document.server.instructions is not None:
        pins[INSTRUCTIONS] = {"definition": digest_of_json(loaded.sources.written(INSTRUCTIONS))}
    for upstream, text in loaded.instructions.items():
        pins[instructions_of(upstream)] = {"definition": digest_of_json(text)}
    for view, selection in document.views.items():
        if selection.instructions is not None:
            written = loaded.sources.written(("views", view, "instructions"))
            pins[instructions_of_view(view)] = {"definition": digest_of_json(written)}
    defaults = loaded.sources.written(("defaults",))
    common = {"defaults": digest_of_json(defaults)} if defaults else {}
    definitions: Iterable[Mapping[str, Tool | Resource | Prompt]] = (getattr(document, each) for each in LISTS)
    entry_digest = cache(lambda *path: digest_of_json(loaded.sources.written(path)))
    entry_origin = cache(lambda *path: _origin(loaded, path))
    for section, named in zip(LISTS, definitions, strict=True):
        for name, config in named.items():
            pins[section, name] = {
                **common,
                **_pin(loaded, (section, name), config, plugins=plugins, entry_digest=entry_digest),
            }
            if (origin := loaded.origins.get((section, name))) is not None:
                pins[section, name]["origin"] = entry_origin(*map(str, origin.path[:2]))
    for claimed, path in loaded.claims:
        claim = f"{'.'.join(claimed)} by {'.'.join(map(str, path))}"
        pins[CLAIMS, claim] = {"origin": entry_origin(*map(str, path))}
    for skill in skills:
        files = {file.path.encode("utf-8", "surrogateescape").decode("latin-1"): file.digest for file in skill.files}
        definition = digest_of_json(loaded.sources.written(("skills", skill.index)))
        pins[SKILLS, skill.name] = {"definition": definition, "files": digest_of_json(files)}
    return pins


def locked_owners(loaded: LoadedConfig, locked: DefinitionDigests | None) -> dict[DocumentPath, DocumentPath]:
    """Map each locked definition to the entry that it came from, such as `("upstreams", "github")`."""
    document = loaded.document
    paths = [(section, name) for section in ("upstreams", "openapi") for name in getattr(document, section)]
    entries = {_origin(loaded, path): path for path in paths} if locked else {}
    return {
        name: entries[origin]
        for name, parts in (locked or {}).items()
        if name[0] in LISTS and (origin := parts.get("origin")) in entries
    }


def _origin(loaded: LoadedConfig, path: tuple[str, ...]) -> str:
    """Digest the name and target (such as a command or URL) of an entry, without values of variables and secrets."""
    found = loaded.sources.written(path)
    written = found if isinstance(found, Mapping) else {}
    leads = {key: written[key] for key in _LEADS_TO if written.get(key)}
    environment = written.get("env")
    names = sorted(environment) if isinstance(environment, Mapping) else []
    connection = loaded.sources.written(("connections", str(written["connection"]))) if "connection" in leads else None
    base = connection.get("base_url") if isinstance(connection, Mapping) else None
    return digest_of_json([*path, leads, names, base])


def _pin(
    loaded: LoadedConfig,
    name: Name,
    config: Tool | Resource | Prompt,
    *,
    plugins: Plugins,
    entry_digest: Callable[[str, str], str],
) -> dict[str, str]:
    parts = {"definition": loaded.sources.digest(name)}
    for section, entry in dict.fromkeys(entries_named_by(config)):
        part, written = section.removesuffix("s"), entry_digest(section, entry)
        # References to several entries of a section form one part.
        parts[part] = written if part not in parts else digest_of_json([parts[part], written])
    if queries := query_digests(config, loaded.sources.directory(name)):
        parts["files"] = digest_of_json(queries)
    if isinstance(config, Tool) and config.app is not None:
        parts["page"] = content_digest(loaded.sources.directory(name) / config.app.file)
    functions = sorted(functions_of(config))
    if functions:
        parts["code"] = digest_of_json([plugins.code_of(function) for function in functions])
    return parts


def functions_of(config: Model) -> list[str]:
    return [function.call for function in models_in(config, PythonCall)]


def query_digests(config: Model, directory: Path) -> list[str]:
    files = (query.query_file for query in models_in(config, SqlCompletion))
    return [content_digest(directory / file) for file in files if file is not None]
