"""Bodies of requests and responses as they are kept, and as they are shown: masked.

Kept is the JSON text, of a large body the beginning. It is masked when somebody asks for it, which costs calls nothing.

Threat answered here: a secret that is cut where a body was cut would not be found; as much as could be one is left out.
Secrets are looked for in strings rather than in JSON text, where a quotation mark or a line break looks different.
"""

import json
import re
from typing import Final

import msgspec
import orjson

from gateway import exact_json
from gateway.config.models.interpolated_text import MASK
from gateway.config.secrets.redactor import Redactor
from gateway.json_types import Json

MAX_BODY: Final = 64 * 1024
"""Bytes of a body that are kept."""

_TOKEN: Final = re.compile(r'"(?P<text>[^"\\]*+(?:\\.[^"\\]*+)*+)(?P<end>"?)|-?[0-9][0-9.eE+-]*+', re.DOTALL)
"""A string of JSON, which the end of the text may cut, or a number."""
_TORN_ESCAPE: Final = re.compile(r"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
"""An escape that was cut, and half of a surrogate pair."""


class Body(msgspec.Struct, frozen=True, gc=False):
    """A body, or its beginning."""

    text: bytes
    size: int
    """Bytes of the whole."""

    @property
    def is_truncated(self) -> bool:
        return self.size > len(self.text)

    def shown(self, redactor: Redactor) -> Json:
        """Return it masked: as a value, or as the beginning of its JSON text if it was cut."""
        if self.is_truncated:
            return _masked_beginning(self.text.decode(errors="ignore"), redactor)
        try:
            return redactor.json(exact_json.loads(self.text))
        except orjson.JSONDecodeError:  # nested deeper than it can be read exactly
            return _masked_beginning(self.text.decode(errors="replace"), redactor)


def kept(text: bytes) -> Body:
    """Return as much of a body as is kept."""
    return Body(text if len(text) <= MAX_BODY else text[:MAX_BODY], len(text))


def _masked_beginning(text: str, redactor: Redactor) -> str:
    # String by string: a secret with a quotation mark or a line break looks different in JSON text.
    def masked(match: re.Match[str]) -> str:
        if match["text"] is None:
            is_torn = match.end() == len(text)
            return MASK if is_torn or redactor.finds(match[0]) else match[0]
        if match["end"]:
            return _written(redactor.text(_read(match["text"])))
        torn = _read(_TORN_ESCAPE.sub("", match["text"]))
        return _written(redactor.before_gap(redactor.text(torn)))[:-1]

    return _TOKEN.sub(masked, text)


def _read(token: str) -> str:
    try:
        found = json.loads(f'"{token}"', strict=False)
    except ValueError:
        return ""
    return found if isinstance(found, str) else ""


def _written(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
