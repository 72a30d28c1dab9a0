"""Suggests corrections for misspelt words."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_SYNONYMS: Final = {
    **dict.fromkeys(("cmd", "exec"), "command"),
    **dict.fromkeys(("args", "arguments", "parameters", "params"), "input"),
    **dict.fromkeys(("environment", "envs"), "env"),
    "desc": "description",
    "run": "script",
}
"""Maps keys that are common in other programs to the keys of this configuration."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` if a known word is similar, otherwise ""."""
    meant = nearest(word, known)
    return "" if meant is None else f"; did you mean `{meant}`?"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the most similar known word, or None. `fooBar` and `foo-bar` are compared as `foo_bar`."""
    ours = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).replace("-", "_").lower()
    in_lower_case = {each.lower(): each for each in known}
    if (synonym := _SYNONYMS.get(ours)) in in_lower_case and ours not in in_lower_case:
        return synonym
    return next((in_lower_case[each] for each in get_close_matches(ours, in_lower_case, n=1)), None)
