"""Decodes text to a canonical form in which secrets are found regardless of their encoding.

Percent-encoding, HTML and XML character references, and the backslash escapes of JSON, JavaScript, Python, C, Go and
shells are decoded. White space, control characters, quotes, backslashes and the characters that differ between base64
alphabets are removed. A secret therefore has the same form in wrapped base64, in JSON within JSON, and between terminal
escapes. All functions work on UTF-8, in linear time and memory.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from html.entities import html5
from itertools import accumulate
from typing import Final
from urllib.parse import unquote_to_bytes

_PASSES: Final = 3
"""Number of nested encodings that are decoded."""
_PERCENT: Final = re.compile(rb"%[0-9A-Fa-f]{2}")
_WHITE_SPACE: Final = re.compile(rb"\\[nrt]")
_ESCAPE: Final = re.compile(
    rb"\\(?:[uU]\{([0-9A-Fa-f]{1,6})\}"
    rb"|u([dD][89abAB][0-9A-Fa-f]{2})\\+u([dD][c-fC-F][0-9A-Fa-f]{2})"
    rb"|(?:u|U0000|U0001|U0010)([0-9A-Fa-f]{4})"
    rb"|x([0-9A-Fa-f]{2})|([0-3][0-7]{2}))"
)
_REFERENCE: Final = re.compile(rb"&(?:#([0-9]{1,7})|#[xX]([0-9A-Fa-f]{1,6})|([A-Za-z][A-Za-z0-9]{1,31}));")
_INVISIBLE: Final = re.compile(
    # C1 controls, soft hyphen, zero-width characters, directional formatting, byte order mark.
    b"\xc2[\x80-\x9f\xad]|\xe2\x80[\x8b-\x8f\xaa-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xbb\xbf"
)
_OMITTED: Final = bytes([*range(0x21), 0x7F]) + b"\"'`\\+-"
_TABLE: Final = bytes.maketrans(b"_", b"/")  # RFC 4648 §5. `+` and `-` are omitted, because forms encode spaces as `+`.

_PIECE: Final = 4096
"""Minimum number of bytes to trace at once."""
_LONGEST_PIECE: Final = 2**18
"""Bytes. A longer piece consists only of escapes and is masked as a whole."""
_BOUNDARY: Final = re.compile(
    # Positions outside of escapes.
    rb"[^\\%&#;{}0-9A-Za-z\x80-\xff]|(?<=[0-9A-Za-z]{64})|(?=[\xc2-\xf4])"
)


def canonical(data: bytes) -> bytes:
    """Return the canonical form. `data` can be any bytes."""
    for _ in range(_PASSES):
        decoded = data
        if b"%" in data and _PERCENT.search(data) is not None:
            decoded = unquote_to_bytes(decoded)
        if b"\\" in decoded:
            decoded = _ESCAPE.sub(_character, _WHITE_SPACE.sub(b"", decoded))
        if b"&" in decoded:
            decoded = _REFERENCE.sub(_referenced, decoded)
        if decoded == data:
            break
        data = decoded
    if not data.isascii():
        data = _INVISIBLE.sub(b"", data)
    return data.translate(_TABLE, _OMITTED)


def has_escapes(data: bytes) -> bool:
    """Whether the text can contain escapes. Otherwise each verbatim match is also a canonical match."""
    return b"\\" in data or b"%" in data or b"&" in data


def covered(data: bytes, needles: Iterable[bytes], mask: bytes) -> bytes:
    """Replace every part of `data` whose canonical form is in `needles` with `mask`."""
    pieces = _pieces(data)
    forms = [canonical(piece) for piece in pieces]
    # Escapes never span pieces.
    whole = b"".join(forms)
    spans = _joined(_spans(whole, needles))
    if not spans:
        return data
    origins = _Origins(pieces, forms)
    shown: list[bytes] = []
    end = 0
    for first, last in spans:
        start, stop = origins.start(first), origins.end(last - 1)
        # Two spans in one escape or untraced piece are masked once.
        if start >= end:
            shown += [data[end:start], mask]
        end = max(end, stop)
    return b"".join([*shown, data[end:]])


def _spans(whole: bytes, needles: Iterable[bytes]) -> list[tuple[int, int]]:
    found = []
    for needle in needles:
        at = whole.find(needle)
        while at >= 0:
            found.append((at, at + len(needle)))
            at = whole.find(needle, at + len(needle))
    return found


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _pieces(data: bytes) -> list[bytes]:
    pieces, start = [], 0
    while start < len(data):
        boundary = _BOUNDARY.search(data, start + _PIECE)
        end = len(data) if boundary is None else boundary.end()
        pieces.append(data[start:end])
        start = end
    return pieces


class _Origins:
    """Maps positions in the canonical form to positions in the text. Queries must be in ascending order."""

    def __init__(self, pieces: Sequence[bytes], forms: Sequence[bytes]) -> None:
        self._pieces: Final = pieces
        self._places: Final = [0, *accumulate(map(len, pieces))]
        self._form_places: Final = [0, *accumulate(map(len, forms))]
        self._traced: tuple[int, array[int], array[int]] = (-1, array("L"), array("L"))

    def start(self, at: int) -> int:
        number, starts, _ = self._piece(at)
        return self._places[number] + (starts[at - self._form_places[number]] if starts else 0)

    def end(self, at: int) -> int:
        number, _, ends = self._piece(at)
        return self._places[number] + (ends[at - self._form_places[number]] if ends else len(self._pieces[number]))

    def _piece(self, at: int) -> "tuple[int, array[int], array[int]]":
        number = bisect_right(self._form_places, at) - 1
        if number != self._traced[0]:
            self._traced = (number, *_traced(self._pieces[number]))
        return self._traced


def _traced(data: bytes) -> "tuple[array[int], array[int]]":
    """Return the start and end in `data` of each canonical byte, or empty arrays if `data` is too long."""
    # Lists would take several times the memory.
    starts, ends = array("L"), array("L")
    if len(data) > _LONGEST_PIECE:
        return starts, ends
    starts.extend(range(len(data)))
    ends.extend(range(1, len(data) + 1))
    for _ in range(_PASSES):
        before = data
        for pattern, decode in _STEPS:
            data, starts, ends = _substituted(data, starts, ends, pattern, decode)
        if data == before:
            break
    data, starts, ends = _substituted(data, starts, ends, _INVISIBLE, _nothing)
    kept = [index for index, byte in enumerate(data) if byte not in _OMITTED]
    return array("L", [starts[index] for index in kept]), array("L", [ends[index] for index in kept])


def _substituted(
    data: bytes,
    starts: "array[int]",
    ends: "array[int]",
    pattern: re.Pattern[bytes],
    decode: Callable[[re.Match[bytes]], bytes],
) -> "tuple[bytes, array[int], array[int]]":
    parts: list[bytes] = []
    new_starts, new_ends = array("L"), array("L")
    end = 0
    for match in pattern.finditer(data):
        first, last = match.span()
        parts += [data[end:first], decoded := decode(match)]
        new_starts.extend(starts[end:first])
        new_ends.extend(ends[end:first])
        new_starts.extend([starts[first]] * len(decoded))
        new_ends.extend([ends[last - 1]] * len(decoded))
        end = last
    if not end:
        return data, starts, ends
    new_starts.extend(starts[end:])
    new_ends.extend(ends[end:])
    return b"".join([*parts, data[end:]]), new_starts, new_ends


def _nothing(_: re.Match[bytes]) -> bytes:
    return b""


def _percent(match: re.Match[bytes]) -> bytes:
    return unquote_to_bytes(match[0])


def _character(match: re.Match[bytes]) -> bytes:
    braced, high, low, four, byte, octal = match.groups()
    if byte is not None:
        return bytes([int(byte, 16)])
    if octal is not None:
        return bytes([int(octal, 8)])
    if high is not None:
        # RFC 8259 §7: characters outside the basic plane are two escapes.
        return _utf8(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
    plane = {b"\\U0001": 0x10000, b"\\U0010": 0x100000}.get(match[0][:6], 0) if braced is None else 0
    return _utf8(plane + int(four if braced is None else braced, 16))


def _referenced(match: re.Match[bytes]) -> bytes:
    decimal, hexadecimal, name = match.groups()
    if name is not None:
        known = html5.get(f"{name.decode('ascii')};")
        return match[0] if known is None else known.encode()
    return _utf8(int(decimal) if decimal is not None else int(hexadecimal, 16))


def _utf8(code: int) -> bytes:
    # The secret itself can contain unpaired surrogates.
    return chr(code).encode("utf-8", "surrogatepass") if code <= 0x10FFFF else b""


_STEPS: Final = (
    (_PERCENT, _percent),
    (_WHITE_SPACE, _nothing),
    (_ESCAPE, _character),
    (_REFERENCE, _referenced),
)
"""The steps of one pass, in order."""
