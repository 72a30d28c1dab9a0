"""Which mistakes of a definition leave the rest of it worth compiling.

Why: all mistakes are to be found at once, the loader's and the compiler's, and none that only follows from another. So
what stands in a place that nothing else depends on is taken out, and everything else makes the definition unusable.
"""

from typing import Final

from gateway.config.base import Model
from gateway.config.problems import DocumentPath
from gateway.config.wording import keys_of, model_at, nearest
from gateway.json_types import Json

_HARMLESS: Final = frozenset(
    {
        *((key,) for key in ("title", "description", "icons", "meta", "tags", "aliases", "annotations", "requires")),
        *((key,) for key in ("access", "timeout", "concurrency", "queue", "rate_limit", "cache", "coerce")),
        *((key,) for key in ("confirm", "confirm_fallback", "ask_timeout", "max_files", "max_size", "mime_type")),
        *((key,) for key in ("retry", "proxy")),
        *((key,) for key in ("tls", "allow_private")),
        *(("shell", key) for key in ("timeout", "success_codes", "progress", "inherit_env", "limits", "sandbox")),
        *(("http", key) for key in ("timeout", "retry", "cache", "success", "forward_headers", "follow_redirects")),
        *(("http", key) for key in ("allow_private",)),
        ("python", "timeout"),
        *(("output", key) for key in ("max_size", "overflow", "raw", "mime_type")),
    }
)
"""Keys of a definition that can be taken out without changing what the rest of it means."""

_LITERAL: Final = frozenset({"headers", "query", "env", "form", "json", "body", "stdin"})
"""Keys below which a value that could not be filled in may be any text."""


def is_harmless(steps: DocumentPath, model: type[Model]) -> bool:
    """Whether a mistake at these steps of a definition can be taken out with nothing else depending on it."""
    if not steps:
        return False
    owner = model_at(model, steps[:-1])
    if owner is not None and isinstance(steps[-1], str) and steps[-1] not in keys_of(owner):
        meant = nearest(steps[-1], keys_of(owner))
        if meant is None:
            return True
        steps = (*steps[:-1], meant)
    return any(steps[:length] in _HARMLESS for length in (1, 2))


def is_survivable(steps: DocumentPath, model: type[Model]) -> bool:
    """Whether a definition can be compiled although a value in it could not be filled in, or stands there twice."""
    return not steps or is_harmless(steps, model) or any(step in _LITERAL for step in steps)


def take_out(data: Json, steps: DocumentPath) -> None:
    """Take the mistake out: the unknown key alone, otherwise the whole harmless key that it stands in."""
    harmless = next((steps[:length] for length in (1, 2) if steps[:length] in _HARMLESS), steps)
    for step in harmless[:-1]:
        data = data[step]
    data.pop(harmless[-1], None)
