"""Asks the user to confirm a call of a tool with `confirm:`."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from gateway.catalog.primitives import Confirmation
from gateway.control_characters import visible
from gateway.errors import ExecutionError, MissingCapabilityError
from gateway.json_types import Json, JsonObject
from gateway.protocol.call.call import Call
from gateway.protocol.call.input_requests.requester import InputRequester
from gateway.protocol.call.input_requests.requests import CONFIRMATION_KEY, elicitation
from gateway.protocol.call.input_requests.responses import read_answer

_NO_FIELDS: Final[JsonObject] = {"type": "object", "properties": {}}


async def confirm(
    confirmation: Confirmation, arguments: JsonObject, call: Call, requester: InputRequester | None
) -> None:
    """Wait for the user's confirmation. Return at once if it is optional and the client cannot ask.

    Raises:
        ExecutionError: the user did not confirm, or the run cannot ask (`requester` is None).
        MissingCapabilityError: the client lacks the capability.
        AwaitingInput: the client must ask the user first.
    """
    if requester is None:
        raise ExecutionError("This call requires confirmation, but the client cannot ask the user")
    shown = _visible(call.catalog.masker.json(arguments))
    question = elicitation(confirmation.message.render(shown), _NO_FIELDS)
    try:
        # Without proof, a client could send the confirmation without asking the user.
        answers = await requester.request({CONFIRMATION_KEY: question}, pause=_nothing_runs_yet, proven=True)
    except MissingCapabilityError as error:
        if confirmation.is_optional:
            _tell(call, "unasked")
            return
        raise MissingCapabilityError(
            error.capabilities, because="Nothing was done: the user must confirm this call, which"
        ) from error
    answer = read_answer(answers[CONFIRMATION_KEY])
    _tell(call, answer.action)
    if answer.action != "accept":
        raise ExecutionError(f"The user {_DID[answer.action]}; nothing was done.")


def _tell(call: Call, answer: str) -> None:
    if (observer := call.server.interaction_observer) is not None:
        observer.confirmed(call, answer)


def _visible(value: Json) -> Json:
    match value:
        case str():
            return visible(value, has_lines=False)
        case list():
            return [_visible(item) for item in value]
        case Mapping():
            return {_visible(name): _visible(member) for name, member in value.items()}
        case _:
            return value


_DID: Final = {"decline": "declined", "cancel": "dismissed the question"}


@asynccontextmanager
async def _nothing_runs_yet() -> AsyncIterator[None]:
    yield
