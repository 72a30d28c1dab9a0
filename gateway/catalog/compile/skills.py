"""Compiles a skill into one resource per file. The resource of SKILL.md contains the skill's entry (SEP-2640)."""

import os
from collections import defaultdict
from collections.abc import Sequence
from posixpath import basename, dirname
from typing import Final
from urllib.parse import quote

from gateway.catalog.compile import wire_definitions
from gateway.catalog.compile.context import CompileContext
from gateway.catalog.compile.resources import resource_fields
from gateway.catalog.primitives import Resource, Skill, content_digest
from gateway.catalog.skills.snapshot import MAX_BYTES, SkillSnapshot, key_of
from gateway.config.diagnostics.problems import Problems
from gateway.config.models import definitions as models
from gateway.config.models.document import SKILL_FILE
from gateway.control_characters import visible_path
from gateway.executors.files.executor import FileReader, ServedFile, ServedFiles
from gateway.json_types import JsonObject
from gateway.language.scope import Inputs

_ALL_FILES: Final = "**"


def compile_skill(found: SkillSnapshot, *, is_pinned: bool, context: CompileContext) -> Sequence[Resource]:
    """Return one resource per file, SKILL.md first. With `is_pinned`, files that have changed cannot be read."""
    key = key_of(found.name)
    # A skill is compiled like a `files` resource.
    given = {"files": [_ALL_FILES], "root": ".", "tags": found.config.tags, "access": found.config.access}
    config = models.Resource.model_validate(given)
    reader = FileReader(threads=context.services.worker_threads, max_size=MAX_BYTES)
    served = ServedFiles(globs=found.globs, prefix=f"{key}/", reader=reader)
    frontmatter = context.redactor.json(found.frontmatter)
    files = sorted(found.files, key=lambda file: (file.path != SKILL_FILE, file.path))
    definitions = {
        file.path: wire_definitions.skill_file_definition(
            uri=served.uri_of(file.path), path=file.path, facts=file.facts, frontmatter=frontmatter
        )
        for file in files
    }
    skill = Skill(
        entry={
            "uri": served.uri_of(SKILL_FILE),
            "frontmatter": frontmatter,
            "resources": [
                {"uri": served.uri_of(file.path), "digest": f"sha256:{file.digest}", "size": file.size}
                for file in files
            ],
        },
        directories=_directories(found, definitions),
        index=found.index,
    )
    common = resource_fields(key, config, scope=context.scope(Inputs(), Problems()), context=context)
    return [
        Resource(
            uri=served.uri_of(file.path),
            executor=ServedFile(files=served, path=file.path, digest=file.digest if is_pinned else None),
            version=file.digest,
            definition=definitions[file.path],
            # SEP-2640 has no notification for changed skills, so the digest includes the content.
            digest=content_digest(definitions[file.path], file.digest),
            skill=skill if file.path == SKILL_FILE else None,
            **common,
        )
        for file in files
    ]


def _directories(snapshot: SkillSnapshot, files: dict[str, JsonObject]) -> dict[str, tuple[JsonObject, ...]]:
    """Return the definitions of the files and subdirectories in each directory, by the URI of the directory."""
    children: defaultdict[str, list[JsonObject]] = defaultdict(list)
    for path, definition in files.items():
        children[dirname(path)].append(definition)
    for path in snapshot.directories:
        if path:
            children[dirname(path)].append(_directory_definition(snapshot.name, path))
    return {_directory_uri(snapshot.name, path): tuple(children[path]) for path in snapshot.directories}


def _directory_definition(name: str, path: str) -> JsonObject:
    shown = visible_path(basename(path))
    return {"uri": _directory_uri(name, path), "name": shown, "mimeType": "inode/directory"}


def _directory_uri(name: str, path: str) -> str:
    return f"{key_of(name)}/{quote(os.fsencode(path), safe='/')}" if path else key_of(name)
