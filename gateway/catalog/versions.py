"""What tells a resource's contents from those that it had before the files were edited. Never opens a file."""

import hashlib

from gateway.catalog.backends import file_of
from gateway.config.primitives import Resource
from gateway.config.problems import Problems
from gateway.executors.regular_files import Facts, facts_of
from gateway.executors.signature import Signature


def resource_version(config: Resource, signature: Signature | None, *, problems: Problems) -> str:
    """The version of one resource, or of what a template serves: its backend, the plugin's code, or its one file."""
    code = signature.function.__module__ if signature else ""  # named after the content of the plugin's directory
    facts = facts_of(file_of(config, problems=problems)) if config.file is not None else None
    return _digest(config.mime_type, getattr(config, config.backend), code, facts)


def file_version(config: Resource, facts: Facts) -> str:
    """The version of one file of a glob."""
    return _digest(config.mime_type, facts)


def _digest(*facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()
