"""The state of a rendering: variables, output and the remaining budget.

Each operation is charged for the size of its values. Otherwise, nested loops over lists from a caller could block the
event loop for minutes.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
import orjson

from gateway import exact_json
from gateway.errors import ExecutionError
from gateway.json_types import ABSENT, Json

MAX_TEXT_BYTES: Final = 2**20
WORK: Final = 2**24
"""Budget of a rendering, enough for about a second. Copying a character costs one unit."""
ITEM: Final = 16
LOOP_TURN: Final = 128


class OmitElement(Exception):  # noqa: N818 - control flow within a rendering, not an error
    """Raised to omit an element, such as an argument or a header field, because a value is missing."""


class RenderState(msgspec.Struct):
    variables: Mapping[str, Json]
    in_element: bool = False
    """Whether a missing value omits the whole element instead of becoming empty text."""
    null: Json = ABSENT
    begins_with_value: bool = False
    """Whether the output starts with a value, and not with text from the file."""
    locals: dict[str, Json] = msgspec.field(default_factory=dict)
    _written: list[str] = msgspec.field(default_factory=list)
    _room: int = MAX_TEXT_BYTES
    _budget: int = WORK

    @property
    def text(self) -> str:
        return "".join(self._written)

    def write(self, text: str, *, is_value: bool) -> None:
        if not text:
            return
        self._room -= len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
        if self._room < 0:
            raise ExecutionError(f"the text would exceed {MAX_TEXT_BYTES // 2**20} MiB")
        if not self._written:
            self.begins_with_value = is_value
        self._written.append(text)

    def charge(self, amount: int) -> None:
        self._budget -= amount
        if self._budget < 0:
            raise ExecutionError("the template is too expensive for these arguments. Use fewer or shorter ones")

    def value(self, value: Json) -> Json:
        return self.null if value is None else value


def text_of(value: Json) -> str:
    """Return a value as text. Booleans, lists and objects are compact JSON."""
    if isinstance(value, str):
        return value
    if value is ABSENT:
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
    """Return the approximate cost of a comparison with a value, in units of `WORK`."""
    if isinstance(value, str):
        return ITEM + len(value) // 64
    if isinstance(value, list):
        return ITEM + sum(map(cost_of, value))
    if isinstance(value, Mapping):
        return ITEM + sum(map(cost_of, value.values()))
    return ITEM


def kind_of(value: Json) -> str:
    for kind, name in _KINDS.items():
        if isinstance(value, kind):
            return name
    return "nothing"


# `bool` must come before `int`, because `bool` is a subclass of `int`.
_KINDS: Final[Mapping[type, str]] = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    Mapping: "an object",
}
