"""Inputs of operations: parameters and body members, with unique names."""

import re
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from gateway.json_types import Json
from gateway.language.templates.caller import CALLER
from gateway.openapi.operations import MAX_NAME, hash_of

Place = Literal["path", "query", "header", "cookie", "body"]
PLACES: Final[tuple[Place, ...]] = ("path", "query", "header", "cookie", "body")
"""In order of precedence: if two inputs share a name, the later place becomes its suffix."""

_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_OTHERS_IN_PATH: Final = re.compile(r"[^A-Za-z0-9_]+")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_JINJA_KEYWORDS: Final = frozenset({
    "and", "block", "elif", "else", "endfor", "endif", "endset", "false", "False", "for", "if", "in", "inputs", "is",
    "loop", "none", "None", "not", "or", "recursive", "self", "set", "true", "True",
})  # fmt: skip


class Input(msgspec.Struct, frozen=True, kw_only=True):
    place: Place
    wire_name: str
    schema: Json
    names: frozenset[str] = frozenset()
    """The names under `$defs` that the schema refers to."""
    is_required: bool = False

    @property
    def key(self) -> tuple[Place, str]:
        return self.place, self.wire_name


def named(inputs: Iterable[Input]) -> dict[tuple[Place, str], str]:
    """Return the input names by place and wire name, independent of the order of the inputs.

    1. Invalid characters become `_`, and long names are shortened.
    2. Equal names of one place get a hash, except a name that did not change.
    3. Equal names of several places get the later place as a suffix: `id__query`. So does `caller`.
    """
    given = {each.key: _clean(each) for each in inputs}
    for place in PLACES:
        own = {key: name for key, name in given.items() if key[0] == place}
        for key, name in own.items():
            is_shared = sum(other == name for other in own.values()) > 1
            if is_shared and name != key[1]:
                # Eight characters: two underscores and six digits.
                given[key] = f"{name[: MAX_NAME - 8]}__{hash_of(key[1])}"
    found: dict[tuple[Place, str], str] = {}
    for place in PLACES:
        # Templates use `caller` for the identity of the caller.
        taken = {CALLER, *found.values()}
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
    """Return the template of an input's value, with an optional Jinja filter."""
    is_plain = _IDENTIFIER.fullmatch(name) is not None and name not in _JINJA_KEYWORDS
    value = name if is_plain else f"inputs['{name}']"
    return f"{{{{ {value} | {filtered} }}}}" if filtered else f"{{{{ {value} }}}}"


def _clean(each: Input) -> str:
    others = _OTHERS_IN_PATH if each.place == "path" else _OTHERS  # RFC 6570 §2.3: no hyphen in a variable's name
    name = others.sub("_", each.wire_name)
    if name != each.wire_name:
        name = name.strip("_-") or "value"
    if not re.match(r"[A-Za-z_]", name):
        name = f"_{name}"
    # Reserve ten characters for a suffix such as `__header`.
    if len(name) <= MAX_NAME - 10:
        return name
    return f"{name[: MAX_NAME - 18]}_{hash_of(each.wire_name)}"
