"""Lists the forms in which a secret may come back: in a URL, in JSON, base64, hexadecimal, or line by line. Pure.

How far this goes: what a library or a server does to text that it passes on, and three such encodings within each
other; `canonical` undoes most of them. Out of scope is deliberate hiding: encryption, or one character for each call.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from gateway.config.secrets.canonical import canonical

MIN_SECRET_LENGTH: Final = 8
"""Characters. A shorter secret would turn ordinary words into stars."""
_MAX_ENCODED_LENGTH: Final = 16 * 1024
"""Characters of a secret that is looked for in other forms too: a larger one is not echoed whole."""
_MAX_LINES: Final = 200
_UNESCAPED: Final = re.compile(r"[A-Za-z0-9_.~-]")
"""RFC 3986 §2.3: characters that no encoder escapes."""
_LINE_WIDTHS: Final = (64, 76)
"""Characters of a line of base64: RFC 7468 §2, RFC 2045 §6.8."""


def verbatim_forms_of(secret: str) -> set[str]:
    """Forms that are looked for in a text as it is; nothing for a secret that is too short.

    So is a secret with hardly a character that its canonical form keeps, with it as it stands in a URL and in JSON.
    """
    if len(secret) < MIN_SECRET_LENGTH:
        return set()
    forms = {secret, *_lines(secret)}
    if len(secret) <= _MAX_ENCODED_LENGTH:
        forms.add(_bytes(secret).hex())
    if len(canonical(_bytes(secret))) < MIN_SECRET_LENGTH:
        # Half of a surrogate pair has no UTF-8, and no form in a URL.
        forms |= {quote(secret, safe="", errors="replace"), json.dumps(secret)[1:-1]}
    return forms


def canonical_forms_of(secret: str) -> set[bytes]:
    """Forms that are looked for in the canonical form of a text; nothing for a secret that is too short."""
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
    """Return how many characters common encoders make of a secret at the most."""
    if len(secret) > _MAX_ENCODED_LENGTH:
        return len(secret)
    in_hexadecimal = 2 * len(_bytes(secret))  # more than in base64
    return max(in_hexadecimal, sum(map(_longest_escape, secret)))


def _longest_escape(character: str) -> int:
    if _UNESCAPED.fullmatch(character):
        return 1
    # In JSON within JSON seven for each unit of UTF-16, two backslashes among them; in a URL three for each byte.
    return max(7 * len(character.encode("utf-16-be", "surrogatepass")) // 2, 3 * len(_bytes(character)))


def _lines(secret: str) -> Iterator[str]:
    """The lines of a key: progress and logs have them one by one."""
    lines = [line.strip() for line in secret.splitlines()]
    if 1 < len(lines) <= _MAX_LINES:
        yield from (line for line in lines if len(line) >= MIN_SECRET_LENGTH)


def _in_base64(secret: str) -> Iterator[str]:
    """The part of its base64 that is the same wherever the secret begins: `user:secret` has it in its middle."""
    data = _bytes(secret)
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data).decode("ascii")
        first = -(-before * 8 // 6)  # characters that hold bits of what stands before
        last = (before + len(data)) * 8 // 6  # and none of what follows
        whole = encoded[first:last]
        yield from (whole, whole.translate(_URL_SAFE), quote(whole, safe=""))


def _lines_in_base64(secret: str) -> Iterator[str]:
    """Each line of a secret that was encoded by itself: progress and logs have them one by one."""
    encoded = base64.b64encode(_bytes(secret)).decode("ascii")
    for width in _LINE_WIDTHS:
        if width < len(encoded) <= width * _MAX_LINES:
            yield from (line for line in _chunks(encoded, width)[:-1])


def _chunks(text: str, width: int) -> list[str]:
    return [text[start : start + width] for start in range(0, len(text), width)]


_URL_SAFE: Final = str.maketrans("+/", "-_")
