"""Chooses how a call requests input: by the era of its client, and by whether the call is a task."""

from gateway.catalog.primitives import Primitive
from gateway.protocol.call.call import Call, OpenRequester
from gateway.protocol.input_requests.mrtr_requester import MrtrRequester
from gateway.protocol.input_requests.session_requester import SessionRequester


def open_requester(primitive: Primitive, call: Call) -> OpenRequester:
    """Return the requester for a run of `primitive`, to be left as a context manager when the run ends.

    Raises:
        InvalidRetryError: the request's `inputResponses` or `requestState` cannot be.
    """
    if call.task is not None:
        return call.task.requester
    if call.session is not None:
        return SessionRequester(call, call.session, ask_timeout=primitive.ask_timeout)
    return MrtrRequester(call, definition=primitive.version)
