"""Finds encoded secrets in text, with the help of a canonical form that removes most encodings.

URLs, JSON, base64, hexadecimal and character references are covered, with up to three nested encodings. Deliberate
hiding, such as encryption or one character per call, is not covered.

`canonical` decodes percent-encoding, HTML and XML character references, and the backslash escapes of JSON, JavaScript,
Python, C, Go and shells. `canonical` also removes white space, control characters, quotes, backslashes and the
characters that differ between base64 alphabets. A secret therefore has the same canonical form in plain text, in a URL,
and in JSON within JSON. All functions take linear time and memory.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from html.entities import html5
from typing import Final
from urllib.parse import quote, unquote_to_bytes

MIN_SECRET_LENGTH: Final = 8
"""Minimum characters of a secret. Shorter secrets are too similar to ordinary words."""
_MAX_ENCODED_LENGTH: Final = 16 * 1024
"""Maximum characters of a secret to search in base64 and hexadecimal."""
_MAX_LINES: Final = 200
_UNESCAPED: Final = re.compile(r"[A-Za-z0-9_.~-]")
"""Characters that are never percent-encoded (RFC 3986 §2.3)."""
_LINE_WIDTHS: Final = (64, 76)
"""Line lengths of wrapped base64: RFC 7468 §2, RFC 2045 §6.8."""
_URL_SAFE: Final = str.maketrans("+/", "-_")

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


def verbatim_forms_of(secret: str) -> set[str]:
    """Return the encodings of a secret to search for in unmodified text, or none for a very short secret.

    URL and JSON encodings are included only if the canonical form of the secret is too short to search for.
    """
    if len(secret) < MIN_SECRET_LENGTH:
        return set()
    forms = {secret, *_lines(secret)}
    if len(secret) <= _MAX_ENCODED_LENGTH:
        forms.add(encode(secret).hex())
    if len(canonical(encode(secret))) < MIN_SECRET_LENGTH:
        # Unpaired surrogates cannot be percent-encoded.
        forms |= {quote(secret, safe="", errors="replace"), json.dumps(secret)[1:-1]}
    return forms


def canonical_forms_of(secret: str) -> set[bytes]:
    """Return the encodings of a secret to search for in canonical text, or none for a very short secret."""
    if len(secret) < MIN_SECRET_LENGTH:
        return set()
    texts = [secret, *_lines(secret)]
    if len(secret) <= _MAX_ENCODED_LENGTH:
        texts += [*_in_base64(secret), *_lines_in_base64(secret), encode(secret).hex(), encode(secret).hex().upper()]
    forms = map(canonical, map(encode, texts))
    return {form for form in forms if len(form) >= MIN_SECRET_LENGTH}


def encode(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def longest_form_of(secret: str) -> int:
    """Return the length of the longest encoding of a secret, in characters."""
    if len(secret) > _MAX_ENCODED_LENGTH:
        return len(secret)
    in_hexadecimal = 2 * len(encode(secret))  # longer than base64
    return max(in_hexadecimal, sum(map(_longest_escape, secret)))


def _longest_escape(character: str) -> int:
    if _UNESCAPED.fullmatch(character):
        return 1
    # JSON within JSON needs 7 characters per UTF-16 code unit. A URL needs 3 characters per byte.
    return max(7 * len(character.encode("utf-16-be", "surrogatepass")) // 2, 3 * len(encode(character)))


def _lines(secret: str) -> Iterator[str]:
    """Yield the lines of a multi-line secret, because progress and logs show single lines."""
    lines = [line.strip() for line in secret.splitlines()]
    if 1 < len(lines) <= _MAX_LINES:
        yield from (line for line in lines if len(line) >= MIN_SECRET_LENGTH)


def _in_base64(secret: str) -> Iterator[str]:
    """Yield the parts of the base64 encoding that do not depend on surrounding text, such as `user:`."""
    data = encode(secret)
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data).decode("ascii")
        first = -(-before * 8 // 6)  # excludes bits of the preceding text
        last = (before + len(data)) * 8 // 6  # excludes bits of the following text
        whole = encoded[first:last]
        yield from (whole, whole.translate(_URL_SAFE), quote(whole, safe=""))


def _lines_in_base64(secret: str) -> Iterator[str]:
    """Yield the lines of the secret's base64 encoding, wrapped at the usual widths. Logs can contain a single line."""
    encoded = base64.b64encode(encode(secret)).decode("ascii")
    for width in _LINE_WIDTHS:
        if width < len(encoded) <= width * _MAX_LINES:
            yield from (encoded[start : start + width] for start in range(0, len(encoded) - width, width))


def canonical(data: bytes) -> bytes:
    """Return the canonical form of `data`, which can be any bytes."""
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


_WORD_BYTES: Final = rb"\\%#;{}0-9A-Za-z"
"""All bytes that an escape can contain, except for `&` at its start."""
_WORD: Final = re.compile(rb"&?[%b]+|[\x80-\xff]+|." % _WORD_BYTES, re.DOTALL)
_CHUNK: Final = re.compile(rb".{1,4096}[%b\x80-\xff]*" % _WORD_BYTES, re.DOTALL)


def mask_words(data: bytes, needles: Iterable[bytes], mask: bytes) -> bytes:
    """Replace each word in `data` with `mask` if its canonical form contains part of a needle."""
    chunks = _CHUNK.findall(data)
    found = _marked(b"".join(map(canonical, chunks)), needles)
    shown: list[bytes] = []
    at = 0
    for chunk in chunks:
        end = at + len(canonical(chunk))
        # Split a chunk into words only if it contains part of a secret.
        words = _WORD.findall(chunk) if found.count(0, at, end) < end - at else [chunk]
        if len(words) > 1 and sum(len(canonical(word)) for word in words) != end - at:
            words = [chunk]  # An escape is spelled with several words, such as `&#37;&#50;&#48;`.
        for word in words:
            end = at + len(canonical(word))
            is_inside = found[at : at + 1] == _INSIDE
            if not is_inside and found.count(0, at, end) == end - at:
                shown.append(word)
            elif not (is_inside and shown and shown[-1] is mask):
                shown.append(mask)
            at = end
    return b"".join(shown)


_FIRST, _INSIDE = b"\1", b"\2"


def _marked(whole: bytes, needles: Iterable[bytes]) -> bytearray:
    """Return a byte for each byte of `whole`: `_FIRST` at the start of a needle, `_INSIDE` within, 0 elsewhere."""
    marks = bytearray(len(whole))
    for needle in needles:
        at = whole.find(needle)
        while at >= 0:
            end = at + len(needle)
            marks[at:end] = (marks[at : at + 1].strip(b"\0") or _FIRST) + _INSIDE * (len(needle) - 1)
            at = whole.find(needle, end)
    return marks


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
