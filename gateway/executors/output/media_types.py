"""Classifies media types, and decodes bytes according to their media type."""

import codecs
import json
import re
from functools import lru_cache
from typing import Final, Literal

from gateway.language.files.media_types import essence

OCTETS: Final = "application/octet-stream"
PLAIN_TEXT: Final = "text/plain"
JSON: Final = "application/json"

_TEXTUAL: Final = frozenset(
    {
        "application/ecmascript",
        "application/graphql",
        "application/javascript",
        "application/jsonl",
        "application/sql",
        "application/toml",
        "application/typescript",
        "application/x-ndjson",
        "application/x-sh",
        "application/x-www-form-urlencoded",
        "application/xml",
        "application/yaml",
        "application/x-yaml",
        "image/svg+xml",
        "message/rfc822",
    }
)
_CHARSET: Final = re.compile(r"""[;,\s]charset\s*[=:]\s*\\?["']?\s*([^\s"';,\\]+)""", re.IGNORECASE)
_CODE_PAGE: Final = re.compile(r"^(?:x-)?(?:windows|win|cp|ibm|dos)[-_]?(?=\d)")
_DECLARED: Final = re.compile(
    rb"""<\?xml[^>]*?\bencoding\s*=\s*["']([^"']+)|<meta\b[^>]*?\bcharset\s*=\s*["']?\s*([^\s"'/>;]+)""", re.IGNORECASE
)
"""Matches the encoding that a document declares (XML 1.0 §4.3.3, HTML §4.2.5.4)."""
_MARKS: Final = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
"""Byte order marks and their codecs. Longer marks come first."""
_READ_AS: Final = {
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    **dict.fromkeys(("iso8859-11", "tis-620"), "cp874"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    **dict(zip(("iso8859-9", "big5", "shift_jis", "euc_kr"), ("cp1254", "big5hkscs", "cp932", "cp949"), strict=True)),
}
"""Codecs that browsers replace with a superset (WHATWG Encoding, "Names and labels")."""


@lru_cache(maxsize=64)
def media_kind(media_type: str) -> Literal["json", "text", "image", "audio"] | None:
    kind = essence(media_type)
    if kind == JSON or kind.endswith("+json"):  # RFC 6839 §3.1
        return "json"
    if kind.startswith("audio/"):
        return "audio"
    # Checked before images, because image/svg+xml is text.
    if kind.startswith("text/") or kind in _TEXTUAL or kind.endswith(("+xml", "+yaml")):
        return "text"
    return "image" if kind.startswith("image/") else None


def decoded(data: bytes, media_type: str | None = None) -> str:
    """Decode text in its declared encoding or UTF-8. Invalid bytes are replaced."""
    return data.decode(declared_encoding(data, media_type) or "utf-8", errors="replace")


def declared_encoding(data: bytes, media_type: str | None) -> str | None:
    """Return the encoding in a byte order mark, the media type, or the HTML or XML document. None means UTF-8."""
    if (marked := next((codec for mark, codec in _MARKS if data.startswith(mark)), None)) is not None:
        # A command's output keeps its UTF-8 byte order mark.
        return None if media_type is None and marked == "utf-8-sig" else marked
    if media_type is None:
        return None
    if (named := _CHARSET.search(media_type)) is not None:
        return _codec(named[1].lower())
    if b"\0" in data[:4] and (media_kind(media_type) == "json" or essence(media_type).endswith("xml")):
        return json.detect_encoding(data)  # XML 1.0 appendix F: zero bytes among the first characters show the encoding
    if essence(media_type).endswith(("html", "xml")) and (found := _DECLARED.search(data[:1024])):
        codec = _codec((found[1] or found[2]).decode("ascii", errors="replace").lower())
        # HTML §13.2.3.2: a declaration that is readable as ASCII cannot be in UTF-16.
        return None if codec is None or codec.startswith(("utf-16", "utf-32")) else codec
    return None


@lru_cache(maxsize=64)
def _codec(charset: str) -> str | None:
    """Return Python's codec for a charset, or None for UTF-8 and for unknown charsets."""
    for name in (charset, charset.removeprefix("x-"), _CODE_PAGE.sub("cp", charset)):
        try:
            b"x".decode(name, errors="replace")  # raises for codecs that do not decode text
            codec = codecs.lookup(name).name
        except (LookupError, ValueError):
            continue
        return None if codec == "utf-8" else _READ_AS.get(codec, codec)
    return None
