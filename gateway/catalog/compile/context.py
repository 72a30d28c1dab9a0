"""The context that the compile steps of all definitions share."""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from gateway.catalog.compile.access import Accesses
from gateway.catalog.digests import Name
from gateway.catalog.file_dependencies import FileDependencies
from gateway.catalog.plugins import Plugins
from gateway.catalog.primitives import EVERYBODY, Primitive, RequiredScopes
from gateway.config.diagnostics.problems import Problems
from gateway.config.models.backends import Connection, PythonCall
from gateway.config.models.definition_keys import Defaults, Definition
from gateway.config.models.definitions import Prompt, Tool
from gateway.config.models.document import Database
from gateway.config.secrets.redactor import Redactor
from gateway.executors.shared_services import Services
from gateway.executors.sql.pools import DatabaseProfile
from gateway.language.scope import Inputs, Scope
from gateway.language.templates.caller import CALLER, is_fact_path
from gateway.net.authorization import Authorization
from gateway.plugin import ListKind

P = TypeVar("P", bound=Primitive)

MAX_SIZE: Final = 10 * 2**20
"""Default size limit of resources, in bytes. Also the smallest limit for the results of a tool's backend."""


class CompileContext(msgspec.Struct, frozen=True, kw_only=True):
    server: str
    max_body: int
    services: Services
    plugins: Plugins
    has_all_plugins: bool
    """Whether all directories in `plugins` exist. If one is missing, unknown functions are not reported."""
    redactor: Redactor
    connections: Mapping[str, Connection]
    authorizations: Mapping[str, Authorization]
    """Authorizations by the name of the connection."""
    databases: Mapping[str, Database]
    profiles: Mapping[str, DatabaseProfile]
    """Connection profiles of the databases with valid settings, by the name of the database."""
    defaults: Defaults
    accesses: Accesses
    versions: Mapping[Name, str]
    """Digests of definitions with their connections, databases, code, queries and interpolated values."""
    dependencies: FileDependencies
    has_callers: bool

    def scope(self, inputs: Inputs, problems: Problems) -> Scope:
        return Scope(inputs=inputs, problems=problems, has_callers=self.has_callers)

    def access_to(self, kind: ListKind, name: str) -> RequiredScopes:
        return self.accesses.get((kind, name), EVERYBODY)

    def version_of(self, kind: ListKind, name: str) -> str:
        return self.versions.get((kind, name), "")


def warn_of_unused(scope: Scope, config: Definition) -> None:
    """Warn about inputs that no template uses, unless an invalid template could use the inputs."""
    if not scope.problems.has_no_errors:
        return
    for name in scope.inputs.schemas:
        if name not in scope.used:
            scope.problems.at(*path_of_input(config, name)).warning(f"`{name}` is not used")


def refuse_caller_as_input(scope: Scope, config: Definition) -> None:
    """Report inputs named `caller` or `caller.…`, which would hide the caller's identity in templates."""
    for name in filter(is_fact_path, scope.inputs.schemas):
        message = f"`{name}` is not allowed as a name: in templates, `{CALLER}` is the verified identity of the caller"
        scope.problems.at(*path_of_input(config, name)).error(message)


def path_of_input(config: Definition, name: str) -> tuple[str, ...]:
    """Return the path of an input, prompt argument or URI variable below its definition, for error messages."""
    match config:
        case Tool(python=PythonCall(), input=None, input_schema=None):
            return ("python", "call")
        case Tool():
            return ("input", name) if config.input is not None else ("input_schema", "properties", name)
        case Prompt():
            return "arguments", name
    return ("uri",)


_ADVICE: Final = "contains a secret that is set elsewhere in the file. Clients see `***` instead. Remove the secret"
_NAMES: Final = ("name", "uri", "uriTemplate")


def mask_text(text: str | None, *, redactor: Redactor, problems: Problems) -> str | None:
    if text is None or not redactor.finds(text):
        return text
    problems.warning(_ADVICE)
    return redactor.text(text)


def masked_primitive(primitive: P, *, redactor: Redactor, problems: Problems) -> P:
    """Mask secrets in a definition that clients can list. A secret in a name or URI is an error."""
    masked = redactor.json(primitive.definition)
    if masked == primitive.definition:
        return primitive
    if any(masked.get(key) != primitive.definition.get(key) for key in _NAMES):
        problems.error("the name or URI contains a secret that is set elsewhere in the file, and clients can see both")
    else:
        problems.warning(_ADVICE)
    # Reset the digest, which was computed from the unmasked definition.
    return replace(primitive, definition=masked, digest=b"")
