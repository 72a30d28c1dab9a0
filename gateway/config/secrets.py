"""Masks secrets in text that leaves the daemon: errors, progress, output, logs, problems."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, quote_plus

from gateway.config.text import MASK
from gateway.json_types import Json

SHORTEST_MASKED: Final = 8
"""Characters. A shorter secret would turn ordinary words into stars."""


class Redactor:
    """Replaces each occurrence of a secret. One compiled alternation, so the cost does not grow with each secret."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets if len(secret) >= SHORTEST_MASKED for form in _forms(secret)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def json(self, value: Json) -> Json:
        """`value` with every string in it masked, names of members too."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(name): self.json(member) for name, member in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(item) for item in value]
        return value


def _forms(secret: str) -> set[str]:
    """As it is, and as it stands in a URL, in a form and in JSON: a backend may echo what it was sent."""
    in_url = {quote(secret, safe=safe, errors="replace") for safe in ("", "/")}
    in_json = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    return {secret, *in_url, quote_plus(secret, errors="replace"), *in_json}
