"""Lists the forms in which a secret may come back: in a URL, in JSON, base64, hexadecimal, or line by line. Pure.

How far this goes: what a library or a server does to text that it passes on, and three such encodings within each
other. Out of scope is deliberate hiding: encryption, or one character for each call.
"""

import base64
import html
import json
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, quote_plus

from gateway.config.secrets.canonical import canonical

MIN_SECRET_LENGTH: Final = 8
"""Characters. A shorter secret would turn ordinary words into stars."""
_MAX_ENCODED_LENGTH: Final = 16 * 1024
"""Characters of a secret that is looked for in other forms too: a larger one is not echoed whole."""
_MAX_LINES: Final = 200
_SAFE_IN_URLS: Final = ("", "/", "/:?@!$&'()*+,;=~", "!$'()*,~")
"""Characters that one library or another leaves as they are in a URL."""


_LINE_WIDTHS: Final = (64, 76)
"""Characters of a line of base64: RFC 7468 §2, RFC 2045 §6.8."""


def verbatim_forms_of(secret: str) -> set[str]:
    """Forms that are looked for in a text as it is; nothing for a secret that is too short.

    A secret with hardly a character that its canonical form keeps is looked for in every form that is known.
    """
    if len(secret) < MIN_SECRET_LENGTH:
        return set()
    if len(canonical(_bytes(secret))) < MIN_SECRET_LENGTH:
        return encodings_of(secret)
    in_hexadecimal = {_bytes(secret).hex()} if len(secret) <= _MAX_ENCODED_LENGTH else set()
    return {secret, *_lines(secret), *in_hexadecimal}


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


def encodings_of(secret: str) -> set[str]:
    """A secret as it is, and in the other forms that common encoders give it; nothing for one that is too short."""
    if len(secret) < MIN_SECRET_LENGTH:
        return set()
    forms = {secret, *_lines(secret)}
    if len(secret) <= _MAX_ENCODED_LENGTH:
        forms.update(*map(_encoded, tuple(forms)), _in_base64(secret), _wrapped_base64(secret))
        forms.update((_bytes(secret).hex(), _bytes(secret).hex().upper()))
    return {form for form in forms if len(form) >= MIN_SECRET_LENGTH}


def _lines(secret: str) -> Iterator[str]:
    """The lines of a key: progress and logs have them one by one."""
    lines = [line.strip() for line in secret.splitlines()]
    if 1 < len(lines) <= _MAX_LINES:
        yield from (line for line in lines if len(line) >= MIN_SECRET_LENGTH)


def _encoded(text: str) -> Iterator[str]:
    for safe in _SAFE_IN_URLS:
        # `replace`, as half of a surrogate pair has no UTF-8.
        in_url = quote(text, safe=safe, errors="replace")
        yield in_url
        yield _with_small_hex(in_url)
    in_form = quote_plus(text, errors="replace")
    yield from (in_form, _with_small_hex(in_form))
    for ascii_only in (True, False):
        in_json = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield from (in_json, json.dumps(in_json, ensure_ascii=ascii_only)[1:-1])
    # `repr` is in Python's tracebacks, and in lists that were printed.
    yield from (repr(text)[1:-1], html.escape(text), html.escape(text, quote=False))
    # .NET and Go write characters of HTML in JSON so; and JSON within JSON.
    yield from (_SPECIAL.sub(escape, text) for escape in (_in_four_digits, _in_four_digits_twice, _as_reference))


_SPECIAL: Final = re.compile(r"[^ -~]|[<>&'\"`+=/\\]")
"""What encoders for HTML, and for JSON that may stand in it, do not leave as it is."""


def _in_four_digits(match: re.Match[str]) -> str:
    """Characters beyond the basic plane are two escapes (RFC 8259 §7)."""
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02X}{low:02X}" for high, low in zip(units[::2], units[1::2], strict=True))


def _in_four_digits_twice(match: re.Match[str]) -> str:
    return _in_four_digits(match).replace("\\", "\\\\")


def _as_reference(match: re.Match[str]) -> str:
    return f"&#x{ord(match[0]):X};"


def _with_small_hex(text: str) -> str:
    """`%2F` as `%2f`."""
    first, *others = text.split("%")
    return "%".join([first, *(other[:2].lower() + other[2:] for other in others)])


def _in_base64(secret: str) -> Iterator[str]:
    """The part of its base64 that is the same wherever the secret begins: `user:secret` has it in its middle."""
    data = _bytes(secret)
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data).decode("ascii")
        first = -(-before * 8 // 6)  # characters that hold bits of what stands before
        last = (before + len(data)) * 8 // 6  # and none of what follows
        whole = encoded[first:last]
        yield from (whole, whole.translate(_URL_SAFE), quote(whole, safe=""))


def _wrapped_base64(secret: str) -> Iterator[str]:
    for width in _LINE_WIDTHS:
        yield "\\r\\n".join(_chunks(base64.b64encode(_bytes(secret)).decode("ascii"), width))


def _lines_in_base64(secret: str) -> Iterator[str]:
    """Each line of a secret that was encoded by itself: progress and logs have them one by one."""
    encoded = base64.b64encode(_bytes(secret)).decode("ascii")
    for width in _LINE_WIDTHS:
        if width < len(encoded) <= width * _MAX_LINES:
            yield from (line for line in _chunks(encoded, width)[:-1])


def _chunks(text: str, width: int) -> list[str]:
    return [text[start : start + width] for start in range(0, len(text), width)]


_URL_SAFE: Final = str.maketrans("+/", "-_")
