"""Lists the encodings in which a secret may appear: URLs, JSON, base64, hexadecimal, single lines.

Up to three encodings by libraries and servers can be nested. `canonical` undoes most of them. Deliberate hiding, such
as encryption or one character per call, is not covered.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from gateway.config.secrets.canonical import canonical

MIN_SECRET_LENGTH: Final = 8
"""Characters. Shorter secrets are too similar to ordinary words."""
_MAX_ENCODED_LENGTH: Final = 16 * 1024
"""Characters. Longer secrets are searched only verbatim."""
_MAX_LINES: Final = 200
_UNESCAPED: Final = re.compile(r"[A-Za-z0-9_.~-]")
"""RFC 3986 §2.3: characters that are never escaped."""
_LINE_WIDTHS: Final = (64, 76)
"""Line lengths of base64: RFC 7468 §2, RFC 2045 §6.8."""


def verbatim_forms_of(secret: str) -> set[str]:
    """Return the forms to search in unmodified text. Empty for a secret that is too short.

    If the canonical form is too short to search, URL and JSON encodings are included.
    """
    if len(secret) < MIN_SECRET_LENGTH:
        return set()
    forms = {secret, *_lines(secret)}
    if len(secret) <= _MAX_ENCODED_LENGTH:
        forms.add(_bytes(secret).hex())
    if len(canonical(_bytes(secret))) < MIN_SECRET_LENGTH:
        # Unpaired surrogates cannot be percent-encoded.
        forms |= {quote(secret, safe="", errors="replace"), json.dumps(secret)[1:-1]}
    return forms


def canonical_forms_of(secret: str) -> set[bytes]:
    """Return the forms to search in canonical text. Empty for a secret that is too short."""
    if len(secret) < MIN_SECRET_LENGTH:
        return set()
    texts = [secret, *_lines(secret)]
    if len(secret) <= _MAX_ENCODED_LENGTH:
        texts += [*_in_base64(secret), *_lines_in_base64(secret), _bytes(secret).hex(), _bytes(secret).hex().upper()]
    forms = map(canonical, map(_bytes, texts))
    return {form for form in forms if len(form) >= MIN_SECRET_LENGTH}


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def longest_form_of(secret: str) -> int:
    """Return the maximum length of an encoded secret, in characters."""
    if len(secret) > _MAX_ENCODED_LENGTH:
        return len(secret)
    in_hexadecimal = 2 * len(_bytes(secret))  # longer than base64
    return max(in_hexadecimal, sum(map(_longest_escape, secret)))


def _longest_escape(character: str) -> int:
    if _UNESCAPED.fullmatch(character):
        return 1
    # Per UTF-16 unit: 7 in JSON within JSON. Per byte: 3 in a URL.
    return max(7 * len(character.encode("utf-16-be", "surrogatepass")) // 2, 3 * len(_bytes(character)))


def _lines(secret: str) -> Iterator[str]:
    """Yield the lines of a multi-line key. Progress and logs show single lines."""
    lines = [line.strip() for line in secret.splitlines()]
    if 1 < len(lines) <= _MAX_LINES:
        yield from (line for line in lines if len(line) >= MIN_SECRET_LENGTH)


def _in_base64(secret: str) -> Iterator[str]:
    """Yield the parts of the base64 encoding that do not depend on surrounding text, such as `user:`."""
    data = _bytes(secret)
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data).decode("ascii")
        first = -(-before * 8 // 6)  # excludes bits of the preceding text
        last = (before + len(data)) * 8 // 6  # excludes bits of the following text
        whole = encoded[first:last]
        yield from (whole, whole.translate(_URL_SAFE), quote(whole, safe=""))


def _lines_in_base64(secret: str) -> Iterator[str]:
    """Yield the lines of wrapped base64. Progress and logs show single lines."""
    encoded = base64.b64encode(_bytes(secret)).decode("ascii")
    for width in _LINE_WIDTHS:
        if width < len(encoded) <= width * _MAX_LINES:
            yield from (encoded[start : start + width] for start in range(0, len(encoded) - width, width))


_URL_SAFE: Final = str.maketrans("+/", "-_")
