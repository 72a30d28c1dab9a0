"""Prepares and validates the arguments of tool calls."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.errors import ArgumentsError
from gateway.json_types import Json, JsonObject
from gateway.language.files.decoding import FileLocator
from gateway.language.schemas.errors import SchemaError, shown
from gateway.language.schemas.json_schema import Validator
from gateway.language.schemas.normalization import coerced, with_defaults, with_integers, without_nulls
from gateway.language.scope import Inputs
from gateway.wire.headers import HeaderParameter


class Confinement(msgspec.Struct, frozen=True):
    """Allows only absolute paths inside one directory, for inputs with `within`.

    Symbolic links and `..` are resolved before the check. Relative paths are rejected, because each program can resolve
    them differently.

    Between the check and the use of a path, anyone who can write to the directory could add a link. A `sandbox` with
    `readable` prevents this attack.
    """

    root: Path
    real_root: str
    """The path of `root` with resolved links, computed when the configuration is loaded."""

    def refusal(self, value: Json) -> str | None:
        """Return an error message if the path, or a path in a list of paths, is not allowed."""
        paths = value if isinstance(value, list) else [] if value is None else [value]
        refused = (path for path in paths if not self._admits(path))
        return next((f"must be an absolute path under {self.root}, was {shown(path)}" for path in refused), None)

    def _admits(self, path: Json) -> bool:
        if not isinstance(path, str) or "\0" in path or not path.startswith("/"):
            return False
        try:
            # Compare path segments, because `/srv/data` does not contain `/srv/data-old`.
            return Path(os.path.realpath(path)).is_relative_to(self.real_root)
        except (OSError, ValueError):  # ValueError: a lone surrogate, for example
            return False


class CompiledArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Prepares and validates the arguments of calls to one tool."""

    schema: JsonObject
    """The `inputSchema` sent to clients."""
    inputs: Inputs
    header_parameters: tuple[HeaderParameter, ...]
    validator: Validator
    has_defaults: bool
    confinements: Mapping[str, Confinement]
    has_integers: bool
    """Whether the schema contains the type `integer`. If so, `3.0` from a client becomes `3` for the backend."""
    coerce: bool
    validates: bool = True
    files: FileLocator | None = None

    def prepare(self, arguments: JsonObject) -> JsonObject:
        """Fill in defaults, coerce and validate the arguments, check paths, and decode files.

        Raises:
            ArgumentsError: the arguments are invalid. The error names each invalid argument by JSON Pointer.
        """
        if not self.validates:
            return arguments
        prepared: JsonObject = self._filled(arguments)
        # Coerce only invalid arguments, because coercion could turn the valid text "1" into a number.
        if not self.validator.is_valid(prepared):
            prepared = self._coerced(prepared)
        if self.has_integers:
            prepared = with_integers(prepared)
        if self.confinements:
            self._confine(prepared)
        if self.files is not None:
            prepared, errors = self.files.decoded(prepared)
            if errors:
                raise _mismatch(errors)
        return prepared

    def size_of_files(self, arguments: JsonObject) -> int:
        """Return the total size of the encoded files, in characters."""
        return 0 if self.files is None else self.files.size(arguments)

    def described(self, arguments: JsonObject) -> JsonObject:
        """Return the arguments for logs, with descriptions in place of file contents."""
        return arguments if self.files is None else self.files.described(arguments)

    def _filled(self, arguments: JsonObject) -> JsonObject:
        return with_defaults(self.validator.schema, arguments) if self.has_defaults else arguments

    def _coerced(self, arguments: JsonObject) -> JsonObject:
        prepared = arguments
        if self.coerce:
            # Coercion can parse text into an object whose properties have defaults.
            prepared = self._filled(coerced(arguments, self.validator))
            if not self.validator.is_valid(prepared):
                # If the arguments are invalid without nulls too, keep the nulls, so that the error reports them.
                given = self._filled(without_nulls(prepared, self.validator))
                prepared = given if self.validator.is_valid(given) else prepared
        if errors := self.validator.errors(prepared, noun="argument"):
            raise _mismatch(errors)
        return prepared

    def _confine(self, arguments: JsonObject) -> None:
        refusals = [
            SchemaError(path=(name,), message=refusal)
            for name, confinement in self.confinements.items()
            if (refusal := confinement.refusal(arguments.get(name)))
        ]
        if refusals:
            raise _mismatch(refusals)


def _mismatch(errors: list[SchemaError]) -> ArgumentsError:
    faults = [(each.pointer, each.message) for each in errors]
    return ArgumentsError("\n".join(["Invalid arguments:", *map(str, errors)]), faults)
