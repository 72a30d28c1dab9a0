"""Masks secrets in text that leaves the daemon: errors, progress, output, logs, problems."""

import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Final

import orjson

from gateway.config.models.interpolated_text import MASK
from gateway.config.secrets.canonical import canonical, covered, has_escapes
from gateway.config.secrets.secret_encodings import (
    MIN_SECRET_LENGTH,
    canonical_forms_of,
    longest_form_of,
    verbatim_forms_of,
)
from gateway.config.secrets.substring_search import SubstringSearch
from gateway.json_types import Json

_MIN_WORD_LENGTH: Final = 3
_MAX_OBTAINED: Final = 128
"""Obtained secrets that are looked for in all that leaves. An older token is near its end, or that of a caller who
was here long ago."""


class Redactor:
    """Replaces each occurrence of a secret, in every form in which it may come back.

    A secret is looked for as it is, and in the canonical form of the text, in which the ways to write a character are
    one. Each form is looked for by itself: that takes a hundredth of the time that one pattern with all of them would.
    """

    def __init__(self, secrets: Iterable[str] = (), *, obtained: "ObtainedSecrets | None" = None) -> None:
        self._obtained: Final = obtained
        self._secrets: Final = frozenset(filter(None, secrets))
        verbatim = {form for each in self._secrets for form in verbatim_forms_of(each)}
        self._verbatim: Final = SubstringSearch(map(_bytes, verbatim))
        self._in_json: Final = SubstringSearch([*map(_bytes, verbatim), *map(_in_json, verbatim)])
        self._canonical: Final = SubstringSearch(form for each in self._secrets for form in canonical_forms_of(each))
        self._are_canonical: Final = all(len(canonical(form)) >= MIN_SECRET_LENGTH for form in self._verbatim.all)
        # Hardly a text is shorter than its canonical form: `&nGt;` and `&nLt;` are 5 bytes for 6, all else for fewer.
        self._shortest: Final = min(map(len, (*self._verbatim.all, *self._canonical.all)), default=0) * 5 // 6
        self._longest_torn: Final = (
            # One less than the longest form: a whole one is masked where it stands.
            max((longest_form_of(each) for each in self._secrets if len(each) >= MIN_SECRET_LENGTH), default=1) - 1
        )
        # The longest first, as a pattern takes the first alternative that fits.
        short = sorted((each for each in self._secrets if len(each) < MIN_SECRET_LENGTH), key=len, reverse=True)
        self._short: Final = re.compile("|".join(map(_as_word, short))) if short else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Redactor):
            return False
        return self._obtained is other._obtained and self._secrets == other._secrets

    def __hash__(self) -> int:
        return hash(self._secrets)

    def __or__(self, other: "Redactor") -> "Redactor":
        """One that masks the secrets of both."""
        return Redactor(self._secrets | other._secrets, obtained=self._obtained or other._obtained)

    def with_obtained(self, obtained: "ObtainedSecrets") -> "Redactor":
        """One that masks these secrets too, also those that are still to come."""
        return Redactor(self._secrets, obtained=obtained)

    @property
    def _others(self) -> "Redactor | None":
        return None if self._obtained is None else self._obtained.redactor

    def text(self, text: str) -> str:
        if self._obtained is not None and (others := self._obtained.redactor) is not None:
            text = others.text(text)
        if not self._verbatim.all:
            return text
        data = _bytes(text)
        if len(data) < self._shortest:
            return text
        masked = self._covered(data)
        # The same object: nothing was found, as in most texts, and nothing need be decoded.
        return text if masked is data else masked.decode(errors="surrogatepass")

    def _covered(self, data: bytes) -> bytes:
        for form in self._found_verbatim(data):
            data = data.replace(form, _MASK_BYTES)
        found = self._canonical.found(canonical(data))
        return covered(data, found, _MASK_BYTES) if found else data

    def _found_verbatim(self, data: bytes) -> list[bytes]:
        """The forms that the canonical form may lack: the text before a secret may be the start of an escape."""
        return self._verbatim.found(data) if has_escapes(data) or not self._are_canonical else []

    def finds(self, text: str) -> bool:
        """Whether there is anything to mask."""
        return self.is_in(_bytes(text))

    def is_in(self, data: bytes) -> bool:
        """The same of bytes, out of which nothing can be taken."""
        if (others := self._others) is not None and others.is_in(data):
            return True
        if not self._verbatim.all:
            return False
        return bool(self._found_verbatim(data) or self._canonical.found(canonical(data)))

    def strictly(self, text: str) -> str:
        """Mask like `text`, and short secrets that stand by themselves: for messages that quote the file."""
        text = self.text(text)
        return text if self._short is None else self._short.sub(MASK, text)

    def before_gap(self, text: str) -> str:
        """Leave out as much at the end of a text that was cut there as a torn secret could be.

        Whatever stands there: were only what looks like the beginning of a secret covered, a caller whose text is cut
        where it likes would find one out letter by letter.
        """
        return text[: max(0, len(text) - self._most_torn)]

    def after_gap(self, text: str) -> str:
        """The same at the beginning of a text whose beginning is missing."""
        return text[self._most_torn :]

    @property
    def _most_torn(self) -> int:
        others = self._others
        return self._longest_torn if others is None else max(self._longest_torn, others._most_torn)  # noqa: SLF001 - of its own kind

    def json(self, value: Json) -> Json:
        """`value` with every string in it masked, names of members too, and numbers that are secrets."""
        if (others := self._others) is not None:
            value = others.json(value)
        return self._masked(value) if self._verbatim.all and self._may_hold(value) else value

    def _may_hold(self, value: Json) -> bool:
        """Whether it is worth a walk through it: its text tells sooner."""
        try:
            data = orjson.dumps(value)
        except TypeError:  # a lone surrogate, a number of more than 64 bits, a mapping that is no dictionary
            return True
        return bool(self._in_json.found(data) or self._canonical.found(canonical(data)))

    def _masked(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self._masked_name(name): self._masked(member) for name, member in value.items()}
        if isinstance(value, list | tuple):
            return [self._masked(item) for item in value]
        # A secret may be a number, and is compared as text.
        if isinstance(value, int | float) and not isinstance(value, bool):
            return MASK if self._is_secret(value) else value
        return value

    def _masked_name(self, name: Json) -> Json:
        """The name of a member; a plugin's mapping may have names that are no text, and no JSON either."""
        return self._masked(name) if isinstance(name, str | int | float) else name

    def _is_secret(self, number: float) -> bool:
        try:
            return self.finds(str(number))
        except ValueError:  # more digits than `str` writes (`sys.set_int_max_str_digits`), and no JSON either
            return False


class ObtainedSecrets:
    """Secrets that the daemon was given while it runs: the access tokens of what it calls. The newest stay.

    Added by the threads that obtain them; read by all that mask.
    """

    def __init__(self) -> None:
        self._secrets: Final[OrderedDict[str, None]] = OrderedDict()
        self._adding: Final = Lock()
        self.redactor: Redactor | None = None
        """Masks them; None as long as there are none."""

    def add(self, secret: str) -> None:
        """Mask it from now on. Takes about a millisecond for each that is kept."""
        with self._adding:
            self._secrets[secret] = None
            self._secrets.move_to_end(secret)
            while len(self._secrets) > _MAX_OBTAINED:
                self._secrets.popitem(last=False)
            # Made whole, then assigned: threads that mask read it without the lock.
            self.redactor = Redactor(self._secrets)


_MASK_BYTES: Final = MASK.encode("ascii")


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _in_json(form: str) -> bytes:
    # As orjson writes texts, in which it is looked for.
    return json.dumps(form, ensure_ascii=False)[1:-1].encode(errors="surrogatepass")


def _as_word(secret: str) -> str:
    """A pattern for a short secret that is no part of a longer word; a very short one only where it is quoted."""
    word = re.escape(secret)
    if len(secret) < _MIN_WORD_LENGTH:
        return rf"(?<=[`'\"/]){word}(?=[`'\"/])"
    return rf"(?<!\w){word}(?!\w)"
