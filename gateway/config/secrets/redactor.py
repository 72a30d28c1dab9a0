"""Masks secrets in errors, progress, output, logs and problems."""

import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Final

import orjson

from gateway.config.models.interpolated_text import MASK
from gateway.config.secrets.secret_encodings import (
    MIN_SECRET_LENGTH,
    canonical,
    canonical_forms_of,
    encode,
    longest_form_of,
    mask_words,
    verbatim_forms_of,
)
from gateway.json_types import Json

_SAMPLE: Final = 6
_FEWEST: Final = 400
"""Minimum number of samples for a search by samples. With fewer, a separate search for each string is faster."""
_MOST_SAMPLES: Final = 100_000
_LONG: Final = 16
"""Minimum bytes of the strings in the group of long strings."""


class SubstringSearch:
    """Searches for several strings of at least 8 bytes at once.

    Samples of the data are looked up in a set of samples of the strings. Only after a match are the strings themselves
    searched for.
    """

    def __init__(self, needles: Iterable[bytes]) -> None:
        self.all: Final = sorted(set(needles), key=len, reverse=True)
        # Search short strings separately, because the shortest string determines the step.
        self._groups: Final = [
            _group([needle for needle in self.all if len(needle) >= _LONG]),
            _group([needle for needle in self.all if len(needle) < _LONG]),
        ]

    def found(self, data: bytes) -> Iterator[bytes]:
        """Yield the strings that occur in `data`, longest first."""
        for needles, step, samples in self._groups:
            starts = range(0, len(data) - _SAMPLE + 1, step)
            if samples is None or not samples.isdisjoint(data[at : at + _SAMPLE] for at in starts):
                yield from (needle for needle in needles if needle in data)

    def is_in(self, data: bytes) -> bool:
        return next(self.found(data), None) is not None


def _group(needles: Sequence[bytes]) -> tuple[Sequence[bytes], int, set[bytes] | None]:
    shortest = len(needles[-1]) if needles else _SAMPLE
    step = max(1, min(shortest - _SAMPLE + 1, _MOST_SAMPLES // max(1, len(needles))))
    if len(needles) * step < _FEWEST:
        return needles, step, None
    # Take samples at every offset, because only each `step`-th position of the data is checked.
    return needles, step, {needle[at : at + _SAMPLE] for needle in needles for at in range(step)}


_MIN_WORD_LENGTH: Final = 3
_MAX_OBTAINED: Final = 128
"""Maximum number of obtained secrets. The oldest secrets are dropped."""


class Redactor:
    """Masks secrets in plain and encoded form.

    Encoded secrets are found after most encodings have been removed from the text (`secret_encodings`). A word that
    contains part of an encoded secret is masked completely. A regular expression for all encodings would be a hundred
    times slower.
    """

    def __init__(self, secrets: Iterable[str] = (), *, obtained: "ObtainedSecrets | None" = None) -> None:
        self._obtained: Final = obtained
        self._secrets: Final = frozenset(filter(None, secrets))
        verbatim = {form for each in self._secrets for form in verbatim_forms_of(each)}
        self._verbatim: Final = SubstringSearch(map(encode, verbatim))
        self._in_json: Final = SubstringSearch([*map(encode, verbatim), *map(_in_json, verbatim)])
        self._canonical: Final = SubstringSearch(form for each in self._secrets for form in canonical_forms_of(each))
        self._longest_torn: Final = (
            # One less than the longest form, because a whole form is masked anyway.
            max((longest_form_of(each) for each in self._secrets if len(each) >= MIN_SECRET_LENGTH), default=1) - 1
        )
        # Sort by length, because the first alternative that matches wins.
        short = sorted((each for each in self._secrets if len(each) < MIN_SECRET_LENGTH), key=len, reverse=True)
        self._short: Final = re.compile("|".join(map(_as_word, short))) if short else None

    def __or__(self, other: "Redactor") -> "Redactor":
        """Return a redactor for the secrets of both redactors."""
        return Redactor(self._secrets | other._secrets, obtained=self._obtained or other._obtained)

    def with_obtained(self, obtained: "ObtainedSecrets") -> "Redactor":
        """Return a redactor that also masks `obtained`, including secrets that are added later."""
        return Redactor(self._secrets, obtained=obtained)

    @property
    def _others(self) -> "Redactor | None":
        return None if self._obtained is None else self._obtained.redactor

    def text(self, text: str) -> str:
        if (others := self._others) is not None:
            text = others.text(text)
        data = text.encode(errors="surrogatepass")
        if not self._is_own_in(data):
            return text
        for form in self._verbatim.found(data):
            data = data.replace(form, _MASK_BYTES)
        if encoded := list(self._canonical.found(canonical(data))):
            data = mask_words(data, encoded, _MASK_BYTES)
        return data.decode(errors="surrogatepass")

    def finds(self, text: str) -> bool:
        return self.is_in(text.encode(errors="surrogatepass"))

    def is_in(self, data: bytes) -> bool:
        if (others := self._others) is not None and others.is_in(data):
            return True
        return self._is_own_in(data)

    def _is_own_in(self, data: bytes) -> bool:
        has_secrets = bool(self._verbatim.all)
        return has_secrets and (self._verbatim.is_in(data) or self._canonical.is_in(canonical(data)))

    def strictly(self, text: str) -> str:
        """Mask secrets, including short ones that are whole words, in a message that quotes the configuration file."""
        text = self.text(text)
        return text if self._short is None else self._short.sub(MASK, text)

    def before_gap(self, text: str) -> str:
        """Remove the last characters of a truncated text, which can be the start of a secret.

        The number of removed characters is constant. Otherwise, callers who control the length could guess a secret.
        """
        return text[: max(0, len(text) - self._most_torn)]

    def after_gap(self, text: str) -> str:
        """Remove the first characters of a string whose start is missing, because they can be the end of a secret."""
        return text[self._most_torn :]

    @property
    def _most_torn(self) -> int:
        others = self._others
        return self._longest_torn if others is None else max(self._longest_torn, others._most_torn)  # noqa: SLF001 - same class

    def json(self, value: Json) -> Json:
        """Mask secrets in strings, member names and numbers."""
        if (others := self._others) is not None:
            value = others.json(value)
        return self._masked(value) if self._verbatim.all and self._may_hold(value) else value

    def _may_hold(self, value: Json) -> bool:
        """Whether the serialized value can contain a secret. This check is faster than visiting each nested value."""
        try:
            data = orjson.dumps(value)
        except TypeError:  # lone surrogate, number of more than 64 bits, mapping that is not a dict
            return True
        return self._in_json.is_in(data) or self._canonical.is_in(canonical(data))

    def _masked(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            # Plugins can return mappings whose keys are not strings.
            return {
                self._masked(name) if isinstance(name, str | int | float) else name: self._masked(member)
                for name, member in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._masked(item) for item in value]
        # Numbers can be secrets.
        if isinstance(value, int | float) and not isinstance(value, bool):
            return MASK if self._is_secret(value) else value
        return value

    def _is_secret(self, number: float) -> bool:
        try:
            return self.finds(str(number))
        except ValueError:  # more digits than `str` converts (`sys.set_int_max_str_digits`)
            return False


class LiveRedactor:
    """Holds the redactor of the current configuration, which each reload replaces."""

    def __init__(self) -> None:
        self._current = Redactor()

    def replace(self, redactor: Redactor) -> None:
        self._current = redactor

    def text(self, text: str) -> str:
        return self._current.text(text)

    def json(self, value: Json) -> Json:
        return self._current.json(value)


class ObtainedSecrets:
    """Secrets obtained at run time, such as access tokens of other services. `add` is thread-safe."""

    def __init__(self) -> None:
        self._secrets: Final[OrderedDict[str, None]] = OrderedDict()
        self._adding: Final = Lock()
        self.redactor: Redactor | None = None
        """None until a secret has been added."""

    def add(self, secret: str) -> None:
        """Start masking a secret. The call takes about one millisecond per known secret."""
        with self._adding:
            self._secrets[secret] = None
            self._secrets.move_to_end(secret)
            while len(self._secrets) > _MAX_OBTAINED:
                self._secrets.popitem(last=False)
            # Assign a new redactor, because other threads read `redactor` without the lock.
            self.redactor = Redactor(self._secrets)


_MASK_BYTES: Final = MASK.encode("ascii")


def _in_json(form: str) -> bytes:
    # The result must match the output of orjson.
    return encode(json.dumps(form, ensure_ascii=False)[1:-1])


def _as_word(secret: str) -> str:
    """Return a pattern that matches a short secret as a whole word. Very short secrets only match in quotes."""
    word = re.escape(secret)
    if len(secret) < _MIN_WORD_LENGTH:
        return rf"(?<=[`'\"/]){word}(?=[`'\"/])"
    return rf"(?<!\w){word}(?!\w)"
