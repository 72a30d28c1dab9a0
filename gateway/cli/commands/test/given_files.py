"""Files that a test gives to its tool: `with: {photo: {file: photo.png}}`, where the input is of `type: file`."""

from pathlib import Path

from gateway.cli.client.file_arguments import data_uri
from gateway.errors import ExecutionError
from gateway.executors.output.media_types import OCTETS
from gateway.json_types import Json, JsonObject
from gateway.language.files.decoding import FileRule
from gateway.language.files.file_places import FilePlaces
from gateway.language.files.media_types import media_type_of
from gateway.language.schemas.errors import Path as ArgumentPath


def given_files(arguments: JsonObject, places: FilePlaces | None, *, directory: Path) -> JsonObject:
    """Return the arguments with `data:` URIs of the files that they name; paths are relative to `directory`.

    Raises:
        ExecutionError: a file cannot be read.
    """
    if places is None:
        return arguments

    def read(value: Json, rule: FileRule | None, _path: ArgumentPath) -> Json:
        match value:
            case {"file": str(name), **others} if rule is not None and not others:
                return _data_uri(directory / name)
            case _:
                return value

    given: JsonObject = places.replaced(arguments, read)
    return given


def _data_uri(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ExecutionError(f"the test's file {path} cannot be read: {error.strerror}") from error
    return data_uri(content, media_type=media_type_of(path) or OCTETS, name=path.name)
