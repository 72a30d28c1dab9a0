"""`confirm:` in the file: a yes of the user before a tool runs, and no other way around it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from gateway.catalog.primitives import Confirmation
from gateway.errors import ExecutionError, MissingCapabilityError
from gateway.json_types import JsonObject
from gateway.protocol.answers import read_answer
from gateway.protocol.asker import Asker
from gateway.protocol.questions import CONFIRMATION_KEY, elicitation

_NOTHING_TO_FILL_IN: Final[JsonObject] = {"type": "object", "properties": {}}


async def confirm(
    confirmation: Confirmation, arguments: JsonObject, asker: Asker, *, tell: Callable[[str], None]
) -> None:
    """Return once the user has said yes, or if the file lets the tool run for clients that cannot be asked.

    Raises:
        ExecutionError: the user declined or dismissed the question, or was not to be asked in time.
        MissingCapabilityError: the client cannot be asked.
        AwaitingInput: see `Asker.ask`.
    """
    question = elicitation(confirmation.message.render(arguments), _NOTHING_TO_FILL_IN)
    try:
        answers = await asker.ask({CONFIRMATION_KEY: question}, pause=_nothing_runs_yet, proven=True)
    except MissingCapabilityError:
        if confirmation.is_optional:
            tell("unasked")
            return
        raise
    answer = read_answer(answers[CONFIRMATION_KEY])
    tell(answer.action)
    if answer.action != "accept":
        raise ExecutionError(f"The user {_DID[answer.action]}; nothing was done.")


_DID: Final = {"decline": "declined", "cancel": "dismissed the question"}


@asynccontextmanager
async def _nothing_runs_yet() -> AsyncIterator[None]:
    yield
