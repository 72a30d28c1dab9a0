"""Masks secrets in text that leaves the daemon: errors, progress, output, logs, problems."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import orjson

from gateway.config.secret_forms import SHORTEST, forms_of
from gateway.config.text import MASK
from gateway.json_types import Json

_SHORTEST_WORD: Final = 3


class Redactor:
    """Replaces each occurrence of a secret, in every form in which it may come back.

    Each form is looked for by itself: that takes a hundredth of the time that one pattern with all of them would.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: Final = frozenset(filter(None, secrets))
        self._forms: Final = sorted(
            {form for secret in self._secrets for form in forms_of(secret)}, key=len, reverse=True
        )
        self._longest_torn: Final = max(map(len, self._forms), default=1) - 1
        self._are_plain: Final = all(map(_is_plain, self._forms))
        """Whether they look in JSON as they do elsewhere."""
        short = sorted((each for each in self._secrets if len(each) < SHORTEST), key=len, reverse=True)
        self._short: Final = re.compile("|".join(map(_as_word, short))) if short else None

    def __or__(self, other: "Redactor") -> "Redactor":
        """One that masks the secrets of both."""
        return Redactor(self._secrets | other._secrets)

    def text(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return text

    def finds(self, text: str) -> bool:
        """Whether there is anything to mask."""
        return any(form in text for form in self._forms)

    def is_in(self, data: bytes) -> bool:
        """The same of bytes, out of which nothing can be taken."""
        return any(form.encode(errors="replace") in data for form in self._forms)

    def strictly(self, text: str) -> str:
        """As `text`, and short secrets where they stand by themselves: for what quotes the file, and little else."""
        text = self.text(text)
        return text if self._short is None else self._short.sub(MASK, text)

    def before_gap(self, text: str) -> str:
        """Leave out as much at the end of a text that was cut there as a torn secret could be.

        Whatever stands there: were only what looks like the beginning of a secret covered, a caller whose text is cut
        where it likes would find one out letter by letter.
        """
        return text[: max(0, len(text) - self._longest_torn)]

    def after_gap(self, text: str) -> str:
        """The same at the beginning of a text whose beginning is missing."""
        return text[self._longest_torn :]

    def json(self, value: Json) -> Json:
        """`value` with every string in it masked, names of members too, and numbers that are secrets."""
        return self._masked(value) if self._forms and self._may_hold(value) else value

    def _may_hold(self, value: Json) -> bool:
        """Whether it is worth a walk through it: its text tells sooner."""
        if not self._are_plain:
            return True
        try:
            text = orjson.dumps(value).decode()
        except TypeError:  # a lone surrogate, a number of more than 64 bits, a mapping that is no dictionary
            return True
        return any(form in text for form in self._forms)

    def _masked(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(name): self._masked(member) for name, member in value.items()}
        if isinstance(value, list | tuple):
            return [self._masked(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            text = str(value)
            return value if self.text(text) == text else MASK
        return value


def _is_plain(form: str) -> bool:
    return form.isascii() and form.isprintable() and '"' not in form and "\\" not in form


def _as_word(secret: str) -> str:
    """A pattern for a short secret that is no part of a longer word; a very short one only where it is quoted."""
    word = re.escape(secret)
    if len(secret) < _SHORTEST_WORD:
        return rf"(?<=[`'\"/]){word}(?=[`'\"/])"
    return rf"(?<!\w){word}(?!\w)"
