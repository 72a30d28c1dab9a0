"""The names that templates of a definition can use, and a record of the names that are used."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from gateway.config.diagnostics.problems import Problems
from gateway.json_types import JsonObject, empty


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    schemas: Mapping[str, JsonObject] = msgspec.field(default_factory=empty)
    """JSON Schema of each input by name, in file order. Inputs for files have `type: file`."""
    always_given: frozenset[str] = frozenset()
    """Inputs that are required or have a default."""
    is_open: bool = False
    """Whether callers can send inputs that the schema does not list."""
    has_files: bool = False
    """Whether arguments can contain a `FileArgument`."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The names that templates at one key can use. All scopes of a definition share `used` and `caller_facts`."""

    inputs: Inputs
    problems: Problems
    names: frozenset[str] = frozenset()
    """Other names, such as `result`, `value` or `exit_code`."""
    takes_files: bool = False
    """Whether a template can return a file (`FileArgument`) if the template is a single expression."""
    used: set[str] = msgspec.field(default_factory=set)
    """Inputs that templates read."""
    has_callers: bool = False
    """Whether the file has `auth`, so that templates can read `caller`."""
    caller_facts: set[str] = msgspec.field(default_factory=set)
    """Facts of the caller that templates read: `subject`, `claims.team`, or `claims` for all claims."""

    def at(self, *path: str | int) -> "Scope":
        return replace(self, problems=self.problems.at(*path))

    def taking_files(self) -> "Scope":
        return replace(self, takes_files=True)

    def naming(self, *names: str) -> "Scope":
        return replace(self, names=self.names | frozenset(names))

    def use_all(self) -> None:
        self.used.update(self.inputs.schemas)
