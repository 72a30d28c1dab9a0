"""What is left of a definition with a mistake in it, and whether that is worth compiling.

Why: all mistakes are to be found at once, the loader's and the compiler's, and none that only follows from another. So
a mistake is taken out at the place where it stands, or replaced by what says least, as long as nothing else depends on
it. A definition whose backend is wrong is looked at with one that does nothing; one without its inputs or its address
is left out, since much would only follow from that.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from gateway.config.base import Model
from gateway.config.primitives import RESOURCE_BACKENDS, TOOL_BACKENDS, Prompt, Resource, Tool
from gateway.config.problems import DocumentPath
from gateway.config.reading.wording import keys_of, model_at, nearest
from gateway.json_types import Json

_NEEDED: Final = frozenset(
    {
        *((key,) for key in ("input_schema", "content", "uri", "files", "root", "file", "text", "blob", "messages")),
        *(("shell", key) for key in ("command", "script")),
        *(("http", key) for key in ("url", "connection")),
        ("python", "call"),
        ("base_url",),
    }
)
"""Keys of a definition without which the rest means something else: a mistake in one is not to be mended."""

_NEEDED_AS_A_WHOLE: Final = frozenset((key,) for key in ("shell", "http", "python", "input", "arguments"))
"""Mappings that are needed, too, but can do without one member."""

_NAMED: Final = frozenset({"input", "arguments"})
"""Mappings whose names are used elsewhere: a mistake in a member is replaced by a member that says nothing."""

_SILENT: Final[Mapping[str, Json]] = {"content": "", "messages": {"user": ""}}
"""Lists of which one item can be replaced by one that says nothing."""

_IDLE: Final[Mapping[type[Model], Mapping[str, Json]]] = {
    Tool: {"content": [""]},
    Resource: {"text": ""},
    Prompt: {"messages": [{"user": ""}]},
}
"""Backends that do nothing."""

_DOING: Final[Mapping[type[Model], frozenset[str]]] = {
    Tool: frozenset(TOOL_BACKENDS),
    Resource: frozenset(RESOURCE_BACKENDS),
    Prompt: frozenset({"messages", "python"}),
}
"""Backends, of which a definition has one."""

_ABOUT_BACKENDS: Final = frozenset({"output", "is_error", "tests", "root", "max_files"})
"""Keys that may be right with one backend and wrong with another."""

_LITERAL: Final = frozenset({"headers", "query", "env", "form", "json", "body", "stdin"})
"""Keys below which a value that could not be filled in may be any text."""


def is_mendable(data: Json, steps: DocumentPath, model: type[Model]) -> bool:
    """Whether the rest of a definition keeps its meaning without what stands at these steps."""
    if _is_argument(steps) or _is_member(steps) or _is_item(data, steps):
        return True
    meant = _meant(data, _above_lists(steps), model)
    is_needed = meant in _NEEDED_AS_A_WHOLE or any(meant[:length] in _NEEDED for length in (1, 2))
    return bool(meant) and not is_needed


def mend(data: Json, steps: DocumentPath) -> None:
    """Take a mistake out of a definition, or put something in its place that says nothing."""
    if _is_argument(steps):
        _replace(data, steps, by="")
    elif _is_member(steps) and "${" not in str(steps[-1]):
        _replace(data, steps, by={})
    elif _is_item(data, steps):
        _silence(data[steps[0]], steps[1:], by=_SILENT[str(steps[0])])
    else:
        _remove(data, _above_lists(steps))


def idle(data: Json, mistakes: Iterable[DocumentPath], model: type[Model]) -> Json | None:
    """The definition with a backend that does nothing, if the mistakes are all about its own; otherwise None."""
    doing = _DOING.get(model, frozenset())
    if not doing or not isinstance(data, dict):
        return None
    meant = {_meant(data, _above_lists(steps), model)[:1] for steps in mistakes}
    if any(key and key[0] not in doing for key in meant):
        return None
    dropped = {*doing, *_ABOUT_BACKENDS, *_named_by_a_function(data)}
    known = {key: value for key, value in data.items() if key in keys_of(model) and key not in dropped}
    return {**known, **_IDLE[model]}


def _named_by_a_function(data: Json) -> tuple[str, ...]:
    """The keys that may name what the parameters of a function say, where they say it."""
    is_written = "python" not in data or "input" in data or "input_schema" in data or "arguments" in data
    return () if is_written else ("confirm", "confirm_fallback")


def is_survivable(steps: DocumentPath) -> bool:
    """Whether a value that could not be filled in, or that stands there twice, can stay as it is."""
    return not steps or any(step in _LITERAL for step in steps)


def _is_argument(steps: DocumentPath) -> bool:
    """Whether it is an item of a command behind its program, or stands in one."""
    return steps[:2] == ("shell", "command") and len(steps) > 2 and steps[2] != 0 and isinstance(steps[-1], int)


def _is_member(steps: DocumentPath) -> bool:
    return len(steps) == 2 and steps[0] in _NAMED


def _is_item(data: Json, steps: DocumentPath) -> bool:
    """Whether it is one of several content blocks or messages, or stands in one."""
    is_below_one = len(steps) > 1 and steps[0] in _SILENT and isinstance(data, dict)
    return is_below_one and isinstance(data.get(steps[0]), list)


def _silence(items: Json, steps: DocumentPath, *, by: Json) -> None:
    """Put `by` in an item's place; of a message with several blocks, nothing in that of one of them."""
    match steps:
        case (index, role, int(block), *_) if isinstance(items[index], dict) and isinstance(
            items[index].get(role), list
        ):
            items[index][role][block] = ""
        case (index, *_):
            items[index] = by


def _above_lists(steps: DocumentPath) -> DocumentPath:
    """The key whose value holds the mistake: a list is taken out whole, since its items may be counted."""
    in_list = next((index for index, step in enumerate(steps) if isinstance(step, int)), len(steps))
    return steps[:in_list]


def _meant(data: Json, steps: DocumentPath, model: type[Model]) -> DocumentPath:
    """The steps, with the key that an unknown one at their end probably stands for, unless that is given as well."""
    owner = model_at(model, steps[:-1])
    if not steps or owner is None or steps[-1] in keys_of(owner):
        return steps
    for step in steps[:-1]:
        data = data[step]
    absent = [key for key in keys_of(owner) if key not in data]
    return (*steps[:-1], nearest(str(steps[-1]), absent) or steps[-1])


def _replace(data: Json, steps: DocumentPath, *, by: Json) -> None:
    for step in steps[:-1]:
        data = data[step]
    data[steps[-1]] = by


def _remove(data: Json, steps: DocumentPath) -> None:
    for step in steps[:-1]:
        if step not in data:  # has been taken out already, with another mistake
            return
        data = data[step]
    data.pop(steps[-1], None)
