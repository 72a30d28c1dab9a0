"""Documents in files: what one leads to is read from its own directory, and remembered with its digest."""

import os
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from gateway.config.reading.source_file import UnreadableError, digest, read_bytes
from gateway.json_types import JsonObject
from gateway.openapi.document import MAX_BYTES, DocumentError, MissingDocumentError, Source, read


class LocalDocuments:
    """The files that one document leads to; `files` are those that were asked for, with their SHA-256."""

    def __init__(self, path: Path) -> None:
        self.uri: Final = path.absolute().as_uri()
        self.files: Final[dict[Path, str]] = {}
        self.sources: Final[dict[str, Source]] = {}
        self._path: Final = path.absolute()
        self._directory: Final = os.path.realpath(path.parent)
        self._room = MAX_BYTES

    def open(self, uri: str) -> JsonObject:
        """Read a document.

        Raises:
            DocumentError: it must not be read, or cannot be.
        """
        return read(self.source(uri))

    def source(self, uri: str) -> Source:
        """The bytes of a document; as for `open`."""
        if uri not in self.sources:
            path = self._path if uri == self.uri else self._allowed(uri)
            self.sources[uri] = Source(uri=uri, path=path, data=self._read(path))
        return self.sources[uri]

    def _allowed(self, uri: str) -> Path:
        parts = urlsplit(uri)
        if parts.scheme != "file" or parts.netloc not in {"", "localhost"}:
            raise DocumentError(f"`{uri}` is not in the document's directory, and is not read")
        path = Path(unquote(parts.path))
        # Links are resolved first: one in the directory may lead out of it.
        if "\0" in str(path) or not Path(os.path.realpath(path)).is_relative_to(self._directory):
            raise DocumentError(f"`{path}` is not in the document's directory, and is not read")
        return path

    def _read(self, path: Path) -> bytes:
        try:
            data = read_bytes(path, at_most=MAX_BYTES)
        except UnreadableError as error:
            # Watched all the same: it may be written later.
            self.files[path] = ""
            raise MissingDocumentError(f"cannot read {path}: {error}") from error
        self.files[path] = digest(data)
        self._room -= len(data)
        if self._room < 0:
            raise DocumentError(f"with what it refers to, it is larger than {MAX_BYTES // 2**20} MiB")
        return data
