"""The places among a tool's arguments where files are given, and the arguments with these files decoded.

A schema may lead back to itself. So it is the arguments that are walked, and only as far as files can lie.
"""

from collections.abc import Callable

import msgspec

from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.files.decoding import FileRefusedError, FileRule, decoded_file, description_of
from gateway.language.schemas.errors import SchemaError

Replace = Callable[[Json, FileRule | None, DocumentPath], Json]
"""Makes something else of a text, or an object, that was given where a file belongs; the path is its place. Without a
rule it is a text where an object or a list with files belongs."""


class FilePlaces(msgspec.Struct):
    """The places below one schema where files may be given."""

    rule: FileRule | None = None
    """Of a value that is a file itself."""
    members: dict[str, "FilePlaces"] = msgspec.field(default_factory=dict)
    other_members: "FilePlaces | None" = None
    items: "FilePlaces | None" = None
    also: "list[FilePlaces]" = msgspec.field(default_factory=list)
    """What applies to the same value: `$ref`, `allOf`, alternatives."""

    def replaced(self, value: Json, replace: Replace, path: DocumentPath = ()) -> Json:
        """Copy a value with something else in place of each file."""
        # What one of them has decoded is no text any more, so that none decodes it twice.
        for places in self.also:
            value = places.replaced(value, replace, path)
        match value:
            case str():
                # Also a text where an object with files belongs: it may be that object's JSON, quoted.
                return replace(value, self.rule, path) if self._leads_on else value
            case dict() if self.rule is not None:
                return replace(value, self.rule, path)
            case dict() if self.members or self.other_members is not None:
                return {name: self._member(name, member, replace, path) for name, member in value.items()}
            case list() if self.items is not None:
                items = self.items
                return [items.replaced(item, replace, (*path, index)) for index, item in enumerate(value)]
            case _:
                return value

    @property
    def _leads_on(self) -> bool:
        return self.rule is not None or bool(self.members) or self.other_members is not None or self.items is not None

    def _member(self, name: str, value: Json, replace: Replace, path: DocumentPath) -> Json:
        places = self.members.get(name, self.other_members)
        return value if places is None else places.replaced(value, replace, (*path, name))

    def decoded(self, arguments: JsonObject) -> tuple[JsonObject, list[SchemaError]]:
        """Decode the files among valid arguments; the errors say which are refused."""
        errors: list[SchemaError] = []

        def decode(value: Json, rule: FileRule | None, path: DocumentPath) -> Json:
            if rule is None or not isinstance(value, str):
                return value
            try:
                return decoded_file(value, rule)
            except FileRefusedError as error:
                errors.append(SchemaError(path=path, message=str(error)))
                return value

        return self.replaced(arguments, decode), errors

    def size(self, arguments: JsonObject) -> int:
        """Characters of the files among arguments as they were sent, valid or not."""
        sizes: list[int] = []

        def note(value: Json, _rule: FileRule | None, _path: DocumentPath) -> Json:
            sizes.append(len(value))
            return value

        self.replaced(arguments, note)
        return sum(sizes)

    def described(self, arguments: JsonObject) -> JsonObject:
        """Arguments as they were sent, valid or not, with a description of each file in its place."""
        described: JsonObject = self.replaced(arguments, lambda value, _rule, _path: description_of(value))
        return described
