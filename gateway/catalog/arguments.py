"""The arguments of a tool, compiled: what clients see of them, and what each call's are prepared by."""

from collections.abc import Mapping

import msgspec

from gateway.errors import ArgumentsError
from gateway.json_types import JsonObject
from gateway.language.files.file_places import FilePlaces
from gateway.language.schemas.coercion import coerced, without_nulls
from gateway.language.schemas.confinement import Confinement
from gateway.language.schemas.defaults import SchemaDefaults
from gateway.language.schemas.errors import SchemaError
from gateway.language.schemas.integer_places import IntegerPlaces
from gateway.language.schemas.json_schema import Validator
from gateway.language.scope import Inputs
from gateway.wire.headers import HeaderParameter


class CompiledArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a tool: the schema for clients, the inputs for templates, and the validator for calls."""

    schema: JsonObject
    """The `inputSchema` that clients see."""
    inputs: Inputs
    header_parameters: tuple[HeaderParameter, ...]
    validator: Validator
    defaults: SchemaDefaults
    confinements: Mapping[str, Confinement]
    integers: IntegerPlaces | None
    coerce: bool
    validates: bool = True
    files: FilePlaces | None = None
    """The places of files among the arguments, if there are any."""

    def prepare(self, arguments: JsonObject) -> JsonObject:
        """Fill in defaults, coerce, validate, read integers, confine paths, decode files.

        Raises:
            ArgumentsError: the arguments do not fit; the text names each by JSON Pointer.
        """
        if not self.validates:
            return arguments
        prepared: JsonObject = self.defaults.fill(arguments)
        # What fits is not coerced: the text "1" stays a text where one is wanted.
        if not self.validator.is_valid(prepared):
            prepared = self._coerced(prepared)
        if self.integers is not None:
            prepared = self.integers.read(prepared)
        if self.confinements:
            self._confine(prepared)
        return prepared if self.files is None else self._decoded(self.files, prepared)

    def size_of_files(self, arguments: JsonObject) -> int:
        """Characters of the files among arguments as they were sent, valid or not."""
        return 0 if self.files is None else self.files.size(arguments)

    def described(self, arguments: JsonObject) -> JsonObject:
        """Arguments as they were sent, with a description in place of each file: for logs."""
        return arguments if self.files is None else self.files.described(arguments)

    def _coerced(self, arguments: JsonObject) -> JsonObject:
        prepared = arguments
        if self.coerce:
            # Text may have been decoded to an object that has defaults of its own.
            prepared = self.defaults.fill(coerced(arguments, self.validator))
            if not self.validator.is_valid(prepared):
                # A required member is not left out: the caller is to read that it was null.
                given = self.defaults.fill(without_nulls(prepared, self.validator))
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
    return ArgumentsError("\n".join(["The arguments do not fit:", *map(str, errors)]), faults)
