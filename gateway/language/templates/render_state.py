"""The state of one rendering: the values that a template sees, the text so far, and the remaining budget.

Why a budget: two nested loops over a caller's lists, or a `replace` that multiplies text, could hold the event loop for
minutes. Every operation pays for the size of what it handles, so no template needs a time limit.
"""

from collections.abc import Mapping
from typing import Final

import orjson

from gateway import exact_json
from gateway.errors import ExecutionError
from gateway.json_types import Json

MAX_TEXT_BYTES: Final = 2**20
"""How long the text that one template makes may get."""
WORK: Final = 2**24
"""Units that one rendering may spend; a character that is copied costs one. Used up after about a second."""
ITEM: Final = 16
"""The units that handling one item of a list costs."""
LOOP_TURN: Final = 128
"""The units that one turn of a loop costs."""


class _Undefined:
    """An optional input that was not given, or a member that is not there. False in a test."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "MISSING"


UNDEFINED: Final[Json] = _Undefined()


class OmitElement(Exception):  # noqa: N818 - control flow within a rendering, not an error
    """An absent value was rendered where that removes the whole element."""


class RenderState:
    """One rendering of one template."""

    __slots__ = (
        "_budget",
        "_room",
        "_written",
        "begins_with_value",
        "in_element",
        "locals",
        "null",
        "variables",
    )

    def __init__(self, variables: Mapping[str, Json], *, in_element: bool = False, null: Json = UNDEFINED) -> None:
        self.variables = variables
        self.locals: dict[str, Json] = {}
        """Names that `set` and `for` have bound."""
        self.in_element = in_element
        """Whether rendering an absent value removes the element, rather than being empty."""
        self.null = null
        """What a given null counts as."""
        self.begins_with_value = False
        """Whether the first character written came from a value, and not from the file."""
        self._written: list[str] = []
        self._room = MAX_TEXT_BYTES
        self._budget = WORK

    @property
    def text(self) -> str:
        return "".join(self._written)

    def write(self, text: str, *, is_value: bool) -> None:
        if not text:
            return
        # Python knows of each text whether it is ASCII: most are counted and not encoded.
        self._room -= len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
        if self._room < 0:
            raise ExecutionError(f"the text would be over {MAX_TEXT_BYTES // 2**20} MiB")
        if not self._written:
            self.begins_with_value = is_value
        self._written.append(text)

    def charge(self, amount: int) -> None:
        self._budget -= amount
        if self._budget < 0:
            raise ExecutionError("the arguments make too much work; give fewer or shorter ones")

    def value(self, value: Json) -> Json:
        """The value that `value` stands for in this rendering."""
        return self.null if value is None else value


def text_of(value: Json) -> str:
    """Return how a value reads: text as it is, true or false, lists and objects as compact JSON."""
    if isinstance(value, str):
        return value
    if value is UNDEFINED:
        return ""
    if isinstance(value, float | int) and not isinstance(value, bool):
        return str(value)
    return json_of(value)


def json_of(value: Json) -> str:
    try:
        return exact_json.dumps(value, default=_as_dict).decode()
    except orjson.JSONEncodeError as error:
        raise ExecutionError(f"a value cannot be written as JSON: {error}") from error


def _as_dict(value: Json) -> Json:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError


def cost_of(value: Json) -> int:
    """Return about how many units comparing this value takes."""
    if isinstance(value, str):
        return ITEM + len(value) // 64
    if isinstance(value, list):
        return ITEM + sum(map(cost_of, value))
    if isinstance(value, Mapping):
        return ITEM + sum(map(cost_of, value.values()))
    return ITEM


def kind_of(value: Json) -> str:
    """Name the JSON type, for a message."""
    for kind, name in _KINDS.items():
        if isinstance(value, kind):
            return name
    return "nothing"


# bool before int, of which it is a subclass.
_KINDS: Final[Mapping[type, str]] = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    Mapping: "an object",
}
