"""The forms in which a secret may come back: in a URL, in JSON, in base64, or a line at a time. Pure.

How far this goes: what a library or a server does to text that it passes on, once, and JSON within JSON. Not what
somebody does to a secret who wants to hide it: encryption, hexadecimal, or one character for each call.
"""

import base64
import html
import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, quote_plus

SHORTEST: Final = 8
"""Characters. A shorter secret would turn ordinary words into stars."""
_LONGEST_ENCODED: Final = 16 * 1024
"""Characters of a secret that is looked for in other forms too: nobody echoes a larger one whole."""
_MOST_LINES: Final = 200
_SAFE_IN_URLS: Final = ("", "/", "/:?@!$&'()*+,;=~", "!$'()*,~")
"""Characters that one library or another leaves as they are in a URL."""


def forms_of(secret: str) -> set[str]:
    """A secret as it is, and in every other form; nothing for one that is too short."""
    if len(secret) < SHORTEST:
        return set()
    forms = {secret, *_lines(secret)}
    if len(secret) <= _LONGEST_ENCODED:
        forms.update(*map(_encoded, tuple(forms)), _in_base64(secret))
    return {form for form in forms if len(form) >= SHORTEST}


def _lines(secret: str) -> Iterator[str]:
    """The lines of a key: progress and logs have them one by one."""
    lines = [line.strip() for line in secret.splitlines()]
    if 1 < len(lines) <= _MOST_LINES:
        yield from (line for line in lines if len(line) >= SHORTEST)


def _encoded(text: str) -> Iterator[str]:
    for safe in _SAFE_IN_URLS:
        in_url = quote(text, safe=safe, errors="replace")
        yield in_url
        yield _with_small_hex(in_url)
    in_form = quote_plus(text, errors="replace")
    yield from (in_form, _with_small_hex(in_form))
    for ascii_only in (True, False):
        in_json = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield from (in_json, json.dumps(in_json, ensure_ascii=ascii_only)[1:-1])
    yield from (repr(text)[1:-1], html.escape(text), html.escape(text, quote=False))


def _with_small_hex(text: str) -> str:
    """`%2F` as `%2f`."""
    first, *others = text.split("%")
    return "%".join([first, *(other[:2].lower() + other[2:] for other in others)])


def _in_base64(secret: str) -> Iterator[str]:
    """What of it is the same wherever the secret begins within a text: `user:secret` has it in its middle."""
    data = secret.encode(errors="replace")
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data).decode("ascii")
        first = -(-before * 8 // 6)  # characters that hold bits of what stands before
        last = (before + len(data)) * 8 // 6  # and none of what follows
        whole = encoded[first:last]
        yield from (whole, whole.translate(_URL_SAFE), quote(whole, safe=""))


_URL_SAFE: Final = str.maketrans("+/", "-_")
