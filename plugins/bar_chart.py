"""Draws bar charts as PNG images with the standard library."""

import struct
import zlib

from gateway.plugin import Image, ToolError

BAR_WIDTH = 24
GAP = 8
HEIGHT = 120
BACKGROUND, BAR = b"\xf4", b"\x40"  # one byte of grey each


def draw(values: list[float]) -> Image:
    """Draw a bar chart of up to fifty positive numbers.

    Args:
        values: The heights of the bars.
    """
    if not 1 <= len(values) <= 50:
        raise ToolError("values must contain between 1 and 50 numbers")
    if min(values) < 0 or max(values) <= 0:
        raise ToolError("values must be positive")
    heights = [round(value / max(values) * HEIGHT) for value in values]
    rows = [b"".join(_bar(height, row) for height in heights) + BACKGROUND * GAP for row in range(HEIGHT, 0, -1)]
    return Image(_png(rows), "image/png")


def _bar(height: int, row: int) -> bytes:
    return BACKGROUND * GAP + (BAR if row <= height else BACKGROUND) * BAR_WIDTH


def _png(rows: list[bytes]) -> bytes:
    """Return an image of 8-bit grey pixels (PNG specification, "Chunk layout" and "Filter types")."""
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\x00" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
