"""The compiled arguments of a tool."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.errors import ArgumentsError
from gateway.json_types import Json, JsonObject
from gateway.language.files.decoding import FilePlaces
from gateway.language.schemas.errors import SchemaError, shown
from gateway.language.schemas.json_schema import Validator
from gateway.language.schemas.normalization import coerced, with_defaults, with_integers, without_nulls
from gateway.language.scope import Inputs
from gateway.wire.headers import HeaderParameter


class Confinement(msgspec.Struct, frozen=True):
    """Confines paths from callers to one directory: `within`.

    Threats: `..` segments, absolute paths elsewhere, symbolic links out of the directory, NUL. Relative paths are
    rejected, because their meaning depends on the program.

    Links are resolved before the backend opens the path, so anyone who can write to the directory can still add a link
    in between. A `sandbox` with `readable` prevents that.
    """

    root: Path
    place: str
    """The directory, with links resolved at load."""

    def refusal(self, value: Json) -> str | None:
        """Return why a path or a list of paths is not allowed, or None if it is allowed."""
        match value:
            case str():
                return (
                    None if self._admits(value) else f"must be an absolute path under {self.root}, was {shown(value)}"
                )
            case list():
                return next((refusal for item in value if (refusal := self.refusal(item))), None)
            case None:
                return None
            case _:
                return f"must be a path, was {shown(value)}"

    def _admits(self, path: str) -> bool:
        if "\0" in path or not path.startswith("/"):
            return False
        try:
            # Compared by segments: `/srv/data` does not contain `/srv/data-old`.
            return Path(os.path.realpath(path)).is_relative_to(self.place)
        except (OSError, ValueError):  # ValueError: a lone surrogate, for example
            return False


class CompiledArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Prepares and validates the arguments of a tool's calls."""

    schema: JsonObject
    """The `inputSchema` sent to clients."""
    inputs: Inputs
    header_parameters: tuple[HeaderParameter, ...]
    validator: Validator
    has_defaults: bool
    confinements: Mapping[str, Confinement]
    has_integers: bool
    """Whether the schema mentions integers, so that backends expect `3` where a client sends `3.0`."""
    coerce: bool
    validates: bool = True
    files: FilePlaces | None = None

    def prepare(self, arguments: JsonObject) -> JsonObject:
        """Fill in defaults, coerce, validate, parse integers, confine paths, decode files.

        Raises:
            ArgumentsError: the arguments are invalid. It names each by JSON Pointer.
        """
        if not self.validates:
            return arguments
        prepared: JsonObject = self._filled(arguments)
        # Coercion would turn the text "1" into a number where text is allowed, so it runs only for invalid arguments.
        if not self.validator.is_valid(prepared):
            prepared = self._coerced(prepared)
        if self.has_integers:
            prepared = with_integers(prepared)
        if self.confinements:
            self._confine(prepared)
        return prepared if self.files is None else self._decoded(self.files, prepared)

    def size_of_files(self, arguments: JsonObject) -> int:
        """Return the total size of the encoded files, in characters."""
        return 0 if self.files is None else self.files.size(arguments)

    def described(self, arguments: JsonObject) -> JsonObject:
        """Replace file contents with descriptions, for logs."""
        return arguments if self.files is None else self.files.described(arguments)

    def _filled(self, arguments: JsonObject) -> dict[str, Json]:
        return with_defaults(self.validator.schema, arguments) if self.has_defaults else dict(arguments)

    def _coerced(self, arguments: JsonObject) -> JsonObject:
        prepared = arguments
        if self.coerce:
            # Coercion can parse an object whose properties have defaults.
            prepared = self._filled(coerced(arguments, self.validator))
            if not self.validator.is_valid(prepared):
                # Required nulls are kept, so that the error reports them.
                given = self._filled(without_nulls(prepared, self.validator))
                prepared = given if self.validator.is_valid(given) else prepared
        if errors := self.validator.errors(prepared, noun="argument"):
            raise _mismatch(errors)
        return prepared

    @staticmethod
    def _decoded(files: FilePlaces, arguments: JsonObject) -> JsonObject:
        decoded, errors = files.decoded(arguments)
        if errors:
            raise _mismatch(errors)
        return decoded

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
