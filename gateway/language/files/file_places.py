"""The places of files in the arguments of a tool, and the arguments with decoded files.

Schemas can be recursive, so the arguments are visited, and only where files are possible.
"""

from collections.abc import Callable

import msgspec

from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.files.decoding import FileRefusedError, FileRule, decoded_file, description_of
from gateway.language.schemas.errors import SchemaError

Replace = Callable[[Json, FileRule | None, DocumentPath], Json]
"""Replaces a text or object at the place of a file. Without a rule, the text is at the place of an object or list with
files."""


class FilePlaces(msgspec.Struct):
    """The places of files below one schema."""

    rule: FileRule | None = None
    """Rule for a value that is a file."""
    members: dict[str, "FilePlaces"] = msgspec.field(default_factory=dict)
    other_members: "FilePlaces | None" = None
    items: "FilePlaces | None" = None
    also: "list[FilePlaces]" = msgspec.field(default_factory=list)
    """Places that apply to the same value: `$ref`, `allOf`, alternatives."""

    def replaced(self, value: Json, replace: Replace, path: DocumentPath = ()) -> Json:
        """Copy a value, with each file replaced."""
        # A decoded file is not text, so it is not decoded twice.
        for places in self.also:
            value = places.replaced(value, replace, path)
        match value:
            case str():
                # The text can be the quoted JSON of an object with files.
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
        """Decode the files in valid arguments, and return errors for the others."""
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
        """Return the number of characters of files in arguments, valid or not."""
        sizes: list[int] = []

        def note(value: Json, _rule: FileRule | None, _path: DocumentPath) -> Json:
            sizes.append(len(value))
            return value

        self.replaced(arguments, note)
        return sum(sizes)

    def described(self, arguments: JsonObject) -> JsonObject:
        """Return the arguments, valid or not, with a description in place of each file."""
        described: JsonObject = self.replaced(arguments, lambda value, _rule, _path: description_of(value))
        return described
