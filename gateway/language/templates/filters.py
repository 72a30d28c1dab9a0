"""Filters and tests of templates, which behave as in Jinja. The reference is generated from `FILTERS` and `TESTS`.

All filters except `default` return missing values unchanged.
"""

import base64
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Final
from urllib.parse import quote

import msgspec
from jinja2.filters import do_float, do_int, do_title

from gateway.errors import ExecutionError
from gateway.json_types import ABSENT, Json
from gateway.language.files.file_argument import FileArgument
from gateway.language.templates.render_state import ITEM, RenderState, cost_of, json_of, kind_of, text_of

Function = Callable[..., Json]


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    function: Function
    meaning: str
    takes: Callable[[Json], Json] = lambda value: value
    """Converts the value to a type that the filter function accepts."""

    def apply(self, frame: RenderState, value: Json, *args: Json, **kwargs: Json) -> Json:
        if value is ABSENT and self.function is not default:
            return ABSENT
        taken = self.takes(value)
        frame.charge(ITEM + _size(taken))
        result = self.function(frame, taken, *args, **kwargs)
        frame.charge(_size(result))
        return result

    def refuses(self, args: int, names: tuple[str, ...]) -> str | None:
        try:
            signature(self.function).bind(None, None, *(None,) * args, **dict.fromkeys(names))
        except TypeError as error:
            return str(error)
        return None


def _size(value: Json) -> int:
    if isinstance(value, str):
        return len(value)
    return ITEM * len(value) if isinstance(value, list | Mapping) else ITEM


def _as_list(value: Json) -> list[Json]:
    if isinstance(value, list):
        return value
    if isinstance(value, Mapping):
        return list(value)
    raise ExecutionError(f"expected a list, not {kind_of(value)}")


def _as_number(value: Json) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ExecutionError(f"expected a number, not {kind_of(value)}")


def _as_object(value: Json) -> Mapping[str, Json]:
    if isinstance(value, Mapping):
        return value
    raise ExecutionError(f"expected an object, not {kind_of(value)}")


def _as_base64(value: Json) -> str:
    if isinstance(value, FileArgument):
        return value.base64
    return base64.b64encode(text_of(value).encode(errors="surrogatepass")).decode()


def _as_text_or_list(value: Json) -> str | list[Json]:
    return text_of(value) if not isinstance(value, list | Mapping) else _as_list(value)


def member(value: Json, key: Json) -> Json:
    """Return a member of an object, an item of a list or a character of a string, or ABSENT."""
    if isinstance(value, Mapping):
        return value.get(key, ABSENT) if isinstance(key, str) else ABSENT
    if isinstance(value, list | str) and isinstance(key, int) and not isinstance(key, bool):
        return value[key] if -len(value) <= key < len(value) else ABSENT
    return ABSENT


def _each(frame: RenderState, values: list[Json], attribute: Json) -> list[Json]:
    if attribute is None:
        return values
    steps = text_of(attribute).split(".")
    frame.charge(ITEM * len(steps) * len(values))
    return [_member_at(value, steps) for value in values]


def _member_at(value: Json, steps: list[str]) -> Json:
    for step in steps:
        value = member(value, int(step) if step.isdecimal() and isinstance(value, list) else step)
    return value


def _order(value: Json) -> tuple[int, float, str]:
    """Return a sort key for values of all types: numbers first, then other values as text."""
    if isinstance(value, int | float):
        return 0, value, ""
    return 1, 0, text_of(value).casefold()


def default(_frame: RenderState, value: Json, default_value: Json = "", boolean: Json = False) -> Json:  # noqa: FBT002 - as in Jinja
    return default_value if value is ABSENT or (boolean and not value) else value


def _join(frame: RenderState, values: list[Json], d: Json = "", attribute: Json = None) -> str:
    texts, between = [text_of(value) for value in _each(frame, values, attribute)], text_of(d)
    frame.charge(sum(map(len, texts)) + len(between) * len(texts))
    return between.join(texts)


def _replace(frame: RenderState, text: str, old: Json, new: Json, count: Json = None) -> str:
    old, new, times = text_of(old), text_of(new), -1 if count is None else int(_as_number(count))
    # Charge before replacing: an empty `old` matches between all characters.
    frame.charge(text.count(old) * len(new))
    return text.replace(old, new, times)


def _indent(frame: RenderState, text: str, width: Json = 4, first: Json = False, blank: Json = False) -> str:  # noqa: FBT002 - as in Jinja
    # Limit the width, because the margin is created before it is charged.
    margin = width if isinstance(width, str) else " " * min(int(_as_number(width)), 100)
    lines = text.split("\n")
    frame.charge(len(lines) * len(margin))
    return "\n".join(
        margin + line if (line or blank) and (number or first) else line for number, line in enumerate(lines)
    )


def _truncate(
    _frame: RenderState,
    text: str,
    length: Json = 255,
    killwords: Json = False,  # noqa: FBT002
    end: Json = "...",
    leeway: Json = 5,
) -> str:
    longest, ending = int(_as_number(length)), text_of(end)
    if len(text) <= longest + int(_as_number(leeway)):
        return text
    head = text[: max(0, longest - len(ending))]
    return (head if killwords else head.rsplit(" ", 1)[0]) + ending


def _round(_frame: RenderState, number: float, precision: Json = 0) -> float:
    return round(number, max(-15, min(15, int(_as_number(precision)))))


def _converted_by(convert: Callable[[Json, Json], Json], otherwise: Json) -> Function:
    def converted(_frame: RenderState, value: Json, default: Json = otherwise) -> Json:
        try:
            return convert(value, default)
        except OverflowError:  # infinity as an integer, or an integer of 400 digits as a float
            return default

    return converted


def _unique(frame: RenderState, values: list[Json]) -> list[Json]:
    frame.charge(cost_of(values))
    first: dict[tuple[bool, str], Json] = {}
    for value in values:
        is_text = isinstance(value, str)  # the text "1" differs from the number
        first.setdefault((is_text, value.lower() if is_text else json_of(value)), value)
    return list(first.values())


def _sort(frame: RenderState, values: list[Json], reverse: Json = False, *, attribute: Json = None) -> list[Json]:  # noqa: FBT002 - as in Jinja
    members = _each(frame, values, attribute)
    frame.charge(cost_of(members))
    keys = list(map(_order, members))
    return [values[at] for at in sorted(range(len(values)), key=keys.__getitem__, reverse=bool(reverse))]


def _sum(frame: RenderState, values: list[Json], attribute: Json = None) -> float:
    return sum(_as_number(value) for value in _each(frame, values, attribute) if value is not ABSENT)


def _extreme(choose: Function) -> Function:
    def extreme(frame: RenderState, values: list[Json]) -> Json:
        frame.charge(cost_of(values))
        return choose(values, key=_order, default=ABSENT)

    return extreme


def _map(frame: RenderState, values: list[Json], *, attribute: Json) -> list[Json]:
    return [None if value is ABSENT else value for value in _each(frame, values, attribute)]


def _with_member(*, wanted: bool) -> Function:
    def choose(frame: RenderState, values: list[Json], attribute: Json) -> list[Json]:
        members = _each(frame, values, attribute)
        return [value for value, found in zip(values, members, strict=True) if bool(found) is wanted]

    return choose


_LENGTH: Final = Filter(
    function=lambda _, value: len(value), takes=_as_text_or_list, meaning="number of characters, items or members"
)
_DEFAULT: Final = Filter(
    function=default,
    meaning="a replacement for a missing value; `default('x', true)` also replaces empty and false values",
)

FILTERS: Final[Mapping[str, Filter]] = {
    "abs": Filter(function=lambda _, number: abs(number), takes=_as_number, meaning="absolute value of a number"),
    "base64": Filter(
        function=lambda _, text: text,
        takes=_as_base64,
        meaning="base64 of a file's bytes, or of text in UTF-8",
    ),
    "capitalize": Filter(
        function=lambda _, text: text.capitalize(),
        takes=text_of,
        meaning="first letter in upper case, the others in lower case",
    ),
    "count": _LENGTH,
    "d": _DEFAULT,
    "default": _DEFAULT,
    "first": Filter(function=lambda _, value: member(value, 0), takes=_as_text_or_list, meaning="the first item"),
    "float": Filter(
        function=_converted_by(do_float, 0.0),
        meaning="text as a number; `float(1.5)` sets the result for other text",
    ),
    "indent": Filter(
        function=_indent,
        takes=text_of,
        meaning="all lines except the first indented by 4 spaces, or by 2 with `indent(2)`",
    ),
    "int": Filter(
        function=_converted_by(do_int, 0),
        meaning="text or a number as an integer; `int(1)` sets the result for other text",
    ),
    "items": Filter(
        function=lambda _, value: [[name, item] for name, item in value.items()],
        takes=_as_object,
        meaning="the members of an object, for `for name, value in …`",
    ),
    "join": Filter(
        function=_join,
        takes=_as_list,
        meaning="the items as one text, separated with `join(', ')`; `attribute=` selects a member of each item",
    ),
    "last": Filter(function=lambda _, value: member(value, -1), takes=_as_text_or_list, meaning="the last item"),
    "length": _LENGTH,
    "lower": Filter(function=lambda _, text: text.lower(), takes=text_of, meaning="lower case"),
    "map": Filter(function=_map, takes=_as_list, meaning="one member of each item: `map(attribute='name')`"),
    "max": Filter(function=_extreme(max), takes=_as_list, meaning="the largest item"),
    "min": Filter(function=_extreme(min), takes=_as_list, meaning="the smallest item"),
    "rejectattr": Filter(
        function=_with_member(wanted=False), takes=_as_list, meaning="items without a true member: `rejectattr('done')`"
    ),
    "replace": Filter(
        function=_replace,
        takes=text_of,
        meaning="replaces text: `replace('old', 'new')`; a third argument limits the replacements",
    ),
    "reverse": Filter(function=lambda _, value: value[::-1], takes=_as_text_or_list, meaning="in reverse order"),
    "round": Filter(function=_round, takes=_as_number, meaning="a rounded number; `round(2)` keeps two decimal places"),
    "selectattr": Filter(
        function=_with_member(wanted=True), takes=_as_list, meaning="items with a true member: `selectattr('done')`"
    ),
    "sort": Filter(
        function=_sort,
        takes=_as_list,
        meaning="sorted, numbers first; `sort(reverse=true)`, `sort(attribute='name')`",
    ),
    "string": Filter(function=lambda _, text: text, takes=text_of, meaning="the value as text"),
    "sum": Filter(
        function=_sum, takes=_as_list, meaning="the sum of numbers; `sum(attribute='size')` adds a member of each item"
    ),
    "title": Filter(function=lambda _, text: do_title(text), takes=text_of, meaning="Each Word With A Capital"),
    "tojson": Filter(function=lambda _, value: json_of(value), meaning="the value as compact JSON"),
    "trim": Filter(
        function=lambda _, text, chars=None: text.strip(chars),
        takes=text_of,
        meaning="without white space at both ends",
    ),
    "truncate": Filter(
        function=_truncate,
        takes=text_of,
        meaning="at most 255 characters including `...`, or 40 with `truncate(40)`; up to 5 more are tolerated",
    ),
    "unique": Filter(function=_unique, takes=_as_list, meaning="each item once, ignoring case"),
    "upper": Filter(function=lambda _, text: text.upper(), takes=text_of, meaning="upper case"),
    "urlencode": Filter(
        function=lambda _, text: quote(text, safe="/"), takes=text_of, meaning="percent-encoded, except `/`"
    ),
}


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


TESTS: Final[Mapping[str, tuple[Function, str]]] = {
    "boolean": (lambda value: isinstance(value, bool), "true or false"),
    "defined": (lambda value: value is not ABSENT, "present"),
    "divisibleby": (
        lambda value, by: _is_number(value) and bool(_as_number(by)) and value % by == 0,
        "divisible by the argument",
    ),
    "even": (lambda value: _is_number(value) and value % 2 == 0, "an even number"),
    "false": (lambda value: value is False, "exactly false"),
    "float": (lambda value: isinstance(value, float), "a number with a fraction"),
    "integer": (lambda value: _is_number(value) and isinstance(value, int), "an integer"),
    "mapping": (lambda value: isinstance(value, Mapping), "an object"),
    "none": (lambda value: value is None or value is ABSENT, "null or missing"),
    "number": (_is_number, "a number"),
    "odd": (lambda value: _is_number(value) and value % 2 == 1, "an odd number"),
    "sequence": (lambda value: isinstance(value, list), "a list"),
    "string": (lambda value: isinstance(value, str), "text"),
    "true": (lambda value: value is True, "exactly true"),
    "undefined": (lambda value: value is ABSENT, "missing"),
}
"""Maps each test to a function and a description. The function takes a value or ABSENT, and any argument."""
