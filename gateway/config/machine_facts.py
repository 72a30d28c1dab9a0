"""Facts about the machine that compile steps ask for (files, programs), noted so that they can be asked for again.

Why: a reload does not compile a definition again that has not changed, unless the machine has changed beneath it: a
program that is on the PATH now, a directory that has become a link, a renewed certificate. So whatever looks at the
machine while a definition is compiled is marked `@machine_fact`. Outside of a compilation such a function is itself.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from gateway.json_types import Json

P = ParamSpec("P")
T = TypeVar("T")

Question = tuple[Callable[..., Json], tuple[Json, ...], tuple[tuple[str, Json], ...]]
"""A function with its arguments."""

Facts = Mapping[Question, Json]
"""Questions, and their answers."""

_log: Final[ContextVar["FactLog | None"]] = ContextVar("machine facts", default=None)


def machine_fact(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a function whose answer is a fact about the machine; it does not raise, and its arguments are hashable."""

    @wraps(function)
    def ask(*args: P.args, **kwargs: P.kwargs) -> T:
        log = _log.get()
        if log is None:
            return function(*args, **kwargs)
        answer: T = log.ask((function, args, tuple(kwargs.items())))
        return answer

    return ask


@machine_fact
def new_each_time() -> object:
    """A fact that never holds again: for a step that looks at more than is worth noting, such as whole directories."""
    return object()


class FactLog:
    """The facts of one compilation. A question is asked once: all definitions see the machine as it was then."""

    def __init__(self) -> None:
        self._answers: dict[Question, Json] = {}
        self._noted: dict[Question, Json] = {}

    @contextmanager
    def noting(self) -> Iterator[Facts]:
        """Note what is asked for meanwhile."""
        # The answers stay: later definitions are told the same, and note what they asked for themselves.
        noted = self._noted = {}
        token = _log.set(self)
        try:
            yield noted
        finally:
            _log.reset(token)

    def ask(self, question: Question) -> Json:
        if question not in self._answers:
            function, args, kwargs = question
            self._answers[question] = function(*args, **dict(kwargs))
        answer = self._noted[question] = self._answers[question]
        return answer

    def still_hold(self, facts: Facts) -> bool:
        """Ask for these facts again, and say whether the answers are the same."""
        return all(self.ask(question) == answer for question, answer in facts.items())
