"""Shows what a tool, a resource or a prompt answered: text as it is, bytes into a file."""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from gateway.cli.screen import Screen
from gateway.cli.words import refusal
from gateway.json_types import Json, JsonObject

_NOTHING: Final[Json] = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One content block, or one of a resource's contents."""

    content: str | bytes
    media_type: str = "application/octet-stream"

    def to_bytes(self) -> bytes:
        return self.content.encode(errors="surrogateescape") if isinstance(self.content, str) else self.content


def pieces_of(blocks: Iterable[JsonObject]) -> list[Piece]:
    return [_piece(block) for block in blocks]


def _piece(block: JsonObject) -> Piece:
    match block:
        case {"type": "resource", "resource": dict() as contents}:
            return _piece(contents)
        case {"type": "resource_link", "uri": uri, "name": name}:
            return Piece(content=f"{name}: {uri}")
        case {"text": str() as text}:
            return Piece(content=text)
        case {"data": str() as data} | {"blob": str() as data}:
            return Piece(content=base64.b64decode(data), media_type=block.get("mimeType", "application/octet-stream"))
        case _:
            return Piece(content=json.dumps(block))


def show_raw(result: JsonObject, out: Screen) -> None:
    out.line(json.dumps(result, indent=2 if out.is_terminal else None, ensure_ascii=False))


def show_pieces(pieces: Sequence[Piece], *, out: Screen, hints: Screen) -> None:
    for piece in pieces:
        if isinstance(piece.content, str):
            out.foreign(piece.content)
        else:
            size = f"{piece.media_type}, {len(piece.content)} bytes"
            hints.line(hints.styled(f"({size}: `--output FILE` writes it to a file)", "dim"))


def show_tool_result(result: JsonObject, *, out: Screen, hints: Screen) -> None:
    """The content; on a terminal, structured content in place of the text block that says the same."""
    pieces = pieces_of(result["content"])
    structured = result.get("structuredContent", _NOTHING)
    if out.is_terminal and structured is not _NOTHING:
        pieces = [piece for piece in pieces if not _says(piece, structured)]
        pieces.append(Piece(content=json.dumps(structured, indent=2, ensure_ascii=False)))
    show_pieces(pieces, out=out, hints=hints)


def _says(piece: Piece, value: Json) -> bool:
    try:
        return bool(orjson.loads(piece.content) == value)
    except orjson.JSONDecodeError:
        return False


def save(pieces: Sequence[Piece], path: Path, *, hints: Screen) -> None:
    """Write the one piece of bytes among them, or else all their text.

    Raises:
        ConfigError: several would have to go into one file.
    """
    binary = [piece for piece in pieces if isinstance(piece.content, bytes)]
    if len(binary) > 1:
        raise refusal("--output", f"the answer has {len(binary)} files; `--raw` prints them all")
    data = b"\n".join(piece.to_bytes() for piece in binary or pieces)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise refusal("--output", f"cannot write {path}: {error.strerror}") from error
    hints.line(f"wrote {path} ({len(data)} bytes)")
