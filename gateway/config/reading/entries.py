"""Makes a model of each entry of a section, or takes over all that an earlier load made of the same text.

An entry is known again by its text, its section and its directory (`Excerpt.key`), and holds as long as the variables
and files that it names say the same. One about which anything had to be said is read anew each time: that has a place.
"""

import hashlib
import json
import pickle
from collections.abc import Mapping as Map
from collections.abc import Sized
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec
from pydantic import ValidationError

from gateway.config.models.base import Model
from gateway.config.reading.interpolation import Interpolator, Reference
from gateway.config.reading.nodes import Diagnostic, Invalid, MapItem, Mapping, NodeRef, Point, plain
from gateway.config.reading.validation_messages import diagnostics_of
from gateway.json_types import DocumentPath, Json

M = TypeVar("M", bound=Model)

_KEY_BYTES: Final = 16


class KnownEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that was read: what was made of its text, without the places of its words."""

    model: Model
    content: bytes
    """The key of the model among the validated ones."""
    references: tuple[Reference, ...]
    directory: str
    """Where its file lies, seen from the root."""
    digest: str
    """`digest_of_written`, which takes in that directory."""
    start: Point
    """The mark of its value, with lines counted from its key's."""
    is_flow: bool
    size: int


class LoadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one load, of which the next one takes over what has not changed."""

    models: Map[bytes, Model] = MappingProxyType({})
    """The validated definitions and sections by their content."""
    entries: Map[bytes, KnownEntry] = MappingProxyType({})
    """The entries of sections by `Excerpt.key`."""
    owners: Map[DocumentPath, DocumentPath] = MappingProxyType({})
    """The entry, such as `("upstreams", "github")`, that each definition came from which is not written in the file."""


NO_LOAD: Final = LoadRecord()
NO_OWNERS: Final = NO_LOAD.owners


class ValidatedModels:
    """The models of one load, by their content; one that is made of the same as in an earlier load is taken over.

    Besides the time that this saves, it is then the same object, by which the compiler sees that nothing changed.
    """

    def __init__(self, earlier: Map[bytes, Model]) -> None:
        self._earlier: Final = earlier
        self.models: Final[dict[bytes, Model]] = {}
        """Those of this load."""

    def validate(self, model: type[M], data: Json) -> tuple[bytes, M]:
        """Validate interpolated data, unless it was before; return its key, too.

        Raises:
            ValidationError: it does not fit.
        """
        key = content_key(model.__qualname__, data)
        known = self.models.get(key) or self._earlier.get(key)
        value = known if isinstance(known, model) else model.model_validate(data)
        self.keep(key, value)
        return key, value

    def keep(self, key: bytes, value: Model) -> None:
        """Keep a model for the next load."""
        self.models[key] = value


def content_key(*values: object) -> bytes:
    """A digest of plain data or models that differs wherever they do.

    Pickled, never unpickled: equality would take an interpolated text for a plain one, and 1 for true.
    """
    return hashlib.blake2b(pickle.dumps(values), digest_size=_KEY_BYTES).digest()


class EntryReader:
    """Reads the entries of one load."""

    def __init__(
        self,
        interpolation: Interpolator,
        validated: ValidatedModels,
        *,
        of_files: Sized,
        earlier: Map[bytes, KnownEntry],
    ) -> None:
        """Read nothing yet.

        Args:
            interpolation: fills in values.
            validated: the models of this load.
            of_files: what is wrong with the files themselves: if anything, values may be missing.
            earlier: the entries of an earlier load.
        """
        self.diagnostics: list[Diagnostic] = []
        self.entries: Final[dict[bytes, KnownEntry]] = {}
        """The entries of this load that the next one may take over."""
        self.digests: Final[dict[DocumentPath, str]] = {}
        """`digest_of_written`, as far as it is known."""
        self._interpolation: Final = interpolation
        self._validated: Final = validated
        self._of_files: Final = of_files
        self._earlier: Final = earlier

    def read(
        self, model: type[M], item: MapItem, path: DocumentPath, *, key: bytes | None = None, directory: str = ""
    ) -> M | None:
        """The validated model; None, reported, if the entry does not fit it.

        With a `key` it may be taken over, or kept for the next load; `directory` is where its file lies.
        """
        known = None if key is None else self._earlier.get(key)
        if key is None or known is None or known.directory != directory:
            return self._read_anew(model, item, path, key=key, directory=directory)
        if not self._interpolation.repeat(known.references):
            return self._read_anew(model, item, path, key=key, directory=directory)
        self._validated.keep(known.content, known.model)
        self.entries[key] = known
        self.digests[path] = known.digest
        assert isinstance(known.model, model)  # noqa: S101 - the section is part of the key
        return known.model

    def _read_anew(
        self, model: type[M], item: MapItem, path: DocumentPath, *, key: bytes | None, directory: str
    ) -> M | None:
        interpolation = self._interpolation
        remarks, changes, references = interpolation.remarks, interpolation.changes, len(interpolation.references)
        data = interpolation.fill(item.node, path)
        try:
            content, value = self._validated.validate(model, data)
        except ValidationError as error:
            written = NodeRef(node=item.node, path=path, entry=item)
            self.diagnostics.extend(diagnostics_of(error, model=model, data=data, written=written))
            return None
        if self._of_files and _has_invalid(data):  # in an anchor, outside of the entry that uses it
            return None
        # Not after a remark: that has lines, and would not be made again for an entry that is taken over.
        if key is not None and isinstance(item.node, Mapping) and interpolation.remarks == remarks:
            node, line = item.node, item.key_start.line
            # The digest is of what is written: a new value of a variable does not change the lock.
            written = data if interpolation.changes == changes else plain(node)
            self.digests[path] = digest_of_written(written, directory)
            self.entries[key] = KnownEntry(
                model=value,
                content=content,
                references=tuple(interpolation.references[references:]),
                directory=directory,
                digest=self.digests[path],
                start=Point(node.start.line - line, node.start.column),
                is_flow=node.is_flow,
                size=node.size,
            )
        return value


def _has_invalid(data: Json) -> bool:
    match data:
        case dict():
            return any(map(_has_invalid, data.values()))
        case list():
            return any(map(_has_invalid, data))
        case _:
            return isinstance(data, Invalid)


def digest_of_written(value: Json, directory: str) -> str:
    """A digest of a definition as it is written; its relative paths lead elsewhere from another directory."""
    return digest_of_json([value, directory])


def digest_of_json(value: Json) -> str:
    # Lock files keep the digest: another form, even of a space, would change all of them.
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
