"""The names that a template may use at one place of the file, and a record of those that were used."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from gateway.config.diagnostics.problems import Problems
from gateway.json_types import JsonObject, empty


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a tool, the variables of a resource's URI, or the arguments of a prompt."""

    schemas: Mapping[str, JsonObject] = msgspec.field(default_factory=empty)
    """JSON Schema of each, by name, in file order; a file is of `type: file`."""
    always_given: frozenset[str] = frozenset()
    """Those that are required or have a default."""
    is_open: bool = False
    """Whether names that are not listed may be given too (a long-form schema without `additionalProperties: false`)."""
    has_files: bool = False
    """Whether a `FileArgument` may stand somewhere in the arguments."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """One place. The view of `problems` moves with it; `used` is shared by all places of a definition."""

    inputs: Inputs
    problems: Problems
    names: frozenset[str] = frozenset()
    """The place's own names, beside the inputs: `result`, `value`, `exit_code` …"""
    takes_files: bool = False
    """Whether an expression that is all that stands here may give a file."""
    used: set[str] = msgspec.field(default_factory=set)
    """Inputs that some template names; a backend that receives all of them adds all."""
    has_callers: bool = False
    """Whether the file has `auth`, so that templates can read `caller`."""
    caller_facts: set[str] = msgspec.field(default_factory=set)
    """Facts of the caller that some template reads: `subject`, `claims.team`, or `claims` for all claims."""

    def at(self, *path: str | int) -> "Scope":
        return replace(self, problems=self.problems.at(*path))

    def taking_files(self) -> "Scope":
        return replace(self, takes_files=True)

    def naming(self, *names: str) -> "Scope":
        return replace(self, names=self.names | frozenset(names))

    def use_all(self) -> None:
        self.used.update(self.inputs.schemas)
