"""What tells a primitive from what it was before the files were edited. Never opens a file."""

import hashlib

from gateway.catalog.backends import connection_of, file_of
from gateway.catalog.workbench import Workbench
from gateway.config.primitives import Prompt, Resource, Tool
from gateway.config.problems import Problems
from gateway.executors.files.regular_files import Facts, facts_of
from gateway.executors.python.signature import Signature


def definition_version(config: Tool | Prompt, signature: Signature | None, *, bench: Workbench) -> str:
    """The version of a tool or prompt: what the file says about it, its plugin's code, and its connection."""
    connection = connection_of(config, bench=bench) if isinstance(config, Tool) else None
    return _digest(config, bench.defaults, connection, _code_of(signature))


def resource_version(config: Resource, signature: Signature | None, *, problems: Problems, bench: Workbench) -> str:
    """The version of one resource, or of what a template serves: its backend, with its code, connection or file."""
    facts = facts_of(file_of(config, problems=problems)) if config.file is not None else None
    connection = connection_of(config, bench=bench)
    return _digest(config.mime_type, getattr(config, config.backend), connection, _code_of(signature), facts)


def file_version(config: Resource, facts: Facts) -> str:
    """The version of one file of a glob."""
    return _digest(config.mime_type, facts)


def _code_of(signature: Signature | None) -> str:
    return signature.function.__module__ if signature else ""  # named after the content of the plugin's directory


def _digest(*facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()
