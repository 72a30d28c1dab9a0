"""Prints the content of a result, or saves the content to a file."""

import base64
import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson

from gateway import exact_json
from gateway.cli.console import Console
from gateway.errors import ConfigError
from gateway.json_types import ABSENT, Json, JsonObject

Piece = tuple[str | bytes, str]
"""The content of a block as text or bytes, and the media type if the content is binary."""


def pieces_of(blocks: Iterable[JsonObject]) -> list[Piece]:
    return [_piece(block) for block in blocks]


def _piece(block: JsonObject) -> Piece:
    match block:
        case {"type": "resource", "resource": dict() as contents}:
            return _piece(contents)
        case {"type": "resource_link", "uri": uri, "name": name}:
            return f"{name}: {uri}", ""
        case {"text": str() as text}:
            return text, ""
        case {"data": str() as data} | {"blob": str() as data}:
            return base64.b64decode(data), block.get("mimeType", "application/octet-stream")
        case _:
            return json.dumps(block), ""


def show_raw(result: JsonObject, out: Console) -> None:
    # Write a single line to a pipe, for programs that read lines.
    out.foreign(json.dumps(result, indent=2 if out.is_terminal else None, ensure_ascii=False))


def show_pieces(pieces: Sequence[Piece], *, out: Console, hints: Console) -> None:
    for content, media_type in pieces:
        if isinstance(content, str):
            out.foreign(content)
        else:
            size = f"{media_type}, {len(content)} bytes"
            hints.line(hints.styled(hints.clean(f"({size}; save it with `--output FILE`)"), "dim"))


def show_contents(
    result: JsonObject, pieces: Sequence[Piece], options: Namespace, out: Console, hints: Console
) -> None:
    if options.raw:
        show_raw(result, out)
    elif options.output is not None:
        save(pieces, options.output, hints=hints)
    else:
        show_pieces(pieces, out=out, hints=hints)


def show_tool_result(result: JsonObject, *, out: Console, hints: Console) -> None:
    """Print the content of a tool result. On a terminal, skip text blocks that only repeat the structured content."""
    pieces = pieces_of(result["content"])
    structured = result.get("structuredContent", ABSENT)
    if out.is_terminal and structured is not ABSENT:
        pieces = [piece for piece in pieces if not _repeats(piece[0], structured)]
        pieces.append((json.dumps(structured, indent=2, ensure_ascii=False), ""))
    show_pieces(pieces, out=out, hints=hints)


def _repeats(content: str | bytes, value: Json) -> bool:
    try:
        return bool(exact_json.loads(content) == value)
    except orjson.JSONDecodeError:
        return False


def save(pieces: Sequence[Piece], path: Path, *, hints: Console) -> None:
    """Write the binary content of a result, or else its text, to a file. `-` is standard output.

    Raise ConfigError if the result has several binary blocks.
    """
    binary = [content for content, _ in pieces if isinstance(content, bytes)]
    if len(binary) > 1:
        reason = f"the result contains {len(binary)} files, but only one can be saved. Print them with `--raw`"
        raise ConfigError.at("--output", reason)
    texts = (content.encode(errors="surrogateescape") for content, _ in pieces if isinstance(content, str))
    data = b"\n".join(binary or texts)
    if path == Path("-"):
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    with writing(path):
        path.write_bytes(data)
    hints.line(f"wrote {path} ({len(data)} bytes)")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert an OSError in the body of the `with` statement to a ConfigError that names the file."""
    try:
        yield
    except OSError as error:
        raise ConfigError.at(str(path), f"cannot be written: {error.strerror}") from error
