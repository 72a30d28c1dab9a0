"""Inputs of a tool: the parameters and the members of the body that models are asked for, with names of their own."""

import re
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from gateway.json_types import Json
from gateway.openapi.operations import MAX_NAME, hash_of

Place = Literal["path", "query", "header", "cookie", "body"]
PLACES: Final[tuple[Place, ...]] = ("path", "query", "header", "cookie", "body")
"""From the most frequent one to the rarest: where two inputs have one name, the rarer place is added to it."""

_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_OTHERS_IN_PATH: Final = re.compile(r"[^A-Za-z0-9_]+")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS_OF_JINJA: Final = frozenset({
    "and", "block", "elif", "else", "endfor", "endif", "endset", "false", "False", "for", "if", "in", "inputs", "is",
    "loop", "none", "None", "not", "or", "recursive", "self", "set", "true", "True",
})  # fmt: skip


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """One input, before it has its name."""

    place: Place
    wire_name: str
    """The parameter's name, or the member's."""
    schema: Json
    names: frozenset[str] = frozenset()
    """The names under `$defs` that its schema refers to."""
    is_required: bool = False

    @property
    def key(self) -> tuple[Place, str]:
        return self.place, self.wire_name


def named(inputs: Iterable[Input]) -> dict[tuple[Place, str], str]:
    """The names for models: by place and name on the wire; the same in whatever order the inputs are given.

    1. What an input's name cannot hold becomes `_`, and what is too long is cut.
    2. Two of one place that come to the same get a hash of what they were, unless one of them is the same as it was.
    3. Two of one name in several places: the later place is added (`id__query`).
    """
    given = {each.key: _clean(each) for each in inputs}
    for place in PLACES:
        own = {key: name for key, name in given.items() if key[0] == place}
        for key, name in own.items():
            is_shared = sum(other == name for other in own.values()) > 1
            if is_shared and name != key[1]:
                # Eight: two underscores and six digits.
                given[key] = f"{name[: MAX_NAME - 8]}__{hash_of(key[1])}"
    found: dict[tuple[Place, str], str] = {}
    for place in PLACES:
        taken = {*found.values()}
        names = {key: name for key, name in given.items() if key[0] == place}
        for key, name in names.items():
            others = taken | {other for each, other in names.items() if each != key}
            found[key] = _free(name, key, taken=taken, others=others)
    return found


def _free(name: str, key: tuple[Place, str], *, taken: set[str], others: set[str]) -> str:
    if name not in taken:
        return name
    suffixed = f"{name}__{key[0]}"
    if suffixed not in taken | others:
        return suffixed
    return f"{name[: MAX_NAME - 8]}__{hash_of(repr(key))}"


def expression(name: str, *, filtered: str = "") -> str:
    """The template that is the value of an input, `filtered` by what follows a `|`."""
    is_plain = _IDENTIFIER.fullmatch(name) is not None and name not in _WORDS_OF_JINJA
    value = name if is_plain else f"inputs['{name}']"
    return f"{{{{ {value} | {filtered} }}}}" if filtered else f"{{{{ {value} }}}}"


def _clean(each: Input) -> str:
    others = _OTHERS_IN_PATH if each.place == "path" else _OTHERS  # RFC 6570 §2.3: no hyphen in a variable's name
    name = others.sub("_", each.wire_name)
    if name != each.wire_name:
        name = name.strip("_-") or "value"
    if not re.match(r"[A-Za-z_]", name):
        name = f"_{name}"
    # Leaves room for a place, such as `__header`.
    if len(name) <= MAX_NAME - 10:
        return name
    return f"{name[: MAX_NAME - 18]}_{hash_of(each.wire_name)}"
