"""What a template may name at one place of the file, while it is compiled; and who has named what."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gateway.config.problems import Problems
from gateway.json_types import JsonObject, empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of a tool, the variables of a resource's URI, or the arguments of a prompt."""

    schemas: Mapping[str, JsonObject] = field(default_factory=empty)
    """JSON Schema of each, by name, in file order."""
    always_given: frozenset[str] = frozenset()
    """Those that are required or have a default."""
    is_open: bool = False
    """Whether names that are not listed may be given too (a long-form schema without `additionalProperties: false`)."""

    def is_enum(self, name: str) -> bool:
        schema = self.schemas.get(name, {})
        return "enum" in schema or "const" in schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One place. The view of `problems` moves with it; `used` is shared by all places of a definition."""

    inputs: Inputs
    problems: Problems
    names: frozenset[str] = frozenset()
    """The place's own names, beside the inputs: `result`, `value`, `exit_code` …"""
    used: set[str] = field(default_factory=set)
    """Inputs that some template names; a backend that receives all of them adds all."""

    def at(self, *path: str | int) -> "Scope":
        return replace(self, problems=self.problems.at(*path))

    def naming(self, *names: str) -> "Scope":
        return replace(self, names=self.names | frozenset(names))

    def use_all(self) -> None:
        self.used.update(self.inputs.schemas)
